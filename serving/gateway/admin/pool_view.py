"""State of the pool for operators' tools: workers, queue, estimates. Read-only.

The names and terms are those of the MiniCPM-o server, whose tools read them, where the meaning is the same.
An unknown value is null, such as a device that no setting names, or the duration of a worker's inferences.
Sessions are shown by their first characters: without client keys a whole id gives access to the session.
"""

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel

from parley.serving.gateway.calls import CallTasks
from parley.serving.pool.pool import Pool, WorkerStatus
from parley.serving.scheduler.call_queue import QueuedCaller
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.types import QueuePlace, Running, Task
from parley.session_store.rows import SHOWN_CHARS

Status = Literal[
    "loading",
    "idle",
    "busy",
    "busy_chat",
    "busy_half_duplex",
    "duplex_active",
    "duplex_paused",
    "error",
    "offline",
]
# Types of that server, which uses "half_duplex_audio" for the conversation and not for the state.
REQUEST_TYPES = {
    Task.CHAT: "chat",
    Task.HALF_DUPLEX: "half_duplex_audio",
    Task.AUDIO_DUPLEX: "audio_duplex",
    Task.OMNI_DUPLEX: "omni_duplex",
}
_BY_TASK: dict[Task, Status] = {
    Task.CHAT: "busy_chat",
    Task.HALF_DUPLEX: "busy_half_duplex",
    Task.AUDIO_DUPLEX: "duplex_active",
    Task.OMNI_DUPLEX: "duplex_active",
}
_GPU = re.compile(r"cuda(?::(\d{1,3}))?")


class WorkerView(BaseModel):
    """State of one worker.

    Attributes:
        worker_id: its name.
        host: of its address; for the operator only.
        port: of its address; for the operator only.
        gpu_id: number of its device, from its settings or its report.
        status: in that server's terms. ``busy`` where neither of its two kinds applies: it cleans up, or
            another gateway holds it.
        state: its own term (``serving.worker.lifecycle``); null where it is not running.
        current_session_id: beginning of the id of its session; for the operator only.
        total_requests: conversations that this gateway has placed on it.
        avg_inference_time_ms: reported by a worker of a MiniCPM-o server; unknown for any other.
        last_heartbeat: time of its last report.
        current_request_type: type of its conversation, when this gateway placed it.
        task_started_at: start of that conversation.
    """

    worker_id: str
    host: str | None
    port: int | None
    gpu_id: int | None
    status: Status
    state: str | None
    current_session_id: str | None
    total_requests: int
    avg_inference_time_ms: float | None = None
    last_heartbeat: datetime | None
    current_request_type: str | None
    task_started_at: datetime | None


class WorkerList(BaseModel):
    """All workers."""

    total: int
    workers: list[WorkerView]


class RunningView(BaseModel):
    """Conversation that has a worker."""

    worker_id: str
    request_type: str
    started_at: datetime
    elapsed_s: float
    estimated_remaining_s: float


class TicketView(BaseModel):
    """Conversation that waits.

    Attributes:
        kind: whether it waits for a line of this server, or has one and waits for an engine of the pool.
        ticket_id: a client that holds it may give the place up; a phone caller's is for the operator
            only.
        request_type: type of the conversation; null while it waits for a line.
        session_id: beginning of its id; null while it waits for a line, because it has none yet.
        transport: of the caller; null for a conversation that has a line.
        position: 1 is next of this kind.
        estimated_wait_s: null where there is no worker that may come free, and for a line.
        enqueued_at: time of the request.
        wait_elapsed_s: time since then.
    """

    kind: Literal["line", "engine"]
    ticket_id: str
    request_type: str | None
    session_id: str | None
    transport: str | None
    position: int
    estimated_wait_s: float | None
    enqueued_at: datetime
    wait_elapsed_s: float


class QueueView(BaseModel):
    """Both queues, that for a line first; length and size are those of both."""

    queue_length: int
    max_queue_size: int
    items: list[TicketView]
    running_tasks: list[RunningView]


