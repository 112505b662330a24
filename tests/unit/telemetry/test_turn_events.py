"""The turn log of a call, written from its events."""

import pytest

from parley.core.call_events import (
    AnsweredAhead,
    AnswerHeard,
    CallEvent,
    EngineFailedOver,
    FinalWords,
    ReplyResumed,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    ToolsCalled,
    TurnEndDecided,
    TurnEnded,
    TurnTranscribed,
    WaitMasked,
    WordsAccepted,
)
from parley.core.failover import FailoverReason
from parley.runtime.event_stream import CallEvents
from parley.telemetry.engine_names import REALTIME_SECTION
from parley.telemetry.turn_events import TurnLogWriter
from parley.telemetry.turns import TurnLog
from tests import virtual_time

LOUD = b"\x00\x20" * 320


def written(*events: CallEvent, judges_words: bool = True, waits: list[int] | None = None) -> TurnLog:
    """Return a log after a sound of the caller and these events."""

    async def scenario() -> TurnLog:
        reported = waits if waits is not None else []
        stream = CallEvents()
        stream.subscribe(AnswerHeard, lambda event: reported.append(event.latency_ms))
        log = TurnLog(stream)
        TurnLogWriter(log, stream, judges_words=judges_words)
        log.heard(LOUD)
        for event in events:
            stream.publish(event)
        log.played(LOUD)
        assert stream.failures == 0
        return log

    return virtual_time.run(scenario())


ENDED = TurnEndDecided(0, 210, 0.9)


def test_an_answer_reaches_its_marks_in_order():
    log = written(
        WordsAccepted(0),
        ENDED,
        TurnEnded(0, "what is it"),
        ResponseText(0, "It is"),
        SpeechStarted(0),
        SpeechMade(0),
    )
    assert list(log.current.marks_us) == [
        "speech_end", "transcript", "endpoint", "llm_first_token", "first_clause", "tts_first_audio",
        "playout",
    ]  # fmt: skip
    assert (log.current.user_text, log.current.endpoint_silence_ms) == ("what is it", 210)


@pytest.mark.parametrize("judges_words", [True, False])
def test_final_words_count_at_once_where_no_stage_judges_them(judges_words: bool):
    log = written(FinalWords(0, "mhm", None), ENDED, judges_words=judges_words)
    assert ("transcript" in log.current.marks_us) == (not judges_words)


def test_after_a_realtime_service_a_stage_of_the_cascade_names_the_words_that_count():
    failed_over = EngineFailedOver(0, REALTIME_SECTION, "openai", "cascade", FailoverReason.ERROR)
    log = written(failed_over, FinalWords(0, "mhm", None), ENDED, judges_words=False)
    assert "transcript" not in log.current.marks_us
    log = written(failed_over, WordsAccepted(0), ENDED, judges_words=False)
    assert "transcript" in log.current.marks_us


def test_a_turn_without_words_leaves_none_and_one_that_is_written_down_later_has_them():
    assert written(ENDED, TurnEnded(0, "")).current.user_text == ""
    assert (
        written(ENDED, TurnEnded(0, ""), TurnTranscribed(0, "what is it")).current.user_text == "what is it"
    )


def test_typed_text_is_a_turn_of_its_own():
    assert written(TextTyped(0, "what is it")).current.user_text == "what is it"


def test_what_covers_or_precedes_an_answer_is_noted():
    current = written(ENDED, WaitMasked(0), AnsweredAhead(0), ReplyResumed(0, 3)).current
    assert (current.masked, current.answered_ahead, current.resumed) == (True, True, True)


@pytest.mark.parametrize(("tools", "count"), [((), 1), ((ToolsCalled(0),), 0)])
def test_an_answer_that_waited_for_a_tool_is_not_compared_with_others(
    tools: tuple[CallEvent, ...], count: int
):
    waits: list[int] = []
    written(ENDED, *tools, SpeechMade(0), waits=waits)
    assert len(waits) == count
