"""Deadlines of a realtime service with a fallback."""

import pytest

from parley.core.call_events import (
    ServiceSent,
    ServiceSpoke,
    TurnEnded,
    VoiceEnded,
    VoiceStarted,
    WaitBegan,
    WaitEnded,
)
from parley.core.failover import FailoverReason
from parley.processors.duplex.service_watch import STALLED_MS, ServiceDeadlines, ServiceWatch
from parley.runtime.event_stream import CallEvents, EventScope
from tests import virtual_time


@pytest.fixture
def deadlines() -> ServiceDeadlines:
    return ServiceDeadlines(answer_ms=2_000, turn_end_ms=500)


def test_a_turn_that_the_service_ended_is_due_sooner_than_one_that_it_has_not(deadlines: ServiceDeadlines):
    deadlines.on_voice_started(1_000)
    assert deadlines.due_ms is None
    deadlines.on_voice_ended(2_000)
    assert deadlines.due_ms == 4_500
    deadlines.on_turn_ended(2_400)
    assert deadlines.due_ms == 4_400


def test_a_cough_that_the_service_does_not_report_is_owed_no_answer(deadlines: ServiceDeadlines):
    deadlines.on_voice_started(1_000)
    deadlines.on_voice_ended(1_300)
    assert deadlines.due_ms is None
    deadlines.on_turn_started(1_350)
    assert deadlines.due_ms == 3_850


def test_a_report_that_comes_before_the_voice_is_noticed_here_is_due_later(deadlines: ServiceDeadlines):
    deadlines.on_turn_started(60_000)
    assert deadlines.due_ms == 62_500
    deadlines.on_voice_started(60_100)
    assert deadlines.due_ms is None


def test_an_answer_ends_what_is_owed_and_a_stalled_reply_is_due(deadlines: ServiceDeadlines):
    deadlines.on_words(1_000)
    deadlines.on_output(1_500, is_reply_open=True)
    deadlines.on_answer()
    assert deadlines.due_ms is None
    assert deadlines.stalls_ms == 1_500 + STALLED_MS
    deadlines.on_output(1_600, is_reply_open=False)
    assert deadlines.stalls_ms is None


def test_the_watch_reports_a_missing_answer_and_that_the_caller_waits_for_it(deadlines: ServiceDeadlines):
    async def wait() -> tuple[FailoverReason, int, list[type]]:
        whole = CallEvents()
        waits: list[type] = []
        whole.subscribe(WaitBegan, lambda event: waits.append(type(event)))
        whole.subscribe(WaitEnded, lambda event: waits.append(type(event)))
        scope = EventScope(whole)
        watch = ServiceWatch(deadlines, scope, is_playing=lambda: False)
        began_ms = whole.now_ms()
        whole.publish(VoiceStarted(began_ms - 1_000, 0))
        whole.publish(VoiceEnded(began_ms, 128))
        whole.publish(TurnEnded(began_ms, ""))
        reason = await watch.run()
        watch.close()
        return reason, whole.now_ms() - began_ms, waits

    reason, after_ms, waits = virtual_time.run(wait())
    assert (reason, after_ms) == (FailoverReason.LATE, 2_000)
    assert waits == [WaitBegan, WaitEnded]


def test_a_reply_that_stops_has_stalled_when_all_of_it_was_played(deadlines: ServiceDeadlines):
    async def wait() -> tuple[FailoverReason, int]:
        events = CallEvents()
        began_ms = events.now_ms()
        watch = ServiceWatch(deadlines, events, is_playing=lambda: events.now_ms() - began_ms < 3_000)
        events.publish(ServiceSpoke(began_ms))
        events.publish(ServiceSent(began_ms, is_reply_open=True))
        return await watch.run(), events.now_ms() - began_ms

    reason, after_ms = virtual_time.run(wait())
    assert reason is FailoverReason.STALLED
    assert 3_000 <= after_ms <= 3_100
