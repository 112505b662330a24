"""Redaction of words while they are spoken."""

import pytest

from parley.core.media import WordTime
from parley.core.privacy import PrivacySettings
from parley.language import find_language
from parley.language.personal_data import Redactor
from parley.language.turn_redaction import (
    CARRY_MS,
    LEAST_PENDING,
    MOST_CARRIED,
    SaidPart,
    Stretch,
    TurnRedaction,
)

CARD = "four two four two four two four two four two four two four two four two"


def turns(*kinds: str) -> TurnRedaction:
    settings = PrivacySettings(redact=kinds or ("payment_card",))
    return TurnRedaction(Redactor(settings, find_language("en").personal))


def say(turn: TurnRedaction, text: str, at_ms: int = 0) -> str:
    return turn.final(SaidPart(text, at_ms, at_ms + 1_000), at_ms).text


def digits_in(text: str) -> int:
    return sum(len(run.digits) for run in find_language("en").personal.runs(text))


def test_a_partial_that_ends_after_three_digits_of_a_card_shows_none_of_them():
    # As the recogniser heard it: no rule about the words before the digits helps.
    assert turns().partial("my card mumber is four five three", (), 0).text == "my card mumber is [...]"


def test_partials_never_show_more_than_two_digits_of_a_card_that_is_being_spoken():
    turn, words = turns(), f"my card number is {CARD} okay".split()
    for count in range(1, len(words) + 1):
        shown = turn.partial(" ".join(words[:count]), (), 0).text
        assert digits_in(shown) < LEAST_PENDING, shown


def test_a_card_over_four_finals_is_hidden_in_each_of_them_and_in_the_turn():
    turn = turns()
    shown = [
        say(turn, text) for text in ("my card is four two four two", *["four two four two"] * 3, "thanks")
    ]
    assert shown[0] == "my card is [...]"
    assert all(digits_in(each) < LEAST_PENDING for each in shown)
    assert turn.settle(" ".join(shown), 0) == "my card is [card] thanks"


def test_a_short_number_is_back_when_its_turn_is_over():
    turn = turns()
    shown = say(turn, "my order number is four one seven two")
    assert shown == "my order number is [...]"
    assert turn.settle(shown, 0) == "my order number is four one seven two"


def test_words_of_the_next_turn_are_judged_once():
    turn = turns("phone_number", "digits")
    first, second = say(turn, "hello there"), say(turn, "12345")
    assert turn.settle(first, 0) == "hello there"
    assert turn.settle(second, 0) == "12345"


def test_words_that_belong_to_no_turn_do_not_hinder_the_turn_after_them():
    turn = turns()
    say(turn, "what a noise")
    shown = say(turn, "room four one one nine")
    assert turn.settle(shown, 0) == "room four one one nine"


def test_words_that_were_changed_on_their_way_stay_hidden():
    turn = turns()
    say(turn, "room four one one nine")
    assert turn.settle("Room [...]!", 0) == "Room [...]!"


def test_a_card_over_two_turns_shows_its_first_digits_at_most():
    turn = turns()
    first = turn.settle(say(turn, "it is four two four two four two four two"), 0)
    second = turn.settle(say(turn, "four two four two four two four two", 5_000), 5_000)
    assert digits_in(first) == MOST_CARRIED
    assert second == "[card]"


@pytest.mark.parametrize("between", [["yes"], ["yes", "go on please"], []])
def test_a_card_goes_on_after_turns_without_a_number(between):
    turn, kept = turns(), []
    for at, text in enumerate(["it is 4242 4242", *between, "4242 4242", "thanks"]):
        kept.append(turn.settle(say(turn, text, at * 5_000), at * 5_000))
    assert kept == ["it is 4242 4242", *between, "[card]", "thanks"]


def test_typed_words_between_the_parts_of_a_card_do_not_end_it():
    turn = turns()
    shown = [turn.typed(text, at) for at, text in enumerate(("4242 4242", "yes", "4242 4242"))]
    assert shown == ["4242 4242", "yes", "[card]"]


def test_words_without_a_number_do_not_prolong_what_is_remembered():
    turn = turns()
    turn.typed("4242 4242", 0)
    turn.typed("yes", CARRY_MS)
    assert turn.typed("4242 4242", CARRY_MS + 1) == "4242 4242"


def test_most_of_a_card_at_the_end_of_a_turn_is_hidden():
    turn = turns()
    assert turn.settle(say(turn, "it is " + " ".join(CARD.split()[:12])), 0) == "it is [number]"
    # Not a card: it goes on otherwise.
    other = turns()
    said = "one two three four five six seven eight nine eleven times"
    assert other.settle(say(other, said), 0) == said


def test_digits_of_long_ago_are_not_continued():
    turn = turns()
    turn.settle(say(turn, "four two four two four two four two"), 0)
    later = CARRY_MS + 1
    said = "four two four two four two four two"
    assert turn.settle(say(turn, said, later), later) == said


def test_keys_and_typed_text_are_judged_with_the_digits_before_them():
    turn = turns()
    assert turn.typed("I pressed 4 2 4 2 4 2 4 2 on my phone.", 0) == "I pressed 4 2 4 2 4 2 4 2 on my phone."
    assert (
        turn.typed("I pressed 4 2 4 2 4 2 4 2 4 2 4 2 4 2 4 2 on my phone.", 1)
        == "I pressed [card] on my phone."
    )


def test_an_address_is_hidden_from_its_cue_on():
    turn = turns("email")
    words = "my email is anna dot smith at example dot com thanks".split()
    shown = [turn.partial(" ".join(words[:count]), (), 0).text for count in range(4, len(words) + 1)]
    assert not any("anna" in each or "smith" in each for each in shown)
    assert turn.settle(say(turn, " ".join(words)), 0) == "my email is [e-mail] thanks"


def test_hidden_words_are_one_word_with_their_times():
    turn, texts = turns(), f"card {CARD} thanks".split()
    words = tuple(WordTime(text, 100 * at, 100 * at + 90, 0.9) for at, text in enumerate(texts))
    live = turn.final(SaidPart(" ".join(texts), 50_000, 52_000, words), 52_000)
    assert [word.text for word in live.words] == ["card", "[card]", "thanks"]
    assert (live.words[1].start_ms, live.words[1].end_ms) == (100, 1_690)
    assert turn.stretches(52_000) == [Stretch(50_100, 51_690)]


@pytest.mark.parametrize("words", [(), (WordTime("x", 0, 10, 1.0, estimated=True),) * 17])
def test_without_exact_times_the_whole_utterance_is_the_stretch(words):
    turn = turns()
    turn.final(SaidPart(f"card {CARD}", 50_000, 52_000, words), 52_000)
    assert turn.stretches(52_000) == [Stretch(50_000, 52_000)]


def test_stretches_cover_the_earlier_utterances_of_a_number():
    turn = turns()
    for at in range(4):
        say(turn, "four two four two", at * 2_000)
    assert turn.stretches(8_000) == [Stretch(at * 2_000, at * 2_000 + 1_000) for at in range(4)]


def test_a_long_utterance_with_few_words_may_have_digits_that_were_not_written():
    turn = turns()
    turn.final(SaidPart("the number is 42", 10_000, 19_000), 19_000)
    turn.final(SaidPart("i am on hold", 20_000, 29_000), 29_000)
    turn.final(SaidPart("it is 42", 30_000, 32_000), 32_000)
    assert turn.stretches(32_000) == [Stretch(10_000, 19_000)]
