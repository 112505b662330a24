"""The moment at which the agent offers a human, or another medium."""

import pytest
from pydantic import ValidationError

from parley.core.tiers import Medium
from parley.language import find_language
from parley.serving.gateway.desk.settings import DeskSettings
from parley.turn_taking.tier_offers import (
    JudgedStretch,
    OfferCause,
    OfferRule,
    TierOffers,
    ToolTrigger,
    rule_by_words,
)
from parley.turn_taking.tier_settings import OfferRuleSettings, TierSettings

UNKNOWN = "I don't know that one. I can tell you about cards, fees or hours."
OTHER_UNKNOWN = "Sorry, I don't know. You can ask me about cards."
KNOWN = "A card costs ten euros."
AGAIN = "Sorry, I did not catch that."


def offer(*, unknown: int = 0, repairs: int = 0, tense: int = 0) -> TierOffers:
    return TierOffers(
        find_language(),
        [
            OfferRule(OfferCause.UNKNOWN, after=unknown),
            OfferRule(OfferCause.REPAIRS, after=repairs),
            OfferRule(OfferCause.TENSION, after=tense),
        ],
        repair_phrases=[AGAIN, "I heard: {words}. Is that right?"],
    )


def due(counts: TierOffers, *exchanges: tuple[str, str]) -> list[bool]:
    found = []
    for caller, reply in exchanges:
        counts.on_caller(caller)
        found.append(counts.on_reply(reply) is not None)
    return found


def test_unknown_answers_count_in_a_row_in_any_wording() -> None:
    question = "What is the capital of Peru?"
    assert due(offer(unknown=2), (question, UNKNOWN), (question, OTHER_UNKNOWN)) == [False, True]
    counts = offer(unknown=2)
    assert not any(due(counts, (question, UNKNOWN), (question, KNOWN), (question, UNKNOWN)))


def test_the_count_begins_anew_after_an_offer() -> None:
    assert due(offer(unknown=2), *[("Why?", UNKNOWN)] * 4) == [False, True, False, True]


@pytest.mark.parametrize(
    "exchanges",
    [
        [("What did you say?", KNOWN), ("Pardon?", KNOWN)],
        [("Card", AGAIN), ("Card", "I heard: a cart. Is that right?")],
        [("Card", AGAIN), ("Say that again", KNOWN)],
    ],
)
def test_repairs_of_both_sides_count_in_a_row(exchanges: list[tuple[str, str]]) -> None:
    assert due(offer(repairs=2), *exchanges) == [False, True]
    between = [exchanges[0], ("What does a card cost?", KNOWN), exchanges[1]]
    assert due(offer(repairs=2), *between) == [False, False, False]


def test_nothing_is_offered_where_the_counts_are_off() -> None:
    assert not any(due(offer(), *[("Pardon?", UNKNOWN)] * 10))


def test_a_silent_reply_counts_for_nothing() -> None:
    counts = offer(unknown=1)
    assert not counts.on_reply("  ") and counts.on_reply(UNKNOWN)


def tense(*places_s: tuple[float, float], score: float = 0.9) -> list[JudgedStretch]:
    return [JudgedStretch(int(began * 1e6), int(ended * 1e6), score) for began, ended in places_s]


def causes(counts: TierOffers, *turns: list[JudgedStretch]) -> list[OfferCause | None]:
    found = []
    for judged in turns:
        counts.on_caller("This is fine.", judged=judged)
        rule = counts.on_reply(KNOWN)
        found.append(None if rule is None else rule.cause)
    return found


def test_turns_said_tensely_count_in_a_row_and_the_cause_is_stated() -> None:
    calm = tense((0, 9), score=0.59)
    turns = (tense((0, 1)), calm, [*calm, *tense((9, 10))], tense((0, 1)))
    assert causes(offer(tense=2), *turns) == [None, None, None, OfferCause.TENSION]
    assert causes(offer(tense=0), tense((0, 1))) == [None]


