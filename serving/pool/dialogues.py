"""Select the worker for a conversation with a language model, by ``serving.scheduler``.

Inputs: reports of workers, on the loop; requests of the threads that hold conversations. Output: the worker
of a conversation, until it requests another one or ends. A conversation is admitted when its worker has
memory for all that it may come to need, at most ``BUDGET_SHARE`` of the worker's memory for caches in all. It
returns to the worker that its handle names, otherwise to one that has a beginning of it, otherwise to the one
with the smallest share of its streams in use. A conversation that finds no room waits in the order of
arrival, with a deadline, in its own thread.

The memory of a worker is what it reports (its limits for caches) or ``kv_bytes`` of its specification. The
need of a conversation is computed from the worker's report of its model (``models.llm.kv.memory``). Without a
shared line, streams that other gateways hold reduce the slots; their memory is not known here, so a worker
that several gateways use is divided among them by ``kv_bytes``. With one, all are counted in the tables.

The information is some milliseconds old. The worker decides, and a refused conversation requests again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.core.errors import EngineBusyError, EngineError
from parley.models.llm.hosted.engine import PoolLlmSettings
from parley.models.llm.hosted.session_cache import CachedDialogue
from parley.models.llm.kv.memory import with_room
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.serving.pool.shared.lines import AnyScheduler, SharedLines
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import Scheduler, SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    Lease,
    LeaseGranted,
    LeaseLost,
    RequestRefused,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)

ENGINE = "pool"
# Share of a worker's memory for caches that conversations may come to need. The rest is for what no
# configuration shows: copies while a cache grows, logits, contexts of conversations whose client is lost.
BUDGET_SHARE = 0.9
TAKES = ("idle", "busy")
# A worker that refuses is full for other gateways too, and soon has room again.
_SCHEDULER = SchedulerSettings(max_waiting=10_000, kept_caches=64, longest_suspect_ms=1_000)


@dataclass(frozen=True, slots=True)
class DialogueMemory:
    """Memory of one worker for conversations.

    Attributes:
        budget_bytes: that conversations may come to need; None: unlimited, because it keeps no caches.
        reserved_bytes: that the conversations placed there may come to need.
        conversations: number of those.
    """

    budget_bytes: int | None
    reserved_bytes: int
    conversations: int


@dataclass(slots=True)
class _Model:
    """Worker by its last report.

    Attributes:
        url: its address.
        takes: it accepts streams.
        token_bytes: bytes of one token in its caches; 0: unknown.
        context_tokens: longest conversation.
        budget_bytes: memory that conversations may come to need.
    """

    url: str
    takes: bool
    token_bytes: int
    context_tokens: int
    budget_bytes: int | None

    def need_bytes(self, tokens: int | None) -> int:
        """Return the memory that a conversation may come to need, at most the whole budget."""
        most = self.context_tokens if tokens is None else min(tokens, self.context_tokens)
        need = self.token_bytes * with_room(most)
        return need if self.budget_bytes is None else min(need, self.budget_bytes)


class DialogueWorkers:
    """Placement of conversations on workers with language models. Thread-safe.

    Args:
        settings: of the row that uses them.
        first: returns the first message to a worker for a lease.
        lines: lines that other gateways share; None: this gateway has its own.
        watch: returns the first message that watches a worker; None: none is watched from here.
    """

    def __init__(
        self,
        settings: PoolLlmSettings,
        first: Callable[[Lease], EngineMessage],
        lines: SharedLines | None = None,
        watch: Callable[[str], EngineMessage] | None = None,
    ) -> None:
        self._settings = settings
        self._first, self._watch = first, watch
        self._changed = threading.Condition()
        self._is_shared = lines is not None
        self._scheduler: AnyScheduler
        if lines is None:
            self._scheduler = Scheduler(_SCHEDULER)
        else:
            self._scheduler = lines.scheduler(
                "llm", _SCHEDULER, self._on_effects, eta=Eta(), now_ms=self._now_ms
            )
        self._models: dict[str, _Model] = {}
        # Present ticket of each session.
        self._tickets: dict[str, str] = {}
        # Effects for tickets whose threads wait.
        self._answers: dict[str, LeaseGranted | RequestRefused | None] = {}
        self._is_closed = False

    # Reports, on the loop.

    def on_state(self, name: str, url: str, facts: Mapping[str, Any], kv_bytes: int | None) -> None:
        """Record the report of a worker with a language model.

        Args:
            name: of the worker.
            url: its address.
            facts: its report.
            kv_bytes: memory for caches by its specification; None: by its report.
        """
        engine = facts.get("engine")
        if self._settings.workers and name not in self._settings.workers:
            return
        with self._changed:
            if engine is None:
                self._gone(name)
                return
            memory = int(engine.get("kv_bytes", 0)) if kv_bytes is None else kv_bytes
            takes = facts.get("state") in TAKES
            model = _Model(
                url,
                takes,
                int(engine.get("token_bytes", 0)),
                int(engine.get("context_tokens", 0)),
                int(BUDGET_SHARE * memory) or None,
            )
            self._models[name] = model
            known = self._scheduler.worker(name)
            elsewhere = 0
            if not self._is_shared:
                here = 0 if known is None else known.conversations
                elsewhere = max(0, int(facts.get("streams", 0)) - here)
            slots = max(1, int(engine.get("slots", 1)) - elsewhere)
            offer = WorkerCapacity(name, str(facts.get("incarnation")), slots, model.budget_bytes)
            standing = WorkerState.READY if takes else WorkerState.DRAINING
            self._apply(self._scheduler.worker_up(offer, self._now_ms(), standing=standing))

    def on_silent(self, name: str) -> None:
        """Avoid a worker that is late or not reached, until its next report."""
        with self._changed:
            self._avoid(name)

    def on_gone(self, name: str) -> None:
        """Remove a worker that has ended."""
        with self._changed:
            self._gone(name)

    def close(self) -> None:
        """Refuse all further conversations."""
        with self._changed:
            self._is_closed = True
            self._apply(self._scheduler.stop())

    # Conversations, on their threads (``SessionLeasing``).

    def lease_of(self, session_id: str, epoch: int, cached: CachedDialogue) -> tuple[str, EngineMessage]:
        """Return the address of a worker, and the first message to send; see ``SessionLeasing``.

        Blocks for ``queue_timeout_s`` at most.
        """
        deadline_s = time.monotonic() + self._settings.queue_timeout_s
        ticket = _ticket(session_id, epoch)
        with self._changed:
            self._end(session_id, cached.chain)
            if self._is_closed or not any(model.takes for model in self._models.values()):
                raise EngineError(f"{ENGINE}: no worker with llm is there", engine=ENGINE)
            tokens = self._settings.conversation_tokens
            # The smallest: a worker of a mixed pool that has too little memory refuses by itself.
            need_bytes = min(model.need_bytes(tokens) for model in self._models.values() if model.takes)
            want = WorkerRequest(
                ticket, session_id, Task.HALF_DUPLEX, epoch, need_bytes, cached.chain, cached.handle
            )
            self._scheduler.found(want, self._now_ms())
            self._tickets[session_id] = ticket
            self._answers[ticket] = None
            try:
                self._apply(self._scheduler.ask(want, self._now_ms()))
                lease = self._awaited(ticket, deadline_s)
            finally:
                del self._answers[ticket]
            url = self._models[lease.worker].url
        return url, self._first(lease)

    def refused(self, session_id: str) -> bool:
        """Avoid the worker that refused a conversation, for a second or longer if it does so again."""
        with self._changed:
            ticket = self._tickets.pop(session_id, None)
            if ticket is not None:
                self._apply(self._scheduler.lease_rejected(ticket, self._now_ms()))
                # Its thread requests another worker itself.
                self._apply(self._scheduler.cancel(ticket, self._now_ms()))
        return True

    def ended(self, session_id: str, epoch: int) -> None:
        """Free the place of a conversation that is over, and of its memory."""
        with self._changed:
            # A later stream of the session may have a place already.
            if self._tickets.get(session_id) == _ticket(session_id, epoch):
                self._end(session_id, (), well=True)

    def watches(self) -> list[tuple[str, EngineMessage]]:
        """Return the workers that may have contexts; see ``SessionLeasing``."""
        if self._watch is None:
            return []
        with self._changed:
            known = [(name, model.url) for name, model in self._models.items()]
        return [(url, self._watch(name)) for name, url in known]

    @property
    def waiting(self) -> int:
        """Number of conversations that wait for a worker."""
        with self._changed:
            return self._scheduler.waiting

    def memory(self) -> dict[str, DialogueMemory]:
        """Return the memory of each worker."""
        with self._changed:
            return {
                name: DialogueMemory(known.offer.kv_bytes, known.reserved_bytes, known.conversations)
                for name in self._models
                if (known := self._scheduler.worker(name)) is not None
            }

    def _on_effects(self, effects: list[Effect]) -> None:
        """Take effects of a shared line, on the loop."""
        with self._changed:
            self._apply(effects)

    # Called with the lock.

    def _awaited(self, ticket: str, deadline_s: float) -> Lease:
        while (answer := self._answers[ticket]) is None:
            now_s = time.monotonic()
            if now_s >= deadline_s:
                self._apply(self._scheduler.cancel(ticket, self._now_ms()))
                raise EngineBusyError(f"{ENGINE}: the memory of every llm worker is in use", engine=ENGINE)
            due_ms = self._scheduler.next_deadline_ms()
            due_s = deadline_s if due_ms is None else min(deadline_s, due_ms / 1000)
            if not self._changed.wait(max(0.0, due_s - now_s)):
                self._apply(self._scheduler.on_deadline(self._now_ms()))
        if isinstance(answer, RequestRefused):
            raise EngineError(f"{ENGINE}: no worker with llm is there ({answer.reason})", engine=ENGINE)
        return answer.lease

    def _end(self, session_id: str, chain: Sequence[tuple[str, int]], *, well: bool = False) -> None:
        ticket = self._tickets.pop(session_id, None)
        if ticket is not None:
            kept = tuple(chain)
            self._apply(self._scheduler.release(ticket, self._now_ms(), well=well, kept=kept))

    def _avoid(self, name: str) -> None:
        model = self._models.get(name)
        if model is not None:
            self._models[name] = _Model(
                model.url, False, model.token_bytes, model.context_tokens, model.budget_bytes
            )
            self._apply(self._scheduler.worker_stands(name, WorkerState.SUSPECT, self._now_ms()))

    def _gone(self, name: str) -> None:
        if self._models.pop(name, None) is not None:
            self._apply(self._scheduler.worker_down(name, self._now_ms()))

    def _apply(self, effects: list[Effect]) -> None:
        while effects:
            more: list[Effect] = []
            for effect in effects:
                ticket = effect.ticket_id
                if ticket in self._answers:
                    self._answers[ticket] = None if isinstance(effect, LeaseLost) else effect
                elif not isinstance(effect, RequestRefused):
                    # Lost, and possibly granted elsewhere at once: its thread requests again when needed.
                    more += self._scheduler.cancel(ticket, self._now_ms())
            effects = more
        self._changed.notify_all()

    @staticmethod
    def _now_ms() -> int:
        return int(time.monotonic() * 1000)


def _ticket(session_id: str, epoch: int) -> str:
    return f"{session_id}.{epoch}"
