"""Report of one call's use of a realtime service to the circuit breaker that all calls share."""

from parley.core.call_events import ServiceSpoke
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.runtime.event_stream import CallEvents


class RealtimeProbe:
    """Use of a service by one call, as its circuit breaker is notified of it.

    Args:
        breaker: shared by all calls.
        events: events of the call.
    """

    def __init__(self, breaker: CircuitBreaker, events: CallEvents) -> None:
        self._breaker, self._now_ms = breaker, events.now_ms
        self._began_ms = 0
        self._is_probe = False
        events.subscribe(ServiceSpoke, self._on_service_spoke)

    def begin(self) -> bool:
        """Return whether the call may use the service."""
        self._began_ms = self._now_ms()
        if not self._breaker.is_closed:
            self._is_probe = self._breaker.take_probe(self._began_ms)
            return self._is_probe
        return True

    def _on_service_spoke(self, _event: ServiceSpoke) -> None:
        self._is_probe = False
        self._breaker.on_success(self._began_ms)

    def on_failed(self, reason: FailoverReason) -> None:
        """Note that it has failed. A missing answer may only have been slow."""
        self._is_probe = False
        if reason is FailoverReason.LATE:
            self._breaker.on_doubt(self._now_ms())
        else:
            self._breaker.on_failure(self._now_ms())

    def abandon(self) -> None:
        """Let other calls probe the service: nothing is known of it here."""
        if self._is_probe:
            self._is_probe = False
            self._breaker.on_abandoned()
