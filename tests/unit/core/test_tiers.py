"""Tiers of a session: every pair of a tier and an event."""

from itertools import product

import pytest

from parley.core.tiers import (
    HELD,
    STEPS,
    TRANSITIONS,
    Medium,
    SessionTier,
    Tier,
    TierEvent,
    is_reached,
    read_tier,
)

T, E = Tier, TierEvent
# Written out once more, by event, so that a slip in the table shows.
EXPECTED = {
    E.OFFERED: {T.AGENT: T.OFFERED},
    E.ACCEPTED: {T.OFFERED: T.WAITING, T.STEP_OFFERED: T.STEPPING},
    E.DECLINED: {T.OFFERED: T.AGENT, T.STEP_OFFERED: T.AGENT, T.STEPPING: T.AGENT},
    E.REQUESTED: dict.fromkeys(set(T) - HELD, T.WAITING),
    E.POLICY: dict.fromkeys(set(T) - HELD, T.WAITING),
    E.WITHDRAWN: {T.WAITING: T.AGENT},
    E.EXPIRED: {T.WAITING: T.BACK, T.STEP_OFFERED: T.AGENT, T.STEPPING: T.AGENT},
    E.TAKEN: dict.fromkeys(set(T) - {T.HUMAN}, T.HUMAN),
    E.RETURNED: {T.HUMAN: T.BACK},
    E.DESK_LOST: {T.HUMAN: T.BACK},
    E.REPLIED: {T.BACK: T.AGENT},
    E.STEP_OFFERED: {T.AGENT: T.STEP_OFFERED, T.BACK: T.STEP_OFFERED},
    E.STEP_REQUESTED: dict.fromkeys(set(T) - HELD, T.STEPPING),
    E.STEP_POLICY: {T.AGENT: T.STEPPING, T.BACK: T.STEPPING},
    E.REACHED: dict.fromkeys(STEPS, T.AGENT),
    E.FAILED: dict.fromkeys(STEPS, T.AGENT),
}
AIMED = {E.STEP_OFFERED, E.STEP_REQUESTED, E.STEP_POLICY}


@pytest.mark.parametrize(("tier", "event"), list(product(Tier, TierEvent)))
def test_every_pair_leads_where_it_should_and_a_change_is_a_new_epoch(tier: Tier, event: TierEvent) -> None:
    expected = EXPECTED[event].get(tier)
    assert TRANSITIONS[tier, event] is expected
    to = Medium.SCREEN if event in AIMED else None
    changed = SessionTier(tier, 4, "before", "a note", 10).after(event, at_us=20, to=to)
    if expected is None:
        assert changed is None
    else:
        assert changed == SessionTier(expected, 5, event.value, "a note", 20, to=to)


def test_every_tier_can_be_reached_and_every_other_one_leads_back_to_the_agent() -> None:
    reached = {Tier.AGENT}
    while more := {to for (of, _), to in TRANSITIONS.items() if of in reached and to} - reached:
        reached |= more
    assert reached == set(Tier)
    returns = {Tier.AGENT}
    while more := {of for (of, _), to in TRANSITIONS.items() if to in returns} - returns:
        returns |= more
    assert returns == set(Tier)


def test_no_model_is_asked_while_a_human_is_awaited_or_there() -> None:
    assert {tier for tier in Tier if SessionTier(tier).is_held} == HELD == {Tier.WAITING, Tier.HUMAN}


@pytest.mark.parametrize(
    ("way", "holds"),
    [
        ([E.OFFERED, E.DECLINED], 0),
        ([E.REQUESTED, E.WITHDRAWN], 2),
        ([E.OFFERED, E.ACCEPTED, E.TAKEN, E.RETURNED], 3),
        ([E.TAKEN, E.RETURNED, E.REPLIED], 2),
    ],
)
def test_only_changes_to_and_from_a_human_count_as_holds(way: list[TierEvent], holds: int) -> None:
    tier = SessionTier()
    for event in way:
        changed = tier.after(event, at_us=1)
        assert changed is not None
        tier = changed
    assert (tier.holds, tier.epoch) == (holds, len(way))


def test_a_new_note_replaces_the_last_one_and_other_changes_keep_it() -> None:
    held = SessionTier(Tier.HUMAN, note="first")
    back = held.after(TierEvent.RETURNED, at_us=1, note="second")
    assert back is not None and back.note == "second"
    agent = back.after(TierEvent.REPLIED, at_us=2)
    assert agent is not None and agent.note == "second"


def test_the_cause_of_an_offer_stays_when_it_is_accepted_and_no_longer() -> None:
    offered = SessionTier().after(TierEvent.OFFERED, at_us=1, cause="tension")
    assert offered is not None and offered.payload()["cause"] == "tension"
    accepted = offered.after(TierEvent.ACCEPTED, at_us=2)
    assert accepted is not None and accepted.cause == "tension"
    assert read_tier(accepted.payload(), at_us=2) == accepted
    taken = accepted.after(TierEvent.TAKEN, at_us=3)
    assert taken is not None and "cause" not in taken.payload()


