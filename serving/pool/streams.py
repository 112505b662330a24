"""Select the worker for a new stream. Recognisers and voices hold many streams each.

Inputs: reports of workers, on the loop. Output: the worker for a new stream, requested by the thread that
opens it. The least loaded worker of the kind that has a free stream is chosen. A worker that is suspect,
draining, silent or gone is never chosen, and one that has just refused a stream is avoided for a moment.
There is no queue: a speaking caller cannot wait for a recogniser, and the fallback engine
(``speaking.fallback``) answers at once. Conversations with language models are placed by their memory
(``dialogues``).

The information is some milliseconds old. The worker decides, and a refused caller requests again.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from parley.core.errors import EngineBusyError, EngineError
from parley.models.hosted.streams import StreamLimits
from parley.models.llm.hosted.engine import HostedLlm, PoolLlmSettings
from parley.models.stt.hosted.engine import HostedStt
from parley.models.tts.hosted.engine import HostedTts, VoiceLimits
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.serving.pool.dialogues import DialogueWorkers
from parley.serving.pool.shared.lines import SharedLines
from parley.serving.scheduler.types import Lease

ENGINE = "pool"
# Time for which a worker that refused a stream is avoided; afterwards its reports are newer than the refusal.
AVOID_S = 1.0
TAKES = ("idle", "busy")


class PoolSttSettings(StreamLimits):
    """Recognisers in the workers of this deployment."""

    workers: tuple[str, ...] = Field((), description="names of the workers to use; empty: all recognisers")
    load_timeout_s: float = Field(
        600, gt=0, le=3_600, description="longest wait until the first worker has loaded its model"
    )


class PoolTtsSettings(VoiceLimits):
    """Voices in the workers of this deployment."""

    workers: tuple[str, ...] = Field((), description="names of the workers to use; empty: all voices")
    load_timeout_s: float = Field(
        600, gt=0, le=3_600, description="longest wait until the first worker has loaded its model"
    )


@dataclass(slots=True)
class _Known:
    """State of a worker, by its last report."""

    url: str
    kind: str
    incarnation: str
    takes: bool
    rate_hz: int
    slots: int
    taken: int
    # Streams that were sent to it since that report.
    sent: int = 0
    avoided_until_s: float = 0.0

    @property
    def load(self) -> float:
        return (self.taken + self.sent) / self.slots


class StreamWorkers:
    """Workers with many streams. Thread-safe.

    Args:
        first: returns the first message to a worker for a lease.
        lines: lines that other gateways share; None: this gateway has its own.
        watch: returns the first message that watches a worker; None: none is watched from here.
    """

    def __init__(
        self,
        first: Callable[[Lease], EngineMessage],
        lines: SharedLines | None = None,
        watch: Callable[[str], EngineMessage] | None = None,
    ) -> None:
        self._first, self._watch = first, watch
        self._lines = lines
        self._dialogues: list[DialogueWorkers] = []
        # The last reports of workers with language models, for placements that are opened later.
        self._reports: dict[str, tuple[str, Mapping[str, Any], int | None]] = {}
        self._known: dict[str, _Known] = {}
        self._changed = threading.Condition()
        self._is_closed = False

    def on_state(self, name: str, url: str, facts: Mapping[str, Any], *, kv_bytes: int | None = None) -> None:
        """Record the report of a worker; ``kv_bytes`` is its memory for caches by its specification."""
        engine = facts.get("engine")
        with self._changed:
            if facts.get("kind") == "llm":
                self._reports[name] = url, facts, kv_bytes
                for dialogues in self._dialogues:
                    dialogues.on_state(name, url, facts, kv_bytes)
            if engine is None:
                self._known.pop(name, None)
                return
            before = self._known.get(name)
            incarnation = str(facts.get("incarnation"))
            known = self._known[name] = _Known(
                url,
                str(engine.get("kind")),
                incarnation,
                facts.get("state") in TAKES,
                int(engine.get("rate_hz", 0)),
                max(1, int(engine.get("slots", 1))),
                int(facts.get("streams", 0)),
            )
            if before is not None and before.incarnation == incarnation:
                known.avoided_until_s = before.avoided_until_s
            self._changed.notify_all()

    def on_silent(self, name: str) -> None:
        """Avoid a worker that is late or not reached, until its next report."""
        with self._changed:
            if name in self._known:
                self._known[name].takes = False
            for dialogues in self._dialogues:
                dialogues.on_silent(name)

    def on_gone(self, name: str) -> None:
        """Remove a worker that has ended."""
        with self._changed:
            self._known.pop(name, None)
            self._reports.pop(name, None)
            for dialogues in self._dialogues:
                dialogues.on_gone(name)

    def dialogues(self, settings: PoolLlmSettings) -> DialogueWorkers:
        """Return the placement of conversations with language models; it receives the reports from now on."""
        opened = DialogueWorkers(settings, self._first, self._lines, self._watch)
        with self._changed:
            self._dialogues.append(opened)
            for name, report in self._reports.items():
                opened.on_state(name, *report)
        return opened

    def close(self) -> None:
        """Refuse all further streams."""
        with self._changed:
            self._is_closed = True
            self._known.clear()
            for dialogues in self._dialogues:
                dialogues.close()
            self._changed.notify_all()

    def rate_hz(self, kind: str, names: tuple[str, ...], within_s: float) -> int:
        """Return the sampling rate of the first loaded worker of a kind. Blocks.

        Raises:
            EngineError: none is loaded in time.
        """
        return self._loaded(kind, names, within_s).rate_hz

    def wait_until_loaded(self, kind: str, names: tuple[str, ...], within_s: float) -> None:
        """Wait until a worker of a kind is loaded. Blocks.

        Raises:
            EngineError: none is loaded in time.
        """
        self._loaded(kind, names, within_s)

    def _loaded(self, kind: str, names: tuple[str, ...], within_s: float) -> _Known:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or bool(self._of(kind, names)), within_s)
            if not (loaded := self._of(kind, names)):
                raise EngineError(f"{ENGINE}: no worker with {kind} is loaded", engine=ENGINE)
            return loaded[0]

    def place(self, kind: str, names: tuple[str, ...], rate_hz: int) -> tuple[str, EngineMessage]:
        """Return the address for a new stream, and the first message there.

        Args:
            kind: of the engine.
            names: of the eligible workers; empty: all of the kind.
            rate_hz: of the audio.

        Raises:
            EngineBusyError: every worker is full.
            EngineError: no worker is available.
        """
        now_s = time.monotonic()
        with self._changed:
            there = [
                known
                for known in self._of(kind, names)
                if known.takes and known.rate_hz == rate_hz and known.avoided_until_s <= now_s
            ]
            if not there:
                raise EngineError(f"{ENGINE}: no worker with {kind} is there", engine=ENGINE)
            chosen = min(there, key=lambda known: known.load)
            if chosen.load >= 1:
                raise EngineBusyError(
                    f"{ENGINE}: every {kind} stream of {len(there)} is in use", engine=ENGINE
                )
            chosen.sent += 1
            name = next(name for name, known in self._known.items() if known is chosen)
            url, incarnation = chosen.url, chosen.incarnation
        return url, self._first(Lease(uuid.uuid4().hex, name, incarnation, 0))

    def not_taken(self, url: str) -> None:
        """Record that a worker refused a stream."""
        with self._changed:
            for known in self._known.values():
                if known.url == url:
                    known.avoided_until_s = time.monotonic() + AVOID_S

    def _of(self, kind: str, names: tuple[str, ...]) -> list[_Known]:
        return [
            known
            for name, known in self._known.items()
            if known.kind == kind and (not names or name in names)
        ]


class _Placing:
    """Placement of streams of one kind (``StreamLeasing``)."""

    def __init__(self, workers: StreamWorkers, kind: str, names: tuple[str, ...], rate_hz: int) -> None:
        self._workers = workers
        self._wanted = (kind, names, rate_hz)

    def lease(self) -> tuple[str, EngineMessage]:
        return self._workers.place(*self._wanted)

    def not_taken(self, url: str) -> bool:
        self._workers.not_taken(url)
        return True


def pooled_stt(workers: StreamWorkers, settings: PoolSttSettings) -> HostedStt:
    """Return a recogniser in the workers of a pool. Blocks until one of them is loaded.

    Raises:
        EngineError: none is loaded in time.
    """
    rate_hz = workers.rate_hz("stt", settings.workers, settings.load_timeout_s)
    return HostedStt(_Placing(workers, "stt", settings.workers, rate_hz), settings, rate_hz)


def pooled_tts(workers: StreamWorkers, settings: PoolTtsSettings) -> HostedTts:
    """Return a voice in the workers of a pool. Blocks until one of them is loaded.

    Raises:
        EngineError: none is loaded in time.
    """
    rate_hz = workers.rate_hz("tts", settings.workers, settings.load_timeout_s)
    return HostedTts(_Placing(workers, "tts", settings.workers, rate_hz), settings, rate_hz)


def pooled_llm(workers: StreamWorkers, settings: PoolLlmSettings) -> HostedLlm:
    """Return language models in the workers of a pool. Waits for none of them."""
    return HostedLlm(workers.dialogues(settings), settings)
