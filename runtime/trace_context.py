"""Context of the trace of a call, for engines that pass it on to another process.

The observer that makes the spans writes the ``traceparent`` (W3C Trace Context) of the open ones; a client of
a worker reads the one of its stage and sends it with its request. The call's tasks inherit the object from
the task that opened the call, and threads that work for them get it with their job. Without traces there is
none. Nothing is added to a request then, nor to one of a turn that is not sampled.
"""

from contextvars import ContextVar

from parley.core.usage import Stage

TRACEPARENT = "traceparent"


class CallTrace:
    """Open spans of one call. Written by the loop; threads may read."""

    def __init__(self) -> None:
        self._turn: str | None = None
        self._stages: dict[Stage, str] = {}

    def turn_began(self, traceparent: str) -> None:
        """Record the span of a turn."""
        self._turn = traceparent

    def turn_ended(self) -> None:
        """Forget the span of the turn, and those below it."""
        self._turn = None
        self._stages.clear()

    def stage_began(self, stage: Stage, traceparent: str) -> None:
        """Record the span of a stage."""
        self._stages[stage] = traceparent

    def stage_ended(self, stage: Stage) -> None:
        """Forget the span of a stage."""
        self._stages.pop(stage, None)

    def facts(self, stage: Stage) -> dict[str, str]:
        """Return what a request of a stage adds to its facts: the span of the stage, or that of the turn."""
        parent = self._stages.get(stage) or self._turn
        return {} if parent is None else {TRACEPARENT: parent}


_CURRENT: ContextVar[CallTrace | None] = ContextVar("parley.call_trace", default=None)


def open_call_trace() -> CallTrace:
    """Begin the trace of a call, for the present task and those that it starts."""
    trace = CallTrace()
    _CURRENT.set(trace)
    return trace


def call_trace() -> CallTrace | None:
    """Return the trace of the call for which the present task or thread works; None without traces."""
    return _CURRENT.get()


def trace_facts(stage: Stage) -> dict[str, str]:
    """Return what a request of a stage adds to its facts, for the call of the present task or thread."""
    trace = call_trace()
    return {} if trace is None else trace.facts(stage)
