import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.language.english.cue_words import ends_hanging
from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointKind, EndpointTuning

SETTINGS = EndpointTuning()


def said(
    text: str, completeness: float | None, *, at_ms: int = 1_000, settings: EndpointTuning = SETTINGS
) -> Endpointer:
    """Return a turn whose voice ended 200 ms before ``at_ms`` and whose words and completeness are known."""
    endpointer = Endpointer(settings)
    endpointer.on_voice_started(0)
    endpointer.on_voice_stopped(at_ms, silence_ms=200)
    if completeness is not None:
        endpointer.on_completeness(completeness)
    endpointer.on_transcript(at_ms, text)
    return endpointer


def test_a_complete_turn_waits_the_shortest_time():
    assert said("what are your opening hours", 0.95).next_deadline_ms() == 800 + SETTINGS.min_silence_ms


def test_a_turn_that_sounds_incomplete_waits_longer():
    assert said("i want to send fifty dollars", 0.0).next_deadline_ms() == 800 + SETTINGS.max_silence_ms


def test_a_turn_that_ends_on_a_conjunction_waits_longest_however_it_sounds():
    assert said("i want to send it to my", 0.99).next_deadline_ms() == 800 + SETTINGS.hanging_silence_ms


def test_a_last_word_that_was_hardly_understood_does_not_hang():
    endpointer = said("", 0.99)
    endpointer.on_transcript(1_100, "how to argue the", last_word_confidence=0.1)
    assert endpointer.wait_ms() == SETTINGS.min_silence_ms


def test_a_word_that_may_trail_off_hangs_only_when_the_turn_sounds_unfinished():
    assert said("what do i need for", 0.05).wait_ms() == SETTINGS.hanging_silence_ms


def test_a_word_that_the_recogniser_writes_for_um_is_waited_for():
    chosen = EndpointTuning(heard_for_fillers=("them",))
    assert said("how long does it take them", 0.9, settings=chosen).wait_ms() == chosen.max_silence_ms
    assert said("how long does it take them", 0.9).wait_ms() == SETTINGS.min_silence_ms
    assert said("how long does it take", 0.9, settings=chosen).wait_ms() == chosen.min_silence_ms
    assert said("what is it for", 0.95).wait_ms() == SETTINGS.min_silence_ms
    assert said("a student account", 0.05).wait_ms() < SETTINGS.max_silence_ms


def test_what_sounds_like_a_filler_is_waited_for_however_complete_it_seems_and_reads():
    def waits(odds: float | None, settings: EndpointTuning = SETTINGS) -> int:
        endpointer = said("how long does it take stone", None, settings=settings)
        endpointer.on_completeness(0.95, filler_log_odds=odds)
        return endpointer.wait_ms()

    least = SETTINGS.filler_log_odds
    assert least is not None
    assert waits(least) == SETTINGS.hanging_silence_ms
    assert waits(least - 0.1) == waits(None) == SETTINGS.min_silence_ms
    assert waits(least, EndpointTuning(filler_log_odds=None)) == SETTINGS.min_silence_ms


def test_a_caller_who_is_known_not_to_have_stopped_on_a_filler_is_believed_sooner():
    endpointer = said("what are your opening hours", None)
    endpointer.on_completeness(SETTINGS.complete_without_filler, filler_log_odds=-3.0)
    assert endpointer.wait_ms() == SETTINGS.min_silence_ms
    endpointer.on_completeness(SETTINGS.complete_without_filler)
    assert endpointer.wait_ms() > 2 * SETTINGS.min_silence_ms
    deaf = said("what are your opening hours", None, settings=EndpointTuning(filler_log_odds=None))
    deaf.on_completeness(SETTINGS.complete_without_filler, filler_log_odds=-3.0)
    assert deaf.wait_ms() > 2 * SETTINGS.min_silence_ms


def test_an_early_estimate_is_enough_only_where_no_filler_was_heard():
    endpointer = Endpointer(SETTINGS)
    assert endpointer.is_complete(0.95, filler_log_odds=-3.0)
    assert not endpointer.is_complete(0.95, filler_log_odds=0.1)
    assert endpointer.is_complete(0.3, filler_log_odds=-3.0) and not endpointer.is_complete(0.3)


def test_a_filler_is_forgotten_when_the_caller_goes_on():
    endpointer = said("how long does it take stone", None)
    endpointer.on_completeness(0.95, filler_log_odds=5.0)
    endpointer.on_voice_started(1_200)
    endpointer.on_voice_stopped(2_000, silence_ms=200)
    endpointer.on_transcript(2_000, "until a transfer arrives")
    assert endpointer.wait_ms() == SETTINGS.max_silence_ms
    endpointer.on_completeness(0.95)
    assert endpointer.wait_ms() == SETTINGS.min_silence_ms


def test_a_turn_waits_for_words_that_are_owed():
    endpointer = said("what are your", 0.95)
    endpointer.on_voice_started(1_200)
    endpointer.on_words_owed(True)
    endpointer.on_voice_stopped(2_000, silence_ms=200)
    assert endpointer.next_deadline_ms() == 1_800 + SETTINGS.owed_wait_ms
    endpointer.on_transcript(6_000, "opening hours")
    # Of two utterances the second is still owed.
    assert endpointer.next_deadline_ms() == 1_800 + SETTINGS.owed_wait_ms
    endpointer.on_words_owed(False)
    deadline_ms = endpointer.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms < 6_000
    assert endpointer.text == "what are your opening hours"


