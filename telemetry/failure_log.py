"""Failures of a process, for its operator: what failed, how often, when last, and why.

Input: the events of calls that the metrics count too (``telemetry.call_metrics``). Output: one entry for each
kind of failure, the newest first. The number of entries is bounded: engines have names of the deployment,
and further ones take the place of the oldest. An entry has reasons of this program, and no words of a caller.
The state of circuit breakers and of engine processes is read from these themselves (``CircuitReading``,
``EngineProcessReading``).
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from parley.core.call_events import EngineFailed, EngineFailedOver, FallbackAnswers, RecordingDegraded
from parley.core.failover import FailoverReason
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents

MOST_ENTRIES = 100
# Of a reason: the recorder's are sentences.
MOST_REASON_CHARS = 200
# Stage of entries that are of no engine.
RECORDING, OTHER = "recording", "other"


@dataclass(frozen=True, slots=True)
class FailureEntry:
    """Failures of one kind.

    Attributes:
        kind: "error" that an engine reported, "failover" to another engine, "recovered" from one, or
            "degraded" for a recording.
        stage: stage, or section of the deployment, of the engine; "recording" for a recording.
        engine: name of its row; empty where the event names none.
        successor: engine that went on; empty for none.
        reason: of the last one; empty where none is known.
        count: number so far.
        last_s: Unix time of the last one.
    """

    kind: str
    stage: str
    engine: str
    successor: str
    reason: str
    count: int
    last_s: float


@dataclass(frozen=True, slots=True)
class CircuitReading:
    """State of the circuit breaker of an engine.

    Attributes:
        stage: stage of the engine, or "realtime".
        engine: name of its row.
        state: "closed" while it is in use, "open" while its fallback answers, "probing" while it is tried.
        retry_ms: time until it is tried again; 0 unless it is open.
    """

    stage: str
    engine: str
    state: str
    retry_ms: int


@dataclass(frozen=True, slots=True)
class EngineProcessReading:
    """State of a child process with an engine.

    Attributes:
        engine: name of its row.
        is_ready: it works now.
        restarts: number of restarts so far.
        ended_s: Unix time of the last end that a restart followed; None without one.
        reason: of that end; empty where none is known.
    """

    engine: str
    is_ready: bool
    restarts: int
    ended_s: float | None
    reason: str


class FailureLog:
    """Failures of the calls of one process since its start.

    Args:
        now_s: reads the wall clock.

    Attributes:
        since_s: Unix time of its start.
    """

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self.since_s = now_s()
        self._entries: OrderedDict[tuple[str, ...], FailureEntry] = OrderedDict()

    def add(self, kind: str, stage: str, *, engine: str = "", successor: str = "", reason: str = "") -> None:
        """Count a failure; its entry becomes the newest."""
        key = kind, stage, engine, successor
        before = self._entries.pop(key, FailureEntry(*key, "", 0, 0.0))
        self._entries[key] = replace(
            before, reason=reason[:MOST_REASON_CHARS], count=before.count + 1, last_s=self._now_s()
        )
        while len(self._entries) > MOST_ENTRIES:
            self._entries.popitem(last=False)

    def entries(self) -> list[FailureEntry]:
        """Return the entries, the newest first."""
        return list(reversed(self._entries.values()))


class CallFailures:
    """Observer that enters the failures of one call in the log (``runtime.observers.CallObserver``).

    Args:
        events: events of the call.
        log: of the process.
        engines: name of the present engine of each stage.
    """

    def __init__(self, events: CallEvents, log: FailureLog, engines: Mapping[Stage, str]) -> None:
        self._log, self._engines = log, engines
        events.subscribe(EngineFailed, self._on_engine_failed)
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)
        events.subscribe(FallbackAnswers, self._on_fallback_answers)
        events.subscribe(RecordingDegraded, self._on_recording_degraded)

    def close(self) -> None:
        """Do nothing: the log outlives the call."""

    def _on_engine_failed(self, event: EngineFailed) -> None:
        stage = event.stage
        engine = "" if stage is None else self._engines.get(stage, "")
        self._log.add("error", OTHER if stage is None else stage, engine=engine)

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        kind = "recovered" if event.reason is FailoverReason.RECOVERED else "failover"
        self._log.add(
            kind, event.stage, engine=event.engine, successor=event.successor, reason=event.reason.value
        )

    def _on_fallback_answers(self, event: FallbackAnswers) -> None:
        engine = event.engine or self._engines.get(Stage.LLM, "")
        self._log.add("failover", Stage.LLM, engine=engine, successor=event.successor, reason=event.reason)

    def _on_recording_degraded(self, event: RecordingDegraded) -> None:
        self._log.add("degraded", RECORDING, reason=event.reason)
