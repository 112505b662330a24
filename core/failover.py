"""Failover of an engine: its reasons, and the circuit breaker that spares callers a broken service.

The breaker decides when a service is tried again, from outcomes and moments that its owners report. It reads
no clock, and several calls may share one. A failure opens it for a cool-down, which doubles with every failed
probe up to a limit; then one probe at a time is due. A success closes it. A doubt is a use that was given up
and may only have been slow: the second one within ``DOUBT_MS`` counts as a failure. Pure.
"""

from enum import Enum, StrEnum, auto

from parley.core.errors import IllegalTransition

# One slow answer in a minute, of all calls that share a service, is no reason to leave it.
DOUBT_MS = 60_000


class FailoverReason(StrEnum):
    """Reason for which another engine goes on in place of the one so far."""

    # It reported an error, or its connection was refused or lost.
    ERROR = "error"
    # Nothing came before the deadline of its first result.
    LATE = "late"
    # It stopped in the middle of a result.
    STALLED = "stalled"
    # It answered, without sound or without words.
    SILENT = "silent"
    # It had failed before this use, here or in another call, and is not tried yet.
    BROKEN = "broken"
    # The engine that failed works again, and goes on in place of its fallback.
    RECOVERED = "recovered"


class CircuitState(Enum):
    """State of a circuit breaker."""

    CLOSED = auto()
    OPEN = auto()
    PROBING = auto()


class CircuitStep(Enum):
    """Event of a circuit breaker."""

    BROKE = auto()
    PROBED = auto()
    ABANDONED = auto()
    WORKED = auto()


TRANSITIONS: dict[tuple[CircuitState, CircuitStep], CircuitState] = {
    (CircuitState.CLOSED, CircuitStep.BROKE): CircuitState.OPEN,
    (CircuitState.CLOSED, CircuitStep.WORKED): CircuitState.CLOSED,
    # A use that began before the breaker opened may end after it.
    (CircuitState.OPEN, CircuitStep.BROKE): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitStep.WORKED): CircuitState.CLOSED,
    (CircuitState.OPEN, CircuitStep.PROBED): CircuitState.PROBING,
    (CircuitState.PROBING, CircuitStep.BROKE): CircuitState.OPEN,
    (CircuitState.PROBING, CircuitStep.WORKED): CircuitState.CLOSED,
    (CircuitState.PROBING, CircuitStep.ABANDONED): CircuitState.OPEN,
}


class CircuitBreaker:
    """Circuit breaker of a model or service. Each provider has one; calls may share it.

    Args:
        max_failures: failures in a row that open it.
        cool_down_ms: time from its opening until it is tried again.
        longest_cool_down_ms: bound of the cool-down, which doubles while it does not work; None: it stays the
            same.
    """

    def __init__(
        self, *, max_failures: int, cool_down_ms: int, longest_cool_down_ms: int | None = None
    ) -> None:
        self._max_failures = max_failures
        self._first_cool_down_ms = self._cool_down_ms = cool_down_ms
        self._longest_cool_down_ms = longest_cool_down_ms or cool_down_ms
        self._state = CircuitState.CLOSED
        self._failures = 0
        self._opened_ms = self._due_ms = 0
        self._doubted_ms: int | None = None

    @property
    def state(self) -> CircuitState:
        """Present state."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """True when the service is in use."""
        return self._state is CircuitState.CLOSED

    @property
    def due_ms(self) -> int:
        """Moment at which its last cool-down is over."""
        return self._due_ms

    def allows(self, at_ms: int) -> bool:
        """Return whether the service may be used: it works, or its cool-down is over."""
        return self.is_closed or at_ms >= self._due_ms

    def take_probe(self, at_ms: int) -> bool:
        """Return whether the caller is to probe the service now, and report the outcome.

        One probe is under way at a time.
        """
        if self._state is not CircuitState.OPEN or at_ms < self._due_ms:
            return False
        self._step(CircuitStep.PROBED)
        return True

    def on_abandoned(self) -> None:
        """Record that a probe ended without an outcome, with its call. The next one is due at once."""
        # The outcome of another use may have come first.
        if self._state is CircuitState.PROBING:
            self._step(CircuitStep.ABANDONED)

    def on_failure(self, at_ms: int) -> None:
        """Record a use or a probe that failed."""
        self._failures += 1
        if self._failures < self._max_failures:
            return
        if self._state is CircuitState.OPEN and at_ms < self._due_ms:
            # A use that began before it opened: not one more failure after a cool-down.
            return
        if not self.is_closed:
            self._cool_down_ms = min(2 * self._cool_down_ms, self._longest_cool_down_ms)
        self._step(CircuitStep.BROKE)
        self._opened_ms, self._due_ms = at_ms, at_ms + self._cool_down_ms

    def on_doubt(self, at_ms: int) -> None:
        """Record a use that was given up and may only have been slow.

        A success in between does not count: a service whose answers are late succeeds at other times.
        """
        doubted_ms, self._doubted_ms = self._doubted_ms, at_ms
        if not self.is_closed or (doubted_ms is not None and at_ms - doubted_ms < DOUBT_MS):
            self._doubted_ms = None
            self.on_failure(at_ms)

    def on_success(self, began_ms: int) -> None:
        """Record a use or a probe that worked.

        A use that began before the breaker opened does not close it: its connection may be
        older than the failure.
        """
        if not self.is_closed and began_ms < self._opened_ms:
            return
        self._failures = 0
        self._cool_down_ms = self._first_cool_down_ms
        self._step(CircuitStep.WORKED)

    def _step(self, step: CircuitStep) -> None:
        following = TRANSITIONS.get((self._state, step))
        if following is None:
            raise IllegalTransition(self._state, step)
        self._state = following