def test_tense_speech_counts_in_seconds_over_tense_turns_in_a_row_and_each_second_once() -> None:
    def counts() -> TierOffers:
        return TierOffers(find_language(), [OfferRule(OfferCause.TENSION, after_s=5.0)])

    # What two specialists judge is the same speech.
    assert causes(counts(), tense((0, 2), (1, 3)), tense((0, 1.9))) == [None, None]
    assert causes(counts(), tense((0, 2), (1, 3)), tense((4, 6))) == [None, OfferCause.TENSION]
    assert causes(counts(), tense((0, 4)), [], tense((0, 4))) == [None, None, None]
    assert causes(counts(), tense((0, 5.5))) == [OfferCause.TENSION]


def test_a_rule_states_from_which_score_speech_is_tense() -> None:
    counts = TierOffers(find_language(), [OfferRule(OfferCause.TENSION, after=1, tense_from=0.8)])
    assert causes(counts, tense((0, 1), score=0.7), tense((0, 1), score=0.8)) == [None, OfferCause.TENSION]


VOICE, VIDEO, SCREEN = {Medium.VOICE}, {Medium.VOICE, Medium.VIDEO}, {Medium.VOICE, Medium.SCREEN}
SHOWN = OfferRule(OfferCause.EYES, Medium.SCREEN, on=("on my screen",))
UNNEEDED = OfferRule(OfferCause.UNNEEDED, Medium.VOICE, after=2)


@pytest.mark.parametrize("to", [Medium.TEXT, None])
def test_turns_of_low_confidence_count_in_a_row(to: Medium | None) -> None:
    rule = OfferRule(OfferCause.UNCLEAR, to, after=2, unclear_below=0.5)
    counts = TierOffers(find_language(), [rule])
    found = []
    for confidence in (0.4, 0.5, 0.4, None, 0.4, 0.4):
        counts.on_caller("Mumble.", confidence=confidence, media=VOICE)
        found.append(counts.on_reply(KNOWN))
    assert found == [None, None, None, None, None, rule]


UNPROVEN = ToolTrigger("identify", has=(("verified", False), ("tries", 3)))


@pytest.mark.parametrize(
    ("name", "outcome", "result", "fits"),
    [
        ("identify", "done", {"verified": False, "tries": 3, "more": "x"}, True),
        ("identify", "done", {"verified": False, "tries": 3.0}, True),
        ("identify", "done", {"verified": 0, "tries": 3}, False),
        ("identify", "done", {"verified": True, "tries": 3}, False),
        ("identify", "done", {"verified": False}, False),
        ("identify", "done", "not verified", False),
        ("identify", "failed", {"verified": False, "tries": 3}, False),
        ("order", "done", {"verified": False, "tries": 3}, False),
        (None, None, None, False),
    ],
)
def test_the_result_of_a_tool_fits_by_its_outcome_and_its_fields(
    name: object, outcome: object, result: object, fits: bool
) -> None:
    assert UNPROVEN.fits(name, outcome, result) is fits


def test_the_result_of_a_tool_makes_an_offer_due_after_its_reply_alone() -> None:
    human = OfferRule(OfferCause.VERIFICATION, on_tool=ToolTrigger("identify", "failed"))
    counts = TierOffers(find_language(), [human])
    counts.on_tool_result("identify", "failed", {"error": "x"})
    counts.on_caller("And now?")
    assert counts.on_reply(" ") is None and counts.on_reply(KNOWN) is human
    assert counts.on_reply(KNOWN) is None
    counts.on_tool_result("identify", "failed", {"error": "x"})
    assert counts.on_reply(KNOWN, may_offer=lambda _rule: False) is None
    assert counts.on_reply(KNOWN) is None


def test_pictures_are_unneeded_after_turns_without_words_that_need_them() -> None:
    counts = TierOffers(find_language(), [SHOWN, UNNEEDED])
    found = []
    for said, media in (
        ("What does a card cost?", VIDEO),
        ("And what is this on my screen?", SCREEN),
        ("What does a card cost?", VOICE),
        ("What does a card cost?", VIDEO),
        ("And a new one?", VIDEO),
    ):
        counts.on_caller(said, media=media)
        found.append(counts.on_reply(KNOWN))
    assert found == [None, None, None, None, UNNEEDED]


