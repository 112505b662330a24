"""Workers of one gateway process, and the conversations that request them.

Inputs: ``acquire`` of a conversation, which returns when it has a worker, and the reports of workers.
Outputs: a lease with which to connect to the worker (``Assignment``), positions in the queue while a
conversation waits, and notice of a lost worker. ``serving.scheduler`` decides which conversation gets which
worker; this module owns the sockets, the processes and the clock. Workers with many streams (recognisers,
voices) are not assigned to conversations: ``streams`` selects them, without a queue.

A waiter that is cancelled leaves the queue at once. The loss of a worker is reported to each of its
conversations (``Assignment.lost``). Each waits at the head of the queue again, and ``regain`` returns when it
has another worker. A conversation releases its worker with ``release`` when it does not need it any more,
whatever the reason.

A worker of a MiniCPM-o server sends no reports and is polled (``health``). It has no leases: while a
conversation from here is running, its activity is attributed to that. After the conversation, the worker is
not assigned until a new poll reports it idle.

A worker that holds a conversation of another origin (another gateway's, or one that is still being cleaned
up) is not granted until it reports that it is free. With ``shared`` the line and the leases are in tables
(``serving.pool.shared``) or on Ray (``serving.pool.on_ray``), and so are those of the other gateways. Owns a
task for each worker, one for deadlines and one for each shared line; ``close`` ends them.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from loguru import logger

from parley.core.errors import CapacityError
from parley.core.tuning import tuned
from parley.models.omni.minicpm_worker.health import TAKEN, Health
from parley.protocols.worker_tokens import Claim, sign
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.loop_clock import LoopClock
from parley.serving.pool.health import HealthWatch
from parley.serving.pool.minicpm_server import ServerWorker
from parley.serving.pool.on_ray.worker import RayWorker
from parley.serving.pool.process import WorkerProcess
from parley.serving.pool.settings import PoolSettings, PoolTuning, WorkerSpec
from parley.serving.pool.shared.lines import AnyScheduler, SharedLines
from parley.serving.pool.shared.scheduler import SharedScheduler
from parley.serving.pool.streams import StreamWorkers
from parley.serving.pool.watch import Watch, first_watch
from parley.serving.pool.worker_secret import pool_secret
from parley.serving.scheduler.eta import Eta, EtaSettings
from parley.serving.scheduler.scheduler import Scheduler
from parley.serving.scheduler.types import (
    Effect,
    Lease,
    LeaseGranted,
    LeaseLost,
    QueuePlace,
    RefusalReason,
    RequestRefused,
    Running,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)
from parley.session_store.settings import StoreSettings
from parley.telemetry.settings import TraceSettings

OnPlace = Callable[[QueuePlace], None]
AnyProcess = WorkerProcess | RayWorker
# Places that are reported before other tasks of the loop run, and the pause for each of them before they are
# computed again. A long queue thus takes some hundredths of the loop's time, however often it changes.
PLACES_AT_ONCE = 200
PAUSE_OF_PLACE_S = 0.000_1

_STANDINGS: Mapping[str, WorkerState] = {
    "loading": WorkerState.LOADING,
    "idle": WorkerState.READY,
    "busy": WorkerState.READY,
    "duplex_active": WorkerState.READY,
    "duplex_paused": WorkerState.READY,
    "busy_chat": WorkerState.READY,
    "busy_half_duplex": WorkerState.READY,
    "draining": WorkerState.DRAINING,
    "suspect": WorkerState.SUSPECT,
    "error": WorkerState.SUSPECT,
}
REASONS: Mapping[RefusalReason, str] = {
    RefusalReason.QUEUE_FULL: "the queue is full ({limit} wait), try again later",
    RefusalReason.TOO_LARGE: "no worker has the memory for this conversation ({limit} bytes at most)",
    RefusalReason.NO_WORKER: "no worker is available, try again later",
    RefusalReason.CANCELLED: "an operator removed you from the queue",
    RefusalReason.WITHDRAWN: "your place in the queue was given up",
    RefusalReason.LEFT: "you were not heard of any more",
    RefusalReason.STOPPING: "the server is stopping, try another or later",
}


class AssignmentRefused(CapacityError):
    """The conversation gets no worker.

    Attributes:
        reason: of the refusal.
    """

    def __init__(self, refused: RequestRefused) -> None:
        super().__init__(REASONS[refused.reason].format(limit=refused.limit), limit=refused.limit)
        self.reason = refused.reason


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment of a worker to a conversation.

    Attributes:
        ticket_id: of the request.
        lease: of the worker.
        url: of the worker.
        first: the first message to the worker; valid for ``token_s``.
        lost: set when the worker is gone.
        server: for a worker of a MiniCPM-o server, which is sent no ``first``; None for any other.
    """

    ticket_id: str
    lease: Lease
    url: str
    first: EngineMessage
    lost: asyncio.Event
    server: ServerWorker | None = None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """State of a worker, by its own last report and by the information of the pool.

    Attributes:
        name: of the worker.
        url: its address; None until a process that is started here has reported it.
        device: from its engine's settings; None for an external worker, or without the setting.
        facts: its last report; empty for one that is not running.
        standing: its availability for conversations; None for one that is not running.
        is_starting: its process is running and has not reported its address yet.
        is_silent: its next report is overdue.
        heard_s: Unix time of its last report; None: there was none.
        placed: number of conversations that it was assigned here.
        runs: its present conversations.
    """

    name: str
    url: str | None
    device: str | None
    facts: Mapping[str, Any]
    standing: WorkerState | None
    is_starting: bool
    is_silent: bool
    heard_s: float | None
    placed: int
    runs: tuple[Running, ...]


