"""The moment at which the agent offers a human, or another medium."""

import pytest
from pydantic import ValidationError

from parley.core.tiers import Medium
from parley.language import find_language
from parley.turn_taking.tier_offers import OfferCause, OfferRule, TierOffers, rule_by_words
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


def test_turns_said_tensely_count_in_a_row_and_the_cause_is_stated() -> None:
    counts = offer(tense=2)
    causes = []
    for tense in (True, False, True, True):
        counts.on_caller("This is fine.", is_tense=tense)
        rule = counts.on_reply(KNOWN)
        causes.append(None if rule is None else rule.cause)
    assert causes == [None, None, None, OfferCause.TENSION]
    counts = offer(tense=0)
    counts.on_caller("This is fine.", is_tense=True)
    assert counts.on_reply(KNOWN) is None


VOICE, VIDEO, SCREEN = {Medium.VOICE}, {Medium.VOICE, Medium.VIDEO}, {Medium.VOICE, Medium.SCREEN}
SHOWN = OfferRule(OfferCause.EYES, Medium.SCREEN, on=("on my screen",))
UNNEEDED = OfferRule(OfferCause.UNNEEDED, Medium.VOICE, after=2)


def test_turns_of_low_confidence_count_in_a_row() -> None:
    rule = OfferRule(OfferCause.UNCLEAR, Medium.TEXT, after=2)
    counts = TierOffers(find_language(), [rule])
    found = []
    for unclear in (True, False, True, True):
        counts.on_caller("Mumble.", is_unclear=unclear, media=VOICE)
        found.append(counts.on_reply(KNOWN))
    assert found == [None, None, None, rule]


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
