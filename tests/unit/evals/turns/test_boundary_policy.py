"""The priced wait, with the evidence of this evaluation."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.evals.turns.boundary_policy import BoundaryPolicy
from parley.evals.turns.contours import Contour
from parley.evals.turns.evidence import EvidenceSettings
from parley.turn_taking.endpointing.endpointer import EndpointPolicy
from parley.turn_taking.endpointing.evidence_tempo import Tempo
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from parley.turn_taking.endpointing.pauses import PauseLaw
from parley.turn_taking.endpointing.policies import Price
from tests.unit.turn_taking.test_policies import turn, wait_ms

# A level, drawn out word of a caller of average tempo.
DRAWN_OUT = VoiceEnd(Tempo(final=0.4, whole=0.9), 0.5, 0.0)


def boundary(
    cut_cost_ms: float = 4_000,
    longest_ms: int = 3_000,
    evidence: EvidenceSettings | None = None,
    **changes: Any,
) -> BoundaryPolicy:
    return BoundaryPolicy(evidence, Price(cut_cost_ms, longest_ms), **changes)


@given(one=st.floats(0, 1), other=st.floats(0, 1))
def test_a_more_complete_turn_never_waits_longer(one: float, other: float):
    low, high = sorted((one, other))
    waits = [wait_ms(policy, turn(policy, completeness=p)) for p in (high, low) for policy in [boundary()]]
    assert waits[0] <= waits[1]


@given(cheap=st.floats(500, 50_000), completeness=st.floats(0.01, 0.99))
def test_a_dearer_cut_in_never_waits_shorter(cheap: float, completeness: float):
    policies = [boundary(cut_cost_ms=cost) for cost in (cheap, 2 * cheap)]
    waits = [wait_ms(policy, turn(policy, completeness=completeness)) for policy in policies]
    assert waits[0] <= waits[1]


def test_words_that_hang_wait_longer_than_the_same_score_after_a_clause():
    whole, open_ = boundary(), boundary()
    assert wait_ms(open_, turn(open_, "what are your", 0.6)) > wait_ms(whole, turn(whole, completeness=0.6))


def test_an_open_number_waits_longer_when_the_bot_asked_for_one():
    asked, unasked = boundary(), boundary()
    asked.on_bot_said("What is your account number?")
    assert wait_ms(asked, turn(asked, "four one", 0.6)) > wait_ms(unasked, turn(unasked, "four one", 0.6))


def test_the_contour_counts_only_where_it_is_asked_for():
    deaf, keen = boundary(), boundary(contour=True)
    assert (deaf.wants_contour, keen.wants_contour) == (False, True)
    for policy in (deaf, keen):
        turn(policy, completeness=0.6)
    before = deaf.end_log_odds(), keen.end_log_odds()
    for policy in (deaf, keen):
        policy.on_contour(Contour.LEVEL)
    assert deaf.end_log_odds() == before[0]
    assert keen.end_log_odds() < before[1]


def test_the_longest_wait_holds():
    policy = boundary(longest_ms=900, cut_cost_ms=1_000_000)
    assert wait_ms(policy, turn(policy, "and um", 0.001)) == 900


def test_the_model_is_asked_again_while_the_turn_is_open():
    policy = boundary(looks_ms=(400, 700), cut_cost_ms=50_000)
    since_ms = turn(policy, completeness=0.2)
    assert policy.next_look_ms() == since_ms + 400
    policy.on_look(since_ms + 400)
    assert policy.next_look_ms() == since_ms + 700
    policy.on_completeness(0.99)
    assert policy.next_look_ms() is None


def test_early_evidence_that_gives_the_shortest_wait_needs_no_second_look():
    policy = boundary()
    assert policy.is_complete(0.999)
    assert not policy.is_complete(0.3)


def test_a_hold_that_was_cut_is_learnt_from_who_goes_on_at_once():
    waits = []
    for resumes_ms in (400, 4_000):
        policy = boundary(learn=True)
        at_ms = 0
        for _ in range(12):
            since_ms = turn(policy, "yes", 0.97, at_ms=at_ms)
            deadline_ms = policy.next_deadline_ms()
            assert deadline_ms is not None and policy.on_deadline(deadline_ms) is not None
            policy.reset()
            at_ms = deadline_ms + resumes_ms
        since_ms = turn(policy, completeness=0.5, at_ms=at_ms)
        waits.append(wait_ms(policy, since_ms))
    assert waits[0] > waits[1]


def test_the_end_of_the_voice_counts_only_where_it_is_asked_for():
    deaf, keen = boundary(), boundary(voice=True)
    assert (deaf.wants_voice_end, keen.wants_voice_end) == (False, True)
    for policy in (deaf, keen):
        turn(policy, completeness=0.6)
    before = deaf.end_log_odds(), keen.end_log_odds()
    for policy in (deaf, keen):
        policy.on_voice_end(DRAWN_OUT)
    assert deaf.end_log_odds() == before[0]
    assert keen.end_log_odds() < before[1]


def test_the_end_of_the_voice_is_that_of_one_pause_and_the_caller_s_tempo_that_of_the_call():
    policy = boundary(voice=True)
    turn(policy, completeness=0.6)
    before = policy.end_log_odds()
    slow = VoiceEnd(Tempo(final=0.2, whole=0.2), None, None)
    policy.on_voice_end(slow)
    at_first = policy.end_log_odds()
    for place in range(1, 30):
        # Sometimes the caller goes on, sometimes the turn has ended: both are this caller's speech.
        if place % 3 == 0:
            policy.reset()
        policy.on_voice_started(10_000 * place)
        policy.on_voice_stopped(10_000 * place + 960, silence_ms=160)
        policy.on_voice_end(slow)
    policy.reset()
    turn(policy, completeness=0.6, at_ms=400_000)
    assert policy.end_log_odds() == before
    policy.on_voice_end(slow)
    assert at_first < before
    assert policy.end_log_odds() > at_first + 0.5


def test_the_boundary_keeps_what_its_price_promises():
    """The boundary keeps the promise of its price.

    With a calibrated score, the share of cut holds and the waits are those of the least cost.
    """
    rng, law = np.random.default_rng(2), PauseLaw()
    costs = {}
    for scale in (0.25, 1.0, 4.0):
        deaf = EvidenceSettings(words_weight=0.0)
        policy = boundary(cut_cost_ms=scale * 6_000, longest_ms=5_000, evidence=deaf)
        cost, at_ms = 0.0, 0
        for _ in range(1_500):
            end = rng.random() > 0.638
            log_odds = rng.normal(2 if end else -2, 2)
            since_ms = turn(policy, "so it is", 1 / (1 + np.exp(-log_odds)), at_ms=at_ms)
            waited_ms = wait_ms(policy, since_ms)
            cost += waited_ms if end else 6_000 * (waited_ms < law.sample(rng))
            policy.reset()
            at_ms = since_ms + 20_000
        costs[scale] = cost
    assert costs[1.0] == min(costs.values())


def call_with_a_lying_score(policy: EndpointPolicy, *, pauses: int) -> int:
    """Return the wait at the last pause.

    Each turn sounds complete at its pause and open at its end.
    """
    at_ms, wait = 0, 0
    for _ in range(pauses):
        policy.reset()
        held_ms = turn(policy, "what are your hours", 0.99, at_ms=at_ms)
        wait = wait_ms(policy, held_ms)
        decided = policy.on_deadline(held_ms + wait) if wait < 700 else None
        if decided is not None:
            policy.reset()
        since_ms = turn(policy, "on sunday", 0.01, at_ms=held_ms + 700)
        deadline_ms = policy.next_deadline_ms()
        assert deadline_ms is not None
        assert policy.on_deadline(deadline_ms) is not None
        at_ms = since_ms + 8_000
    return wait


def test_a_score_that_lies_is_believed_less_and_less():
    learning, trusting = boundary(learn=True), boundary(learn=True, doubt=0.0)
    first = call_with_a_lying_score(boundary(learn=True), pauses=1)
    assert call_with_a_lying_score(learning, pauses=12) > first + 300
    assert call_with_a_lying_score(trusting, pauses=12) < call_with_a_lying_score(learning, pauses=1)


def test_the_boundary_hears_a_filler_by_its_sound():
    def waited(filler_log_odds: float | None, **changes: object) -> int:
        policy = boundary(**changes)
        since_ms = turn(policy, "please send it stone")
        policy.on_completeness(0.8, filler_log_odds=filler_log_odds)
        return wait_ms(policy, since_ms)

    assert waited(5.0) > waited(-5.0) == waited(None)
    policy = boundary()
    assert policy.is_complete(0.999, filler_log_odds=-5.0)
    assert not policy.is_complete(0.9, filler_log_odds=5.0)


def test_who_pauses_long_is_waited_for_longer():
    def learnt(length_ms: int) -> int:
        policy, at_ms = boundary(learn=True), 0
        for _ in range(20):
            at_ms = turn(policy, "and", 0.01, at_ms=at_ms) + length_ms
        since_ms = turn(policy, at_ms=at_ms)
        policy.on_completeness(0.3)
        return wait_ms(policy, since_ms)

    assert learnt(250) < learnt(800)