class PoolCounts(BaseModel):
    """Counts of the pool in ``/status``; each worker is of one of the six kinds."""

    gateway_healthy: bool = True
    total_workers: int = 0
    idle_workers: int = 0
    busy_workers: int = 0
    duplex_workers: int = 0
    loading_workers: int = 0
    error_workers: int = 0
    offline_workers: int = 0
    queue_length: int = 0
    max_queue_size: int = 0
    running_tasks: list[RunningView] = []


class EtaConfig(BaseModel):
    """Effective baselines."""

    eta_chat_s: float
    eta_half_duplex_s: float
    eta_audio_duplex_s: float
    eta_omni_duplex_s: float
    ema_alpha: float


class EtaView(BaseModel):
    """Estimates: the settings and the learnt values, which are null before a conversation has ended well."""

    config: EtaConfig
    ema_alpha: float
    ema_min_samples: int
    ema_chat_s: float | None
    ema_half_duplex_s: float | None
    ema_audio_duplex_s: float | None
    ema_omni_duplex_s: float | None
    ema_chat_samples: int
    ema_half_duplex_samples: int
    ema_audio_duplex_samples: int
    ema_omni_duplex_samples: int


class PoolView:
    """State of a pool at one moment; empty for a server without one.

    Args:
        pool: of this process, or None.
        calls: whose callers wait for a line; None leaves them out.
    """

    def __init__(self, pool: Pool | None, calls: CallTasks | None = None) -> None:
        self._pool = pool
        self._calls = calls
        self._now_ms = 0 if pool is None else pool.now_ms()
        self._now_s = datetime.now(UTC).timestamp()

    def workers(self, *, whole: bool) -> WorkerList:
        """Return the workers; with ``whole``, including the values for the operator only."""
        seen = [] if self._pool is None else self._pool.seen()
        return WorkerList(total=len(seen), workers=[self._worker(each, whole=whole) for each in seen])

    def counts(self) -> PoolCounts:
        """Return the counts for ``/status``."""
        if self._pool is None:
            return PoolCounts()
        statuses = Counter(status_of(each) for each in self._pool.seen())
        return PoolCounts(
            total_workers=statuses.total(),
            idle_workers=statuses["idle"],
            busy_workers=statuses["busy"] + statuses["busy_chat"] + statuses["busy_half_duplex"],
            duplex_workers=statuses["duplex_active"] + statuses["duplex_paused"],
            loading_workers=statuses["loading"],
            error_workers=statuses["error"],
            offline_workers=statuses["offline"],
            queue_length=self._pool.waiting,
            max_queue_size=self._pool.settings.scheduler.max_waiting,
            running_tasks=self._running(),
        )

    def states(self) -> dict[str, int]:
        """Return the number of workers in each status, those with none included."""
        seen = [] if self._pool is None else self._pool.seen()
        statuses = Counter(status_of(each) for each in seen)
        return {status: statuses[status] for status in get_args(Status)}

    def queue(self) -> QueueView:
        """Return the queue."""
        most = 0 if self._pool is None else self._pool.settings.scheduler.max_waiting
        if self._calls is not None and self._calls.queue is not None:
            most += self._calls.queue.settings.most
        items = self._tickets()
        return QueueView(
            queue_length=len(items), max_queue_size=most, items=items, running_tasks=self._running()
        )

    def ticket(self, ticket_id: str) -> TicketView | None:
        """Return a waiting conversation by its ticket, or None."""
        return next((each for each in self._tickets() if each.ticket_id == ticket_id), None)

    def _tickets(self) -> list[TicketView]:
        callers = [] if self._calls is None else self._calls.queued()
        places = [] if self._pool is None else self._pool.places()
        return [*map(self._caller, callers), *map(self._ticket, places)]

    def _running(self) -> list[RunningView]:
        return [] if self._pool is None else [self._run(each) for each in self._pool.running()]

    def _worker(self, worker: WorkerStatus, *, whole: bool) -> WorkerView:
        address = urlsplit(worker.url or "")
        run = worker.runs[0] if worker.runs else None
        # Only the worker itself reports a conversation of another gateway.
        held = worker.facts.get("held") or [{}]
        session_id = run.lease.session_id if run else str(held[0].get("session_id", ""))
        state = worker.facts.get("state")
        return WorkerView(
            worker_id=worker.name,
            host=address.hostname if whole else None,
            port=address.port if whole else None,
            gpu_id=worker.facts.get("gpu_id", _gpu(worker.device)),
            status=status_of(worker),
            state=None if state is None else str(state),
            current_session_id=session_id[:SHOWN_CHARS] if whole and session_id else None,
            total_requests=worker.placed,
            avg_inference_time_ms=worker.facts.get("avg_inference_time_ms"),
            last_heartbeat=None if worker.heard_s is None else datetime.fromtimestamp(worker.heard_s, UTC),
            current_request_type=REQUEST_TYPES[run.task] if run else None,
            task_started_at=self._wall(run.since_ms) if run else None,
        )

    def _run(self, running: Running) -> RunningView:
        return RunningView(
            worker_id=running.lease.worker,
            request_type=REQUEST_TYPES[running.task],
            started_at=self._wall(running.since_ms),
            elapsed_s=round((self._now_ms - running.since_ms) / 1000, 1),
            estimated_remaining_s=round(running.left_ms / 1000, 1),
        )

    def _caller(self, caller: QueuedCaller) -> TicketView:
        return TicketView(
            kind="line",
            ticket_id=caller.ticket,
            request_type=None,
            session_id=None,
            transport=caller.transport,
            position=caller.position,
            estimated_wait_s=None,
            enqueued_at=datetime.fromtimestamp(self._now_s - caller.waited_s, UTC),
            wait_elapsed_s=round(caller.waited_s, 1),
        )

    def _ticket(self, place: QueuePlace) -> TicketView:
        return TicketView(
            kind="engine",
            transport=None,
            ticket_id=place.ticket_id,
            request_type=REQUEST_TYPES[place.task],
            session_id=place.session_id[:SHOWN_CHARS],
            position=place.position,
            estimated_wait_s=None if place.wait_ms is None else round(place.wait_ms / 1000, 1),
            enqueued_at=self._wall(place.since_ms),
            wait_elapsed_s=round((self._now_ms - place.since_ms) / 1000, 1),
        )

    def _wall(self, at_ms: int) -> datetime:
        """Convert a time of the pool's clock to wall-clock time."""
        return datetime.fromtimestamp(self._now_s - (self._now_ms - at_ms) / 1000, UTC)


