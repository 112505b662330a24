"""Reports of a client about the latency that its user hears."""

from typing import Any

import numpy as np
import pytest

from parley.core.call_events import LatencyHeard
from parley.pipelines.call import LiveCall
from parley.pipelines.latency_reports import BURST, LatencyReports
from parley.runtime.loop_clock import LoopClock

REPORT = {"heard_ms": 700, "round_trip_ms": 2, "jitter_buffer_ms": 40, "output_ms": 12}
LOUD = (8_000 * np.sin(np.arange(960) / 5)).astype("<i2").tobytes()


class ReportedCall:
    """A call whose client reports.

    Attributes:
        turns: log of its turns.
        reports: receiver of the reports.
        heard: events of them.
    """

    def __init__(self) -> None:
        live = LiveCall(LoopClock(), rate_hz=16_000)
        self.turns, self.reports = live.turns, LatencyReports(live)
        self.heard: list[LatencyHeard] = []
        live.events.subscribe(LatencyHeard, self.heard.append)

    def answer(self) -> None:
        """Let the caller speak a turn, and the answer begin to leave."""
        self.turns.heard(LOUD)
        self.turns.user_turn_ended(silence_ms=300, completeness=None)
        self.turns.user_said("hello")
        self.turns.mark("tts_first_audio")
        self.turns.played(LOUD)


async def test_a_report_has_the_turn_that_was_answered_and_the_servers_figures():
    call = ReportedCall()
    call.answer()
    call.reports.take(REPORT)
    (heard,) = call.heard
    assert (heard.turn, heard.heard_ms, heard.jitter_buffer_ms) == (1, 700, 40)
    assert sum(ms for _, ms in heard.stages_ms) == pytest.approx(heard.server_ms, abs=1.5)


async def test_a_report_may_come_after_the_end_of_a_short_answer():
    call = ReportedCall()
    call.answer()
    call.turns.bot_said("Yes.", interrupted=False)
    call.turns.close()
    call.reports.take(REPORT)
    assert [each.turn for each in call.heard] == [1]


async def test_a_turn_is_reported_once_and_nothing_else_is_a_turn():
    call = ReportedCall()
    call.reports.take(REPORT)
    call.turns.user_typed("typed")
    call.turns.mark("tts_first_audio")
    call.turns.played(LOUD)
    call.reports.take(REPORT)
    assert call.heard == []
    call.answer()
    call.reports.take(REPORT)
    call.reports.take(REPORT)
    assert [each.turn for each in call.heard] == [2]


@pytest.mark.parametrize(
    "data",
    [
        None,
        "700",
        {},
        {**REPORT, "heard_ms": -1},
        {**REPORT, "heard_ms": 60_001},
        {**REPORT, "more": 1},
        {**REPORT, "output_ms": "x" * 100_000},
    ],
)
async def test_what_is_no_report_is_dropped(data: Any):
    call = ReportedCall()
    call.answer()
    call.reports.take(data)
    assert call.heard == []


async def test_reports_are_limited_in_their_rate():
    call = ReportedCall()
    for _ in range(3 * BURST):
        call.answer()
        call.reports.take(REPORT)
    assert BURST <= len(call.heard) <= BURST + 1
