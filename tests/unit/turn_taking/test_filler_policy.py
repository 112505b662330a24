"""Times at which silence is masked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.language.english.cue_words import is_question
from parley.turn_taking.filler_policy import FillerPolicy, MaskTuning


def seen(*answers_ms: int) -> FillerPolicy:
    masking = FillerPolicy()
    for took_ms in answers_ms:
        masking.on_answer(took_ms)
    return masking


def test_a_slow_answer_is_covered_so_that_the_phrase_is_heard_after_700_ms():
    # Quiet since 1 s; the turn ended 300 ms later.
    assert seen(900, 1_000, 1_200).due_ms(quiet_since_ms=1_000, asked_ms=1_300) == 1_620


def test_a_turn_that_took_longer_to_end_is_covered_at_once():
    assert seen(900).due_ms(quiet_since_ms=1_000, asked_ms=1_900) == 1_900


def test_an_answer_that_is_expected_in_time_is_covered_only_when_it_is_overdue():
    assert seen(40, 50, 60).due_ms(quiet_since_ms=1_000, asked_ms=1_300) == 1_620
    # The end was late, not the answer: a phrase before it would make it later still.
    assert seen(40, 50, 60).due_ms(quiet_since_ms=1_000, asked_ms=1_900) == 1_900 + 60 + 250


def test_the_first_answer_of_a_call_gets_the_benefit_of_the_doubt():
    assert FillerPolicy().due_ms(quiet_since_ms=1_000, asked_ms=1_600) == 1_600 + 600
    assert FillerPolicy().expected_ms is None


def test_the_expectation_follows_the_last_answers():
    masking = seen(*[100] * 20)
    assert masking.expected_ms == 100
    for _ in range(6):
        masking.on_answer(900)
    assert masking.expected_ms == 900


@given(
    st.lists(st.integers(0, 5_000), max_size=30),
    st.integers(0, 10_000),
    st.integers(0, 3_000),
    st.integers(300, 2_000),
)
def test_nothing_is_said_before_the_end_of_the_turn_nor_before_the_silence_is_long(
    answers_ms: list[int], quiet_since_ms: int, silence_ms: int, after_ms: int
):
    masking = FillerPolicy(MaskTuning(after_ms=after_ms))
    for took_ms in answers_ms:
        masking.on_answer(took_ms)
    asked_ms = quiet_since_ms + silence_ms
    due_ms = masking.due_ms(quiet_since_ms=quiet_since_ms, asked_ms=asked_ms)
    assert due_ms >= max(asked_ms, quiet_since_ms + after_ms - 80)
    # An answer that takes as long as expected is never hidden by a phrase that began just before it.
    answer_ms = asked_ms + (masking.expected_ms or 0)
    assert not answers_ms or not answer_ms - 250 <= due_ms <= answer_ms


def test_the_phrase_fits_and_changes():
    masking = FillerPolicy()
    said = [masking.phrase("what is the fee") for _ in range(4)]
    assert said == ["Let me see.", "Let me check.", "One moment.", "Let me see."]
    assert masking.phrase("my number is four one five") in ("Okay.", "All right.")
    silent = FillerPolicy(MaskTuning(statements=()))
    assert (silent.phrase("thank you"), silent.covers("thank you")) == ("", False)
    assert silent.covers("what is it")


@pytest.mark.parametrize("text", ["What is it", "and how much is it", "the fee?", "Can you tell me"])
def test_questions(text: str):
    assert is_question(text)


@pytest.mark.parametrize("text", ["", "my name is Ann", "thank you very much indeed what"])
def test_no_questions(text: str):
    assert not is_question(text)
