"""Failures in this process, for the operator.

    GET /api/admin/failures    {since, circuits: [...], processes: [...], failures: [...], stalls}

Numbers in memory of the process, which the metrics and ``/status`` count too; nothing is read from a disk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.telemetry.failure_log import (
    CircuitReading,
    EngineProcessReading,
    FailureEntry,
    FailureLog,
)

PATH = "/api/admin/failures"


@dataclass(frozen=True)
class FailureSources:
    """Sources of the failures of a process.

    Attributes:
        log: of its calls.
        circuits: returns the state of the circuit breakers.
        processes: returns the state of the child processes with engines.
        stalls: returns the stalls of the event loop, as for ``/status``; None where they are not counted.
    """

    log: FailureLog = field(default_factory=FailureLog)
    circuits: Callable[[], Sequence[CircuitReading]] = tuple
    processes: Callable[[], Sequence[EngineProcessReading]] = tuple
    stalls: Callable[[], Mapping[str, Any] | None] = lambda: None


class CircuitView(BaseModel):
    """State of the circuit breaker of an engine; ``CircuitReading`` describes the fields."""

    stage: str
    engine: str
    state: str
    retry_ms: int


class EngineProcessView(BaseModel):
    """State of a child process with an engine.

    Attributes:
        engine: name of its row.
        is_ready: it works now.
        restarts: number of restarts since the server started.
        ended_at: last end that a restart followed; null without one.
        reason: of that end; empty where none is known.
    """

    engine: str
    is_ready: bool
    restarts: int
    ended_at: datetime | None
    reason: str


class FailureView(BaseModel):
    """Failures of one kind; ``FailureEntry`` describes the fields."""

    kind: str
    stage: str
    engine: str
    successor: str
    reason: str
    count: int
    last_at: datetime


class StallsView(BaseModel):
    """Stalls of the event loop.

    Attributes:
        over_ms: shortest one that counts.
        count: number since the server started.
        longest_ms: the longest one.
        last_at: end of the newest one; null before the first.
        last_ms: its length; null before the first.
    """

    over_ms: int
    count: int
    longest_ms: int
    last_at: datetime | None
    last_ms: int | None


class FailuresView(BaseModel):
    """Failures since the start of the process, the newest kind first."""

    since: datetime
    circuits: list[CircuitView]
    processes: list[EngineProcessView]
    failures: list[FailureView]
    stalls: StallsView | None


def failures_api(sources: FailureSources, operators: AdminAuth) -> APIRouter:
    """Return the route.

    Args:
        sources: of the process.
        operators: checks that a request is an operator's.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    @router.get(PATH)
    async def failures() -> FailuresView:
        """Return the circuit breakers, engine processes, failures and stalls of this process."""
        return FailuresView(
            since=_at(sources.log.since_s),
            circuits=[
                CircuitView(stage=each.stage, engine=each.engine, state=each.state, retry_ms=each.retry_ms)
                for each in sources.circuits()
            ],
            processes=[_process(each) for each in sources.processes()],
            failures=[_failure(each) for each in sources.log.entries()],
            stalls=_stalls(sources.stalls()),
        )

    return router


def _process(reading: EngineProcessReading) -> EngineProcessView:
    return EngineProcessView(
        engine=reading.engine,
        is_ready=reading.is_ready,
        restarts=reading.restarts,
        ended_at=None if reading.ended_s is None else _at(reading.ended_s),
        reason=reading.reason,
    )


def _failure(entry: FailureEntry) -> FailureView:
    return FailureView(
        kind=entry.kind,
        stage=entry.stage,
        engine=entry.engine,
        successor=entry.successor,
        reason=entry.reason,
        count=entry.count,
        last_at=_at(entry.last_s),
    )


def _stalls(message: Mapping[str, Any] | None) -> StallsView | None:
    if message is None:
        return None
    last = message["last"] or {}
    return StallsView(
        over_ms=message["over_ms"],
        count=message["count"],
        longest_ms=message["longest_ms"],
        last_at=last.get("at"),
        last_ms=last.get("stalled_ms"),
    )


def _at(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