@pytest.mark.parametrize(
    ("rule", "from_media"),
    [
        (OfferRule(OfferCause.REPAIRS), [(), VOICE, VIDEO, SCREEN]),
        (OfferRule(OfferCause.REPAIRS, Medium.VOICE, after=1), [()]),
        (UNNEEDED, [VIDEO, SCREEN]),
        (OfferRule(OfferCause.UNCLEAR, Medium.TEXT, after=1), [VOICE, VIDEO, SCREEN]),
        (SHOWN, [(), VOICE, VIDEO]),
    ],
)
def test_a_rule_leads_away_from_where_the_caller_is(rule: OfferRule, from_media: list[object]) -> None:
    media: list[set[Medium] | tuple[()]] = [(), VOICE, VIDEO, SCREEN]
    assert [each for each in media if rule.leads_from(each)] == from_media


def test_a_rule_that_does_not_apply_leaves_the_counts_and_gives_way_to_the_next() -> None:
    human, voice = (
        OfferRule(OfferCause.REPAIRS, after=1),
        OfferRule(OfferCause.REPAIRS, Medium.VOICE, after=1),
    )
    counts = TierOffers(find_language(), [human, voice])
    counts.on_caller("Pardon?")
    assert counts.on_reply(KNOWN, may_offer=lambda rule: rule is voice) is voice
    counts.on_caller("Pardon?")
    assert counts.on_reply(KNOWN, may_offer=lambda _rule: False) is None
    counts.on_caller("Pardon?")
    assert counts.on_reply(KNOWN) is human


def test_words_of_a_rule_are_found_in_a_row_and_only_whole() -> None:
    def found(text: str) -> bool:
        return rule_by_words([SHOWN], text, may_offer=lambda _rule: True) is SHOWN

    assert found("What is that, on my screen?")
    assert not found("It is on my big screen.") and not found("On my screens.")
    assert rule_by_words([SHOWN], "on my screen", may_offer=lambda _rule: False) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"to": "video", "cause": "eyes"},
        {"to": "video", "cause": "eyes", "on": ["see"], "after": 1},
        {"to": "voice", "cause": "repairs"},
        {"to": "voice", "cause": "repairs", "after": 1, "on": ["see"]},
        {"to": "video", "cause": "unneeded", "after": 1},
        {"to": "voice", "cause": "unneeded", "after": 1, "ask": False},
        {"to": "voice", "cause": "repairs", "after": 1, "on_tool": {"name": "x"}},
        {"to": "voice", "cause": "repairs", "after": 1, "after_s": 1.0},
        {"to": "video", "cause": "eyes", "on_tool": {"name": "x"}, "after_s": 1.0},
        {"to": "video", "cause": "eyes", "on_tool": {"name": "x", "has": {"deep": {"er": 1}}}},
        {"to": "telepathy", "cause": "eyes", "on": ["see"]},
    ],
)
def test_a_rule_without_its_trigger_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OfferRuleSettings.model_validate(fields)


def test_every_step_has_its_phrase() -> None:
    settings = TierSettings()
    offers = [settings.offer_of(OfferRule(OfferCause.POLICY, to)) for to in Medium]
    assert len(set(offers)) == len(Medium) and settings.offer_of(UNNEEDED) not in offers
    assert len({settings.go(to, is_in_call=True) for to in Medium}) == len(Medium)


@pytest.mark.parametrize(
    "fields",
    [
        {"cause": "eyes", "on": ["see"]},
        {"cause": "unneeded", "after": 1},
        {"cause": "policy"},
        {"cause": "policy", "on": ["refund"], "to": "voice"},
    ],
)
def test_a_rule_that_is_none_of_a_human_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DeskSettings.model_validate({"offers": [fields]})


def test_every_cause_of_a_human_has_its_rule() -> None:
    settings = DeskSettings.model_validate(
        {
            "offers": [
                {"cause": "unclear", "after": 3},
                {"cause": "tension", "after_s": 6.0},
                {"cause": "verification", "on": ["change my address"]},
                {"cause": "policy", "on_tool": {"name": "refund", "has": {"allowed": False}}, "ask": False},
            ],
        }
    )
    unclear, tension, verification, policy = settings.rules()
    assert unclear == OfferRule(OfferCause.UNCLEAR, after=3)
    assert (tension.after_s, verification.on) == (6.0, ("change my address",))
    assert (policy.on_tool, policy.asks) == (ToolTrigger("refund", has=(("allowed", False),)), False)
    assert all(rule.to is None for rule in settings.rules())
