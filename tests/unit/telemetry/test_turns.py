import numpy as np
import pytest

from parley.core.call_events import AnswerHeard
from parley.runtime.event_stream import CallEvents
from parley.telemetry.turns import MARKS, TurnLog, TurnRecord

LOUD = (np.ones(320) * 3_000).astype("<i2").tobytes()
QUIET = bytes(640)


class Now:
    def __init__(self) -> None:
        self.us = 0

    def __call__(self) -> int:
        return self.us

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        self.us = deadline_ms * 1_000


@pytest.fixture
def now() -> Now:
    return Now()


def heard_answers(now: Now) -> tuple[CallEvents, list[AnswerHeard]]:
    """Return a stream and the list that receives the answers of it."""
    events, heard = CallEvents(now), list[AnswerHeard]()
    events.subscribe(AnswerHeard, heard.append)
    return events, heard


def answered(log: TurnLog, now: Now) -> TurnRecord:
    """Log one spoken turn, a stage every 10 ms, and return its record."""
    log.heard(LOUD)
    now.us += 200_000
    log.heard(QUIET)
    log.words_arrived()
    now.us += 10_000
    log.user_turn_ended(silence_ms=210, completeness=0.9)
    log.user_said("what is it")
    for mark in ("llm_first_token", "first_clause", "tts_first_audio"):
        now.us += 10_000
        log.mark(mark)
    now.us += 10_000
    log.played(QUIET)
    log.played(LOUD)
    log.bot_said("It is this.", interrupted=False)
    log.close()
    return log.drain()[-1]


def test_spans_add_up_to_the_way_from_speech_to_playout(now: Now):
    record = answered(TurnLog(now_us=now), now)
    assert list(record.marks_us) != []
    total_ms = (record.marks_us["playout"] - record.marks_us["speech_end"]) / 1000
    assert sum(record.spans_ms().values()) == pytest.approx(total_ms)
    assert record.spans_ms()["stt_final"] == 200


def test_the_wait_for_an_answer_is_reported_when_it_is_heard(now: Now):
    events, heard = heard_answers(now)
    record = answered(TurnLog(events, now_us=now), now)
    assert heard == [AnswerHeard(250, 250, tuple(record.spans_ms().items()))]


def test_a_phrase_that_covers_the_wait_is_no_answer(now: Now):
    events, heard = heard_answers(now)
    log = TurnLog(events, now_us=now)
    log.heard(LOUD)
    log.user_turn_ended(silence_ms=210, completeness=0.9)
    log.masked()
    log.mark("tts_first_audio")
    log.played(LOUD)
    assert heard == []


def test_an_answer_that_waited_for_a_tool_is_not_compared_with_others(now: Now):
    events, heard = heard_answers(now)
    log = TurnLog(events, now_us=now)
    log.heard(LOUD)
    log.user_turn_ended(silence_ms=210, completeness=0.9)
    log.tools_called()
    log.mark("tts_first_audio")
    log.played(LOUD)
    assert heard == []
    # The next turn is answered like others.
    answered(log, now)
    assert [each.latency_ms for each in heard] == [250]


def test_the_end_of_speech_is_the_last_audible_audio(now: Now):
    record = answered(TurnLog(now_us=now), now)
    assert record.marks_us["endpoint"] - record.marks_us["speech_end"] == 210_000


def test_a_soft_last_sound_across_two_packets_is_the_end_of_speech(now: Now):
    log = TurnLog(now_us=now)
    log.heard(LOUD)
    now.us = 100_000
    log.heard(QUIET)
    # 30 ms at -44 dBFS, half of it in each packet: neither is at -45 dBFS as a whole.
    sound = np.zeros(640, dtype="<i2")
    sound[80:560] = 32_767 * 10 ** (-44 / 20)
    for packet in (sound[:320], sound[320:]):
        now.us += 20_000
        log.heard(packet.tobytes())
    now.us += 200_000
    log.user_turn_ended(silence_ms=210, completeness=0.9)
    assert log.current.marks_us["speech_end"] == 140_000


def test_the_end_of_speech_is_found_wherever_the_audio_is_divided(now: Now):
    log = TurnLog(now_us=now)
    for number in range(200):
        now.us = 20_000 * number
        log.heard((LOUD if number <= 137 else QUIET)[:640])
    log.user_turn_ended(silence_ms=210, completeness=0.9)
    assert log.current.marks_us["speech_end"] == 137 * 20_000


def test_a_missing_mark_lends_its_time_to_the_next_span():
    marks = {name: index * 10_000 for index, name in enumerate(MARKS)}
    del marks["first_clause"]
    spans = TurnRecord(turn=1, marks_us=marks).spans_ms()
    assert "first_clause" not in spans
    assert sum(spans.values()) == 60


def test_the_first_report_of_a_mark_counts(now: Now):
    log = TurnLog(now_us=now)
    log.mark("first_clause")
    now.us = 5
    log.mark("first_clause")
    assert log.current.marks_us == {"first_clause": 0}


def test_silence_is_not_playout(now: Now):
    log = TurnLog(now_us=now)
    log.mark("tts_first_audio")
    log.played(QUIET)
    assert "playout" not in log.current.marks_us


def test_typed_text_is_a_turn_of_its_own(now: Now):
    log = TurnLog(now_us=now)
    log.user_typed("hello")
    log.bot_said("Hi.", interrupted=False)
    log.close()
    assert [(record.turn, record.user_text, record.bot_text) for record in log.finished] == [
        (1, "hello", "Hi.")
    ]


def test_a_turn_without_words_leaves_no_record(now: Now):
    log = TurnLog(now_us=now)
    log.user_turn_ended(silence_ms=1_500, completeness=None)
    log.close()
    assert log.drain() == []


def test_memory_is_bounded(now: Now):
    log = TurnLog(keep=10, now_us=now)
    for number in range(100):
        log.user_typed(str(number))
    assert len(tuple(log.finished)) == 10
    assert len(log.drain()) <= 10


def test_idleness_counts_from_the_last_sound_of_either_side(now: Now):
    wall = Now()
    log = TurnLog(now_us=wall, steady_us=now)
    now.us = 1_000_000
    log.heard(LOUD)
    now.us = 2_000_000
    log.heard(QUIET)
    assert log.idle_ms() == 1_000
    wall.us = 10**15  # The wall clock was set
    assert log.idle_ms() == 1_000
    log.played(LOUD)
    assert log.idle_ms() == 0


def test_who_writes_is_not_idle(now: Now):
    log = TurnLog(now_us=Now(), steady_us=now)
    now.us = 5_000_000
    log.user_typed("hello")
    now.us = 6_000_000
    assert log.idle_ms() == 1_000
