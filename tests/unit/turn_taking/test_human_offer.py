"""The moment at which the agent offers a human."""

import pytest

from parley.language import find_language
from parley.turn_taking.human_offer import HumanOffer, OfferCause

UNKNOWN = "I don't know that one. I can tell you about cards, fees or hours."
OTHER_UNKNOWN = "Sorry, I don't know. You can ask me about cards."
KNOWN = "A card costs ten euros."
AGAIN = "Sorry, I did not catch that."


def offer(*, unknown: int = 0, repairs: int = 0, tense: int = 0) -> HumanOffer:
    return HumanOffer(
        find_language(),
        after_unknown=unknown,
        after_repairs=repairs,
        after_tense=tense,
        repair_phrases=[AGAIN, "I heard: {words}. Is that right?"],
    )


def due(counts: HumanOffer, *exchanges: tuple[str, str]) -> list[bool]:
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
        causes.append(counts.on_reply(KNOWN))
    assert causes == [None, None, None, OfferCause.TENSION]
    counts = offer(tense=0)
    counts.on_caller("This is fine.", is_tense=True)
    assert counts.on_reply(KNOWN) is None