@dataclass(slots=True)
class _Waiter:
    placed: asyncio.Future[Assignment]
    on_place: OnPlace | None
    reported: tuple[int, int | None] | None = None

    def report_to(self, on_place: OnPlace | None) -> None:
        """Report its place to another receiver from here on: it waits again."""
        self.on_place = on_place


@dataclass(slots=True)
class _Kept:
    """Worker that the pool manages."""

    spec: WorkerSpec
    watch: Watch | HealthWatch
    process: AnyProcess | None = None
    server: ServerWorker | None = None
    # For a worker without leases: number of times it has ended, time from which its reports count, and
    # whether it is being retired.
    lives: int = 0
    counts_s: float = 0.0
    drains: bool = False
    url: str | None = None
    watching: asyncio.Task[None] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_silent: bool = False
    heard_s: float | None = None
    placed: int = 0
    # It has refused a conversation for one that no lease of the line is for.
    is_taken: bool = False


class Pool:
    """Pool of workers. An async context manager that starts and closes it.

    Args:
        settings: of the pool.
        traces: of the deployment, for the workers that are started here; None: there are none.
        store: of the deployment, whose database holds a shared line; None: there is none.

    Raises:
        ConfigError: there is no secret, and a worker is not started here; or the line is to be shared, and
            what holds it is missing.
    """

    def __init__(
        self,
        settings: PoolSettings,
        *,
        traces: TraceSettings | None = None,
        store: StoreSettings | None = None,
    ) -> None:
        self._traces = traces
        self.settings = settings = tuned(PoolTuning, settings)
        self._clock = LoopClock()
        self._secret = pool_secret(settings)
        self.eta = Eta(settings.eta)
        self._lines = None if settings.shared is None else SharedLines(settings.shared, store)
        self._scheduler: AnyScheduler
        if self._lines is None:
            self._scheduler = Scheduler(settings.scheduler, eta=self.eta)
        else:
            self._scheduler = self._lines.scheduler(
                "omni", settings.scheduler, self._apply, eta=self.eta, now_ms=self._clock.now_ms
            )
        self._waiters: dict[str, _Waiter] = {}
        self._placed: dict[str, Assignment] = {}
        # The same by worker: tickets and their sessions.
        self._sessions_on: dict[str, dict[str, str]] = {spec.name: {} for spec in settings.workers}
        # Conversations that lost a worker and have not requested another one yet.
        self._again: dict[str, _Waiter] = {}
        self._kept = {spec.name: self._looked_after(spec) for spec in settings.workers}
        self.streams = StreamWorkers(self.first, self._lines, self._first_watch)
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._places_changed = asyncio.Event()
        self._is_closed = False
        self._reported_version = -1

    async def __aenter__(self) -> Self:
        for kept in self._kept.values():
            work = self._watch(kept) if kept.process is None else kept.process.run()
            self._tasks.append(asyncio.create_task(work, name=f"pool.{kept.spec.name}"))
        if self._lines is not None:
            self._lines.start()
        self._tasks.append(asyncio.create_task(self._keep_time(), name="pool.deadlines"))
        self._tasks.append(asyncio.create_task(self._report_places(), name="pool.places"))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse those that wait, and end the processes that were started here."""
        self._apply(self._scheduler.stop())
        self._is_closed = True
        self.streams.close()
        tasks, self._tasks = self._tasks, []
        watching = [kept.watching for kept in self._kept.values() if kept.watching is not None]
        for task in (*tasks, *watching):
            task.cancel()
        await asyncio.gather(*tasks, *watching, return_exceptions=True)
        if self._lines is not None:
            await self._lines.close()

    # Conversations.

    async def acquire(self, want: WorkerRequest, *, on_place: OnPlace | None = None) -> Assignment:
        """Wait until the conversation has a worker. A cancelled caller leaves the queue.

        Args:
            want: the request.
            on_place: called with its place in the queue soon after that has changed, in a long queue at
                intervals; must not block.

        Raises:
            AssignmentRefused: it does not get one.
            ValueError: the ticket is taken.
        """
        if want.ticket_id in self._waiters or want.ticket_id in self._placed:
            raise ValueError(f"the ticket {want.ticket_id} is in use")
        waiter = self._wait(want.ticket_id, on_place)
        return await self._awaited(want.ticket_id, waiter, want)

    async def regain(self, placed: Assignment, *, on_place: OnPlace | None = None) -> Assignment:
        """Wait until a conversation that lost its worker has another.

        Raises:
            AssignmentRefused: it does not get one.
        """
        waiter = self._again.pop(placed.ticket_id, None)
        if waiter is None:
            raise AssignmentRefused(RequestRefused(placed.ticket_id, RefusalReason.LEFT))
        waiter.report_to(on_place)
        # Its place may be the same as when the others were last notified.
        self._reported_version = -1
        self._places_changed.set()
        return await self._awaited(placed.ticket_id, waiter)

    def lease_rejected(self, placed: Assignment, *, busy: bool = False) -> None:
        """Report that the worker refused the conversation, which then waits at the head for ``regain``.

        Args:
            placed: the assignment.
            busy: true when another client holds the worker.
        """
        self._kept[placed.lease.worker].is_taken |= busy
        self._lose(placed, partial(self._scheduler.lease_rejected, busy=busy))

    def failed(self, placed: Assignment) -> None:
        """Report that the worker has failed; the conversation waits at the head for ``regain``."""
        self._lose(placed, self._scheduler.move)

    def release(self, placed: Assignment, *, well: bool, kept: tuple[tuple[str, int], ...] = ()) -> None:
        """End a conversation, wherever it is (``Scheduler.release``)."""
        ticket, now_ms = placed.ticket_id, self._clock.now_ms()
        self._again.pop(ticket, None)
        if (left := self._take_out(ticket)) is not None:
            self._require_fresh_health(left)
            self._apply(self._scheduler.release(ticket, now_ms, well=well, kept=kept))
        elif self._waiters.pop(ticket, None) is not None:
            self._apply(self._scheduler.cancel(ticket, now_ms))

    def first(self, lease: Lease) -> EngineMessage:
        """Return the first message to the worker of a lease, valid for ``token_s`` from now. Thread-safe."""
        expires_s = int(time.time()) + self.settings.token_s
        claim = Claim(lease.worker, lease.incarnation, lease.session_id, lease.epoch, expires_s)
        return EngineMessage(MessageType.LEASE, facts=claim.facts(sign(self._secret, claim)))

    def evict(self, ticket_id: str, *, reason: RefusalReason = RefusalReason.CANCELLED) -> bool:
        """Remove a conversation from the queue; return False when none with this ticket waits.

        Args:
            ticket_id: of the request.
            reason: sent to the conversation; that of an operator by default.
        """
        effects = self._scheduler.evict(ticket_id, self._clock.now_ms(), reason=reason)
        self._apply(effects)
        return bool(effects)

    def configure_eta(self, settings: EtaSettings) -> None:
        """Set other baselines; the learnt values are kept.

        Waiting conversations are notified of their new estimates.
        """
        self.eta.configure(settings)
        self._scheduler.estimates_changed()
        self._places_changed.set()

    # State of the pool.

    def now_ms(self) -> int:
        """Return the time of the clock of ``QueuePlace.since_ms`` and ``Running.since_ms``."""
        return self._clock.now_ms()

    @property
    def waiting(self) -> int:
        """Number of waiting conversations."""
        return self._scheduler.waiting

    def places(self) -> list[QueuePlace]:
        """Return the queue."""
        return self._scheduler.places(self._clock.now_ms())

    def running(self) -> list[Running]:
        """Return the conversations that have a worker."""
        return self._scheduler.running(self._clock.now_ms())

    def workers(self) -> dict[str, Mapping[str, Any]]:
        """Return the last report of each worker; empty for one that is not running."""
        return {name: kept.facts for name, kept in self._kept.items()}

    def seen(self) -> list[WorkerStatus]:
        """Return the state of every worker of the settings, in their order."""
        runs: dict[str, list[Running]] = {}
        for running in self.running():
            runs.setdefault(running.lease.worker, []).append(running)
        seen = []
        for name, kept in self._kept.items():
            device = kept.spec.settings.get("device")
            seen.append(
                WorkerStatus(
                    name,
                    kept.url,
                    device if isinstance(device, str) else None,
                    kept.facts,
                    self.standing(name),
                    kept.url is None and kept.process is not None and kept.process.pid is not None,
                    kept.is_silent,
                    kept.heard_s,
                    kept.placed,
                    tuple(runs.get(name, ())),
                )
            )
        return seen

    def process(self, worker: str) -> AnyProcess | None:
        """Return the process of a worker that is started from here, otherwise None."""
        return self._kept[worker].process

    def standing(self, worker: str) -> WorkerState | None:
        """Return the availability of a worker for conversations; None for one that is not running."""
        known = self._scheduler.worker(worker)
        return None if known is None else known.standing

    async def drain(self, worker: str) -> None:
        """Make a worker take no more conversations, and end."""
        kept = self._kept[worker]
        if kept.process is not None:
            kept.process.retire()
        if isinstance(kept.watch, Watch):
            await kept.watch.drain()
        else:
            # An external worker is not ended from here.
            kept.drains = True
            kept.watch.again()

    # Internal: conversations.

    def _wait(self, ticket_id: str, on_place: OnPlace | None) -> _Waiter:
        waiter = _Waiter(asyncio.get_running_loop().create_future(), on_place)
        self._waiters[ticket_id] = waiter
        return waiter

    async def _awaited(
        self, ticket_id: str, waiter: _Waiter, want: WorkerRequest | None = None
    ) -> Assignment:
        try:
            if want is not None:
                self._apply(self._scheduler.ask(want, self._clock.now_ms()))
            return await waiter.placed
        except AssignmentRefused:
            raise
        except BaseException:
            # Cancelled, and possibly granted at the same moment.
            self._waiters.pop(ticket_id, None)
            if (left := self._take_out(ticket_id)) is not None:
                self._require_fresh_health(left)
            self._apply(self._scheduler.cancel(ticket_id, self._clock.now_ms()))
            raise

    def _lose(self, placed: Assignment, lose: Callable[[str, int], list[Effect]]) -> None:
        if self._placed.get(placed.ticket_id) is not placed:
            return
        self._take_out(placed.ticket_id)
        self._require_fresh_health(placed)
        placed.lost.set()
        self._again[placed.ticket_id] = self._wait(placed.ticket_id, None)
        self._apply(lose(placed.ticket_id, self._clock.now_ms()))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self._grant(effect)
            elif isinstance(effect, LeaseLost):
                placed = self._take_out(effect.ticket_id)
                if placed is not None:
                    placed.lost.set()
                    self._again[effect.ticket_id] = self._wait(effect.ticket_id, None)
            else:
                waiter = self._waiters.pop(effect.ticket_id, None)
                if waiter is not None and not waiter.placed.done():
                    waiter.placed.set_exception(AssignmentRefused(effect))
                    # Mark the exception as retrieved: a conversation that does not wait now gets it when it
                    # does.
                    waiter.placed.exception()
        self._changed.set()
        self._places_changed.set()

    def _grant(self, granted: LeaseGranted) -> None:
        waiter = self._waiters.pop(granted.ticket_id)
        lease = granted.lease
        kept = self._kept[lease.worker]
        kept.placed += 1
        url = kept.url
        assert url is not None
        placed = Assignment(granted.ticket_id, lease, url, self.first(lease), asyncio.Event(), kept.server)
        self._placed[granted.ticket_id] = placed
        self._sessions_on[lease.worker][granted.ticket_id] = lease.session_id
        if not waiter.placed.done():
            waiter.placed.set_result(placed)
        if granted.ticket_id in self._again:
            # Its owner has not requested another one yet. A lease that is not taken in time is given up.
            asyncio.get_running_loop().call_later(self.settings.token_s, self._give_up, placed)

    def _take_out(self, ticket_id: str) -> Assignment | None:
        left = self._placed.pop(ticket_id, None)
        if left is not None:
            del self._sessions_on[left.lease.worker][ticket_id]
        return left

    async def _report_places(self) -> None:
        while True:
            await self._places_changed.wait()
            self._places_changed.clear()
            if self._reported_version == self._scheduler.version or not self._waiters:
                continue
            self._reported_version = self._scheduler.version
            reported = 0
            for reported, place in enumerate(self._scheduler.iter_places(self._clock.now_ms()), start=1):
                self._report(place)
                if reported % PLACES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(reported * PAUSE_OF_PLACE_S)

    def _report(self, place: QueuePlace) -> None:
        waiter = self._waiters.get(place.ticket_id)
        if waiter is None or waiter.on_place is None:
            return
        reported = (place.position, place.wait_ms)
        if waiter.reported != reported:
            waiter.reported = reported
            try:
                waiter.on_place(place)
            except Exception as error:  # a caller's callback: the others are notified all the same
                logger.opt(exception=error).error("could not report a place in the queue")

    def _give_up(self, placed: Assignment) -> None:
        if placed.ticket_id in self._again and self._placed.get(placed.ticket_id) is placed:
            self.release(placed, well=False)

    async def _keep_time(self) -> None:
        while True:
            self._changed.clear()
            due_ms = self._scheduler.next_deadline_ms()
            left_s = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                self._apply(self._scheduler.on_deadline(self._clock.now_ms()))

    # Internal: workers.

    def _looked_after(self, spec: WorkerSpec) -> _Kept:
        kept: _Kept
        if spec.is_minicpm_server:
            assert spec.url is not None
            server = ServerWorker(spec.url, spec.conversation(), answer_ms=self.settings.silent_ms)
            asked = HealthWatch(
                self.settings,
                server,
                on_health=lambda health, asked_s: self._on_health(kept, health, asked_s),
                on_silent=lambda: self._on_silent(kept),
                on_dead=lambda: self._on_dead(kept),
                patience_ms=lambda: self._patience_ms(kept),
            )
            kept = _Kept(spec, asked, url=spec.url, server=server)
            return kept
        watch = Watch(
            self.settings,
            first=partial(self._first_watch, spec.name),
            on_state=lambda facts: self._on_state(kept, facts),
            on_silent=lambda: self._on_silent(kept),
            on_dead=lambda: self._on_dead(kept),
            patience_ms=lambda: self._patience_ms(kept),
        )
        kept = _Kept(spec, watch, url=spec.url)
        if spec.ray is not None:
            assert self._lines is not None
            kept.process = self._lines.ray_worker(
                spec, self.settings, lambda url: self._on_url(kept, url), self._traces
            )
        elif spec.url is None:
            kept.process = WorkerProcess(
                spec,
                self.settings,
                secret=self._secret.decode(),
                on_url=lambda url: self._on_url(kept, url),
                traces=self._traces,
            )
        return kept

    def _first_watch(self, worker: str) -> EngineMessage:
        """Return the first message of a watch of a worker, valid for ``token_s`` from now. Thread-safe."""
        return first_watch(worker, self._secret, self.settings.token_s)

    async def _watch(self, kept: _Kept) -> None:
        assert kept.url is not None
        if isinstance(kept.watch, Watch):
            await kept.watch.run(kept.url)
        else:
            await kept.watch.run()

    def _on_url(self, kept: _Kept, url: str | None) -> None:
        watching, kept.watching = kept.watching, None
        if watching is not None:
            watching.cancel()
        if url is None:
            self._on_ended(kept)
        kept.url = url
        if url is not None:
            kept.watching = asyncio.create_task(self._watch(kept), name=f"pool.{kept.spec.name}.watch")

    def _on_state(self, kept: _Kept, facts: Mapping[str, Any]) -> None:
        name, now_ms = kept.spec.name, self._clock.now_ms()
        state = str(facts.get("state"))
        standing = _STANDINGS.get(state)
        kept.facts, kept.is_silent, kept.heard_s = facts, False, time.time()
        if facts.get("kind", "omni") != "omni":
            self._on_stream_state(kept, standing)
            return
        if standing is None:
            self._apply(self._scheduler.worker_down(name, now_ms))
            return
        engine = facts.get("engine") or {}
        incarnation = str(facts.get("incarnation"))
        if standing is WorkerState.READY:
            if kept.process is not None:
                kept.process.mark_ready()
            if self._is_busy_elsewhere(name, facts):
                standing = WorkerState.SUSPECT
        known = self._scheduler.worker(name)
        if known is not None and known.offer.incarnation == incarnation and known.standing is standing:
            return
        offer = WorkerCapacity(name, incarnation, int(engine.get("slots", 1)), kept.spec.kv_bytes)
        ready_ms = now_ms + self.settings.load_estimate_ms
        self._apply(self._scheduler.worker_up(offer, now_ms, standing=standing, ready_ms=ready_ms))

    def _require_fresh_health(self, left: Assignment) -> None:
        """Distrust a worker without leases that a conversation leaves, until a new poll reports it free."""
        kept = self._kept[left.lease.worker]
        if isinstance(kept.watch, HealthWatch):
            kept.counts_s = asyncio.get_running_loop().time()
            now_ms = self._clock.now_ms()
            self._apply(self._scheduler.worker_stands(kept.spec.name, WorkerState.SUSPECT, now_ms))
            kept.watch.again()

    def _on_health(self, kept: _Kept, health: Health, asked_s: float) -> None:
        """Translate a poll's result to the report of our own workers."""
        if asked_s < kept.counts_s:
            return
        held = [{"session_id": health.current_session_id or ""}] if health.state in TAKEN else []
        name, shared = kept.spec.name, self.settings.shared
        # A line on Ray compares the processes that its gateways report, and each gateway counts its own.
        is_compared = shared is not None and shared.ray is not None
        facts = {
            "state": "draining" if kept.drains else health.state,
            "kind": "omni",
            "incarnation": name if is_compared else f"{name}.{kept.lives}",
            "engine": {"slots": 1},
            "held": held,
            "gpu_id": health.gpu_id,
            "avg_inference_time_ms": health.avg_inference_time_ms,
        }
        self._on_state(kept, facts)

    def _on_stream_state(self, kept: _Kept, standing: WorkerState | None) -> None:
        if standing is WorkerState.READY and kept.process is not None:
            kept.process.mark_ready()
        if not self._is_closed and kept.url is not None:
            self.streams.on_state(kept.spec.name, kept.url, kept.facts, kv_bytes=kept.spec.kv_bytes)

    def _is_busy_elsewhere(self, name: str, facts: Mapping[str, Any]) -> bool:
        ours = set(self._sessions_on[name].values())
        if self._kept[name].server is not None:
            # It has no session ids of ours: its activity during one of our conversations is attributed to
            # that one.
            return bool(facts["held"]) and not ours
        held = {each["session_id"] for each in facts.get("held", ())}
        if not isinstance(self._scheduler, SharedScheduler):
            return not held <= ours
        # What other gateways have just been granted is not known here yet, and is no reason to avoid the
        # worker: its slots are counted in the tables.
        kept = self._kept[name]
        kept.is_taken &= not held <= ours | self._scheduler.sessions_on(name)
        return kept.is_taken

    def _on_silent(self, kept: _Kept) -> None:
        kept.is_silent = True
        self.streams.on_silent(kept.spec.name)
        known = self._scheduler.worker(kept.spec.name)
        if known is None or known.standing is WorkerState.SUSPECT or self._is_closed:
            return
        logger.warning(f"the worker {kept.spec.name} has stopped reporting")
        now_ms = self._clock.now_ms()
        self._apply(self._scheduler.worker_stands(kept.spec.name, WorkerState.SUSPECT, now_ms))

    def _patience_ms(self, kept: _Kept) -> int:
        loads = kept.facts.get("state", "loading") == "loading"
        return self.settings.load_ms if loads else self.settings.dead_ms

    def _on_dead(self, kept: _Kept) -> None:
        """Handle a worker that has sent no report for too long."""
        self._on_ended(kept)
        if isinstance(kept.process, WorkerProcess):
            # A running process that does not answer would hold its device for ever.
            logger.error(f"the worker {kept.spec.name} does not answer, killing it")
            kept.process.kill()

    def _on_ended(self, kept: _Kept) -> None:
        kept.facts = {}
        kept.lives += 1
        self.streams.on_gone(kept.spec.name)
        if not self._is_closed:
            self._apply(self._scheduler.worker_down(kept.spec.name, self._clock.now_ms()))
