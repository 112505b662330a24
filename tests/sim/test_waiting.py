"""Audio of a caller who waits, on virtual time: bounded waits, no silence at first, and an end."""

import asyncio
import sqlite3
from pathlib import Path

from parley.core.errors import EngineError
from parley.session_store.events import Kind
from tests.sim.call import OFF, RunningCall, silence, simulate, voice

# The caller stops speaking at 1.5 s.
ASKED_MS = 1_500
QUESTION = [silence(500), voice(1_000), silence(1_500)]


def test_a_database_that_is_away_for_five_minutes_is_told_and_then_given_up_and_loses_nothing(tmp_path: Path):
    async def disturb(_running: RunningCall) -> None:
        connection = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
        await asyncio.sleep(1)
        connection.execute("BEGIN EXCLUSIVE")
        await asyncio.sleep(300)
        connection.rollback()
        connection.close()

    call = simulate(
        [*QUESTION, silence(307_000)],
        tmp_path,
        concurrently=disturb,
        bot={"idle_timeout_ms": 600_000},
        speculation=OFF,
    )
    *waiting, answer = call.bot_spans_ms()
    # Four fillers, one sentence about the delay, one apology, and the answer once it is possible.
    assert len(waiting) == 6
    lengths_ms = [end - start for start, end in waiting]
    assert all(length < 500 for length in lengths_ms[:4]) and min(lengths_ms[4:]) > 900
    assert waiting[0][0] - ASKED_MS < 1_300
    in_hope = [span for span in waiting if span[0] < ASKED_MS + 30_000]
    assert len(in_hope) == 5
    silences_ms = [later - earlier for (_, earlier), (later, _) in zip(in_hope, in_hope[1:], strict=False)]
    assert silences_ms[0] < silences_ms[1] < silences_ms[2]
    assert max(silences_ms) <= 9_000
    assert 60_000 < waiting[5][0] - ASKED_MS < 62_000
    assert 301_000 < answer[0] < 306_000
    assert len(call.model.asked) == 1
    [reply] = [event for event in call.events if event.kind is Kind.BOT_TURN]
    assert reply.payload["text"] == "The answer is yes. That is all."
    assert [event.seq for event in call.events] == list(range(1, len(call.events) + 1))


def test_a_cough_while_the_database_is_away_does_not_leave_the_caller_in_silence(tmp_path: Path):
    async def disturb(_running: RunningCall) -> None:
        connection = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
        await asyncio.sleep(1)
        connection.execute("BEGIN EXCLUSIVE")
        await asyncio.sleep(30)
        connection.rollback()
        connection.close()

    caller = [*QUESTION, silence(1_000), voice(160), silence(40_000)]
    call = simulate(caller, tmp_path, concurrently=disturb, speculation=OFF)
    *waiting, answer = call.bot_spans_ms()
    assert 31_000 < answer[0] < 34_000
    spans = [*waiting, answer]
    assert all(later - earlier <= 9_000 for (_, earlier), (later, _) in zip(spans, spans[1:], strict=False))
    assert len(call.model.asked) == 1


def test_a_model_that_takes_seven_seconds_does_not_leave_the_caller_in_silence(tmp_path: Path):
    call = simulate([*QUESTION, silence(12_000)], tmp_path, scripts=((7.0, "The answer is yes."),))
    mask, filler, answer = call.bot_spans_ms()
    assert 700 <= mask[0] - ASKED_MS < 1_300
    assert 4_500 < filler[0] - ASKED_MS < 5_500
    assert 7_000 < answer[0] - ASKED_MS < 9_000
    # Fillers are not part of the conversation.
    [reply] = [event for event in call.events if event.kind is Kind.BOT_TURN]
    assert reply.payload["text"] == "The answer is yes."
    assert [turn.masked for turn in call.turns] == [True]


def test_slow_answers_are_covered_at_700_ms_once_they_are_known_to_be_slow(tmp_path: Path):
    caller = [silence(500), *[voice(1_000), silence(5_000)] * 3]
    call = simulate(caller, tmp_path, scripts=((1.5, "Yes."),) * 3)
    spans = call.bot_spans_ms()
    assert len(spans) == 6
    masks_ms = [spans[2 * turn][0] - (1_500 + 6_000 * turn) for turn in range(3)]
    # The first filler waits for an answer that might be quick.
    assert 700 <= masks_ms[0] < 1_300
    assert all(600 <= mask_ms <= 760 for mask_ms in masks_ms[1:])
    # The phrase has ended before the answer begins, so it is not cut.
    assert all(spans[2 * turn][1] <= spans[2 * turn + 1][0] for turn in range(3))


def test_quick_answers_are_never_covered_however_late_the_turn_ended(tmp_path: Path):
    caller = [silence(500), *[voice(1_000), silence(4_000)] * 3]
    call = simulate(caller, tmp_path, scripts=((0.1, "Yes."),) * 3)
    assert len(call.bot_spans_ms()) == 3
    assert not any(turn.masked for turn in call.turns)


def test_a_model_that_fails_and_has_no_fallback_is_apologised_for(tmp_path: Path):
    script = (EngineError("no thread", engine="scripted"),)
    call = simulate([*QUESTION, silence(6_000)], tmp_path, scripts=[script])
    [(start_ms, _)] = call.bot_spans_ms()
    assert start_ms - ASKED_MS < 1_300
    assert [event for event in call.events if event.kind is Kind.BOT_TURN] == []


def test_an_answer_that_comes_in_time_is_not_talked_over(tmp_path: Path):
    call = simulate([*QUESTION, silence(6_000)], tmp_path, scripts=((0.3, "The answer is yes."),))
    assert len(call.bot_spans_ms()) == 1


def test_without_masking_an_answer_that_takes_two_seconds_is_waited_for(tmp_path: Path):
    scripts = ((2.0, "The answer is yes."),)
    guard = {"waiting": {"masking": None}}
    call = simulate([*QUESTION, silence(6_000)], tmp_path, scripts=scripts, guard=guard)
    assert len(call.bot_spans_ms()) == 1
