"""Report of a call's use of a realtime service to its circuit breaker."""

from parley.core.failover import FailoverReason
from parley.pipelines.engines.service_fallbacks import new_breaker
from parley.processors.duplex.service_probe import RealtimeProbe
from parley.processors.speech.failover_voice import COOL_DOWN_MS


class Calls:
    """Calls of one process, at times that the test chooses."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.breaker = new_breaker()

    def call(self) -> RealtimeProbe:
        return RealtimeProbe(self.breaker, lambda: self.at_ms)


def test_after_an_error_other_calls_begin_without_the_service_and_one_probes_it_later():
    calls = Calls()
    first = calls.call()
    assert first.begin()
    first.on_failed(FailoverReason.ERROR)
    assert not calls.call().begin()
    calls.at_ms = COOL_DOWN_MS
    probe = calls.call()
    assert probe.begin()
    assert not calls.call().begin()
    probe.on_works()
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
