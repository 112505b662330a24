"""The failures of calls that an operator sees: by kind, with the last reason and time."""

from parley.core.call_events import (
    CallEvent,
    EngineFailed,
    EngineFailedOver,
    FallbackAnswers,
    RecordingDegraded,
)
from parley.core.failover import FailoverReason
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents
from parley.telemetry.failure_log import MOST_ENTRIES, MOST_REASON_CHARS, CallFailures, FailureLog

ENGINES = {Stage.STT: "deepgram", Stage.LLM: "anthropic", Stage.TTS: "elevenlabs"}


def failed(*failures: CallEvent) -> list[tuple[object, ...]]:
    """Return the entries after these events, which come a second apart."""
    moments = iter(range(100, 200))
    log = FailureLog(lambda: next(moments))
    events = CallEvents()
    call = CallFailures(events, log, ENGINES)
    for each in failures:
        events.publish(each)
    call.close()
    assert events.failures == 0
    return [
        (each.kind, each.stage, each.engine, each.successor, each.reason, each.count, each.last_s)
        for each in log.entries()
    ]


def test_the_same_failure_is_counted_with_its_last_reason_and_time():
    late = EngineFailedOver(1, "hearing", "deepgram", "moonshine", FailoverReason.LATE)
    lost = EngineFailedOver(2, "hearing", "deepgram", "moonshine", FailoverReason.ERROR)
    assert failed(late, FallbackAnswers(1, "timeout"), lost) == [
        ("failover", "hearing", "deepgram", "moonshine", "error", 2, 103),
        ("failover", "llm", "anthropic", "", "timeout", 1, 102),
    ]


def test_errors_recoveries_and_losses_of_recordings_are_kinds_of_their_own():
    found = failed(
        EngineFailed(1, Stage.TTS),
        EngineFailed(1, None),
        EngineFailedOver(2, "speaking", "hibari", "elevenlabs", FailoverReason.RECOVERED),
        RecordingDegraded(3, "the disk is full" + "!" * 500, 40),
    )
    assert [entry[:4] for entry in found] == [
        ("degraded", "recording", "", ""),
        ("recovered", "speaking", "hibari", "elevenlabs"),
        ("error", "other", "", ""),
        ("error", "tts", "elevenlabs", ""),
    ]
    assert len(str(found[0][4])) == MOST_REASON_CHARS


def test_the_oldest_kinds_make_room():
    log = FailureLog()
    for number in range(MOST_ENTRIES + 5):
        log.add("error", "llm", engine=str(number))
    entries = log.entries()
    assert len(entries) == MOST_ENTRIES
    assert (entries[0].engine, entries[-1].engine) == (str(MOST_ENTRIES + 4), "5")