def eta_view(eta: Eta) -> EtaView:
    """Return the settings and the learnt values of the estimates."""
    settings = eta.settings
    learnt: dict[str, float | int | None] = {}
    for task in Task:
        mean_s = eta.mean_s(task)
        learnt[f"ema_{task.value}_s"] = None if mean_s is None else round(mean_s, 2)
        learnt[f"ema_{task.value}_samples"] = eta.samples(task)
    return EtaView.model_validate(
        {
            "config": settings.model_dump(include=set(EtaConfig.model_fields)),
            "ema_alpha": settings.ema_alpha,
            "ema_min_samples": settings.least_samples,
            **learnt,
        }
    )


def status_of(worker: WorkerStatus) -> Status:
    """Return the status of a worker in that server's terms."""
    state = worker.facts.get("state")
    if state is None or state == "dead":
        return "loading" if worker.is_starting else "offline"
    if worker.is_silent or state in ("suspect", "error"):
        return "error"
    if state in ("loading", "duplex_active", "duplex_paused"):
        return "loading" if state == "loading" else state
    if worker.runs:
        # It was assigned, and its next report will show that; or it drains with its last conversation.
        return _BY_TASK[worker.runs[0].task] if state != "busy" else _busy(worker.runs[0].task)
    if state in ("busy_chat", "busy_half_duplex"):
        # A worker of that server, which another gateway holds.
        return "busy_chat" if state == "busy_chat" else "busy_half_duplex"
    return "idle" if state == "idle" else "busy"


def _busy(task: Task) -> Status:
    """Return the status of a worker that reports to be busy; one of a call is cleaning up."""
    return "busy" if _BY_TASK[task] == "duplex_active" else _BY_TASK[task]


def _gpu(device: str | None) -> int | None:
    match = _GPU.fullmatch(device or "")
    # Without a number it is the first device that the process sees.
    return None if match is None else int(match.group(1) or 0)
