"""Select the worker for a new stream. Recognisers, voices and language models hold many streams each.

Inputs: reports of workers, on the loop. Output: the worker for a new stream, requested by the thread that
opens it. The least loaded worker of the kind that has a free stream is chosen. A worker that is suspect,
draining, silent or gone is never chosen, and one that has just refused a stream is avoided for a moment. A
conversation with a language model returns to the process that has read it, where that has a free stream.
There is no queue: a speaking caller cannot wait for a recogniser, and the fallback engine
(``speaking.fallback``) answers at once.

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
from parley.models.llm.kv.segments import CacheHandle
from parley.models.stt.hosted.engine import HostedStt
from parley.models.tts.hosted.engine import HostedTts, VoiceLimits
from parley.runtime.engine_hosting.messages import EngineMessage

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
        first: returns the first message to a worker for a stream, from its name, its incarnation, the session
            and its epoch.
    """

    def __init__(self, first: Callable[[str, str, str, int], EngineMessage]) -> None:
        self._first = first
        self._known: dict[str, _Known] = {}
        self._changed = threading.Condition()
        self._is_closed = False

    def on_state(self, name: str, url: str, facts: Mapping[str, Any]) -> None:
        """Record the report of a worker."""
        engine = facts.get("engine")
        with self._changed:
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

    def on_gone(self, name: str) -> None:
        """Remove a worker that has ended."""
        with self._changed:
            self._known.pop(name, None)

    def close(self) -> None:
        """Refuse all further streams."""
        with self._changed:
            self._is_closed = True
            self._known.clear()
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

    def place(
        self,
        kind: str,
        names: tuple[str, ...],
        rate_hz: int,
        *,
        session_id: str | None = None,
        epoch: int = 0,
        near: CacheHandle | None = None,
    ) -> tuple[str, EngineMessage]:
        """Return the address for a new stream, and the first message there.

        Args:
            kind: of the engine.
            names: of the eligible workers; empty: all of the kind.
            rate_hz: of the audio; 0 for an engine without audio.
            session_id: of a conversation that may return; None: the stream belongs to nothing else.
            epoch: of the session.
            near: process that has read a part of it, which is preferred.

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
            had = None if near is None else self._known.get(near.worker)
            # A process that was restarted has read nothing.
            if had is None or near is None or had.incarnation != near.incarnation:
                had = None
            chosen = min(there, key=lambda known: known.load)
            if had is not None and had.load < 1 and any(known is had for known in there):
                chosen = had
            if chosen.load >= 1:
                raise EngineBusyError(
                    f"{ENGINE}: every {kind} stream of {len(there)} is in use", engine=ENGINE
                )
            chosen.sent += 1
            name = next(name for name, known in self._known.items() if known is chosen)
            url, incarnation = chosen.url, chosen.incarnation
        return url, self._first(name, incarnation, session_id or uuid.uuid4().hex, epoch)

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
    """Placement of streams of one kind (``StreamLeasing`` and ``SessionLeasing``)."""

    def __init__(self, workers: StreamWorkers, kind: str, names: tuple[str, ...], rate_hz: int) -> None:
        self._workers = workers
        self._wanted = (kind, names, rate_hz)

    def lease(self) -> tuple[str, EngineMessage]:
        return self._workers.place(*self._wanted)

    def lease_of(self, session_id: str, epoch: int, near: CacheHandle | None) -> tuple[str, EngineMessage]:
        return self._workers.place(*self._wanted, session_id=session_id, epoch=epoch, near=near)

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
    return HostedLlm(_Placing(workers, "llm", settings.workers, 0), settings)