def test_a_tier_is_read_as_it_was_recorded() -> None:
    for tier in (
        SessionTier(Tier.WAITING, 3, "requested", "", 7),
        SessionTier(Tier.BACK, 9, "returned", "x", 7),
        SessionTier(Tier.STEPPING, 2, "accepted", "", 7, "eyes", Medium.SCREEN, frozenset({Medium.VOICE})),
    ):
        assert read_tier(tier.payload(), at_us=7) == tier


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"tier": "boss", "epoch": 1, "reason": "taken"},
        {"tier": "human", "epoch": "1", "reason": "taken"},
        {"tier": "human", "epoch": 1},
        {"tier": ["human"], "epoch": 1, "reason": "taken"},
        {"tier": "human", "epoch": 1, "reason": "taken", "note": 5},
        {"tier": "stepping", "epoch": 1, "reason": "accepted"},
        {"tier": "stepping", "epoch": 1, "reason": "accepted", "to": "telepathy"},
        {"tier": "agent", "epoch": 1, "reason": "declined", "declined": 5},
        {"tier": "agent", "epoch": 1, "reason": "declined", "declined": ["telepathy"]},
    ],
)
def test_a_record_that_no_release_writes_is_ignored(payload: dict[str, object]) -> None:
    assert read_tier(payload, at_us=1) is None


def stepped(*events: TierEvent, to: Medium) -> SessionTier:
    """Return the tier after events, the first of which begins a step."""
    tier = SessionTier()
    for event in events:
        changed = tier.after(event, at_us=1, to=to if event in AIMED else None)
        assert changed is not None
        tier = changed
    return tier


def test_a_step_keeps_its_medium_to_its_end_and_no_longer() -> None:
    reached = stepped(E.STEP_OFFERED, E.ACCEPTED, E.REACHED, to=Medium.VOICE)
    assert (reached.tier, reached.to) == (Tier.AGENT, Medium.VOICE)
    later = reached.after(E.REQUESTED, at_us=2)
    assert later is not None and later.to is None
    assert SessionTier().after(E.STEP_OFFERED, at_us=1) is None


def test_a_declined_medium_stays_declined_until_the_caller_asks_for_it() -> None:
    declined = stepped(E.STEP_OFFERED, E.DECLINED, to=Medium.VIDEO)
    assert declined.declined == {Medium.VIDEO}
    other = declined.after(E.STEP_REQUESTED, at_us=2, to=Medium.TEXT)
    assert other is not None and other.declined == {Medium.VIDEO}
    asked = declined.after(E.STEP_REQUESTED, at_us=2, to=Medium.VIDEO)
    assert asked is not None and not asked.declined
    assert not stepped(E.STEP_OFFERED, E.EXPIRED, to=Medium.VIDEO).declined


MEDIA = [set(), {Medium.VOICE}, {Medium.VOICE, Medium.VIDEO}, {Medium.VOICE, Medium.SCREEN}]
THERE = {
    Medium.TEXT: [True, False, False, False],
    Medium.VOICE: [False, True, False, False],
    Medium.VIDEO: [False, False, True, False],
    Medium.SCREEN: [False, False, False, True],
}


@pytest.mark.parametrize("to", list(Medium))
def test_every_medium_is_reached_where_it_is_and_nowhere_else(to: Medium) -> None:
    assert [is_reached(to, media) for media in MEDIA] == THERE[to]


@pytest.mark.parametrize("to", list(Medium))
@pytest.mark.parametrize("events", [(E.STEP_OFFERED,), (E.STEP_REQUESTED,)])
def test_a_step_ends_where_it_leads_or_with_its_call(to: Medium, events: tuple[TierEvent, ...]) -> None:
    tier = stepped(*events, to=to)
    ends = [tier.step_end(media) for media in MEDIA]
    assert ends == [E.REACHED if there else None for there in THERE[to]]
    assert tier.step_end(set(), has_left=True) is (E.REACHED if to is Medium.TEXT else E.EXPIRED)


def test_a_caller_may_show_the_other_source_than_the_one_that_was_asked_for() -> None:
    tier = stepped(E.STEP_OFFERED, to=Medium.SCREEN)
    shown = {Medium.VOICE, Medium.VIDEO}
    assert tier.step_end(shown, began=Medium.VIDEO) is E.REACHED
    # The camera was on before the screen was offered.
    assert tier.step_end(shown) is None
    assert stepped(E.STEP_OFFERED, to=Medium.TEXT).step_end(shown, began=Medium.VIDEO) is None


@pytest.mark.parametrize("tier", sorted(set(Tier) - STEPS, key=lambda tier: tier.value))
def test_without_a_step_nothing_ends(tier: Tier) -> None:
    assert SessionTier(tier).step_end({Medium.VOICE}, has_left=True) is None