def test_words_that_were_awaited_in_vain_delay_no_later_turn():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_voice_started(0)
    endpointer.on_words_owed(True)
    endpointer.on_voice_stopped(1_000, silence_ms=200)
    endpoint = endpointer.on_deadline(800 + SETTINGS.owed_wait_ms)
    assert endpoint is not None and endpoint.kind is EndpointKind.EMPTY
    endpointer.reset()
    endpointer.on_voice_started(20_000)
    endpointer.on_voice_stopped(21_000, silence_ms=200)
    assert endpointer.next_deadline_ms() == 20_800 + SETTINGS.empty_ms


def test_a_turn_for_which_no_words_come_after_all_is_empty():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_voice_started(0)
    endpointer.on_words_owed(True)
    endpointer.on_voice_stopped(1_000, silence_ms=200)
    endpointer.on_words_owed(False)
    assert endpointer.next_deadline_ms() == 800 + SETTINGS.empty_ms


def test_words_that_come_after_the_end_of_the_turn_are_decided_on_the_silence_that_has_passed():
    endpointer = said("what are your", 0.9)
    assert endpointer.on_deadline(1_900) is not None
    endpointer.reset()
    endpointer.on_transcript(3_000, "opening hours")
    endpoint = endpointer.on_deadline(3_000)
    assert endpoint is not None
    assert endpoint.kind is EndpointKind.COMPLETE
    assert endpoint.silence_ms == 2_200


def test_words_without_a_voice_that_was_noticed_are_a_turn():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_transcript(5_000, "hello")
    assert endpointer.next_deadline_ms() == 5_000 + SETTINGS.max_silence_ms


def test_words_of_a_speech_that_goes_on_end_nothing():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_voice_started(1_000)
    endpointer.on_transcript(1_500, "hello")
    assert endpointer.next_deadline_ms() is None


def test_without_an_estimate_the_longer_wait_applies():
    assert said("opening hours", None).wait_ms() == SETTINGS.max_silence_ms


def test_nothing_is_due_while_the_caller_speaks():
    endpointer = said("what are", 0.9)
    endpointer.on_voice_started(1_050)
    assert endpointer.next_deadline_ms() is None
    assert endpointer.on_deadline(9_000) is None


def test_the_decision_waits_for_the_final_words_but_not_for_ever():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_voice_stopped(1_000, silence_ms=200)
    endpointer.on_transcript(1_100, "first half")
    endpointer.on_voice_started(1_100)
    endpointer.on_voice_stopped(2_000, silence_ms=200)
    endpointer.on_completeness(0.99)
    assert endpointer.next_deadline_ms() == 2_000 + SETTINGS.transcript_wait_ms


def test_words_of_several_stretches_belong_to_one_turn():
    endpointer = said("send fifty dollars", 0.2)
    endpointer.on_voice_started(1_100)
    endpointer.on_voice_stopped(2_000, silence_ms=200)
    endpointer.on_transcript(1_100, "to my sister")
    assert endpointer.text == "send fifty dollars to my sister"


def test_a_cough_ends_as_an_empty_turn():
    endpointer = Endpointer(SETTINGS)
    endpointer.on_voice_stopped(1_000, silence_ms=200)
    due_ms = endpointer.next_deadline_ms()
    assert due_ms == 800 + SETTINGS.empty_ms
    endpoint = endpointer.on_deadline(due_ms)
    assert endpoint is not None
    assert endpoint.kind is EndpointKind.EMPTY


def test_a_possible_voice_puts_the_end_off_until_it_is_confirmed_or_not():
    endpointer = said("what are your opening hours", 0.95)
    due_ms = endpointer.next_deadline_ms()
    endpointer.on_maybe_voice(due_ms - 10)
    assert endpointer.on_deadline(due_ms) is None
    assert endpointer.next_deadline_ms() == due_ms - 10 + SETTINGS.onset_hold_ms
    assert endpointer.on_deadline(endpointer.next_deadline_ms()) is not None


def test_a_turn_ends_once():
    endpointer = said("what are your opening hours", 0.95)
    assert endpointer.on_deadline(2_000) is not None
    assert endpointer.on_deadline(3_000) is None


def test_the_endpoint_reports_the_silence_it_waited():
    endpoint = said("what are your opening hours", 0.95).on_deadline(1_300)
    assert endpoint is not None
    assert endpoint.silence_ms == 500


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_more_complete_turn_never_waits_longer(one: float, other: float):
    low, high = sorted((one, other))
    assert said("transfer it now", high).wait_ms() <= said("transfer it now", low).wait_ms()


@pytest.mark.parametrize("text", ["send it to my", "I want to send uh", "and", "because", "the"])
def test_open_clauses_hang(text: str):
    assert ends_hanging(text)


@pytest.mark.parametrize("text", ["", "what is it for", "where are you", "yes", "goodbye."])
def test_whole_clauses_do_not_hang(text: str):
    assert not ends_hanging(text)


def test_waits_out_of_order_are_refused():
    with pytest.raises(ValidationError, match="min_silence_ms"):
        EndpointTuning(min_silence_ms=900, max_silence_ms=500)
