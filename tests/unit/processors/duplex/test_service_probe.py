"""Report of a call's use of a realtime service to its circuit breaker."""

from parley.core.call_events import ServiceSpoke
from parley.core.failover import FailoverReason
from parley.pipelines.engines.service_fallbacks import new_breaker
from parley.processors.duplex.service_probe import RealtimeProbe
from parley.processors.speech.failover_voice import COOL_DOWN_MS
from parley.runtime.event_stream import CallEvents


class Calls:
    """Calls of one process, at times that the test chooses."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.breaker = new_breaker()
        self.events = CallEvents(self)

    def now_us(self) -> int:
        return self.at_ms * 1_000

    def now_ms(self) -> int:
        return self.at_ms

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        self.at_ms = deadline_ms

    def call(self) -> RealtimeProbe:
        # A stream for each call.
        self.events = CallEvents(self)
        return RealtimeProbe(self.breaker, self.events)


def test_after_an_error_other_calls_begin_without_the_service_and_one_probes_it_later():
    calls = Calls()
    first = calls.call()
    assert first.begin()
    first.on_failed(FailoverReason.ERROR)
    assert not calls.call().begin()
    calls.at_ms = COOL_DOWN_MS
    probe, events = calls.call(), calls.events
    assert probe.begin()
    assert not calls.call().begin()
    events.publish(ServiceSpoke(calls.at_ms))
    assert calls.call().begin()


def test_a_probe_that_fails_doubles_the_wait_and_one_that_is_abandoned_does_not():
    calls = Calls()
    first = calls.call()
    first.begin()
    first.on_failed(FailoverReason.STALLED)
    calls.at_ms = COOL_DOWN_MS
    silent = calls.call()
    assert silent.begin()
    silent.abandon()
    probe = calls.call()
    assert probe.begin()
    probe.on_failed(FailoverReason.LATE)
    calls.at_ms += COOL_DOWN_MS
    assert not calls.call().begin()
    calls.at_ms += COOL_DOWN_MS
    assert calls.call().begin()


def test_one_missing_answer_leaves_the_service_to_other_calls_and_a_second_one_does_not():
    calls = Calls()
    for is_left in (True, False):
        slow = calls.call()
        assert slow.begin()
        slow.on_failed(FailoverReason.LATE)
        assert calls.call().begin() is is_left
