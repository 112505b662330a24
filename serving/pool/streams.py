"""Which of the pool's workers a stream goes to: recognisers, voices, language models, many streams each.

In: what workers say of themselves, on the loop. Out: where to go with a new stream, asked by the threads that
open one. The least loaded worker of the kind with a stream left is taken; one that is suspect, draining,
silent or gone never, and one that did not take a stream a moment ago not now. A conversation with a language
model goes back to the process that has read it, where that has a stream left. There is no queue: a caller who
speaks cannot wait for a recogniser, and the engine behind (``speaking.fallback``) answers at once.

What is known is a guess, some milliseconds old: the worker decides, and whoever it refuses asks here again.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from core.errors import EngineBusyError, EngineError
from models.hosted.streams import StreamLimits
from models.llm.hosted.engine import HostedLlm, PoolLlmSettings
from models.llm.kv.segments import CacheHandle
from models.stt.hosted.engine import HostedStt
from models.tts.hosted.engine import HostedTts, VoiceLimits
from runtime.engine_hosting.messages import EngineMessage

ENGINE = "pool"
# A worker that did not take a stream is left alone for so long: behind it its states are newer than that.
AVOID_S = 1.0
TAKES = ("idle", "busy")


class PoolSttSettings(StreamLimits):
    """Recognisers in the workers of this deployment."""

    workers: tuple[str, ...] = Field((), description="names of those that are meant; none: all recognisers")
    load_timeout_s: float = Field(600, gt=0, le=3_600, description="longest wait until the first is loaded")


class PoolTtsSettings(VoiceLimits):
    """Voices in the workers of this deployment."""

    workers: tuple[str, ...] = Field((), description="names of those that are meant; none: all voices")
    load_timeout_s: float = Field(600, gt=0, le=3_600, description="longest wait until the first is loaded")


@dataclass(slots=True)
class _Known:
    """A worker, as it stands by its last word."""

    url: str
    kind: str
    incarnation: str
    takes: bool
    rate_hz: int
    slots: int
    taken: int
    # Streams that were sent there since it said so.
    sent: int = 0
    avoided_until_s: float = 0.0

    @property
    def load(self) -> float:
        return (self.taken + self.sent) / self.slots


class StreamWorkers:
    """See the module. Thread-safe.

    Args:
        first: the first message to a worker for a stream: its name, its incarnation, the session and its
            epoch.
    """

    def __init__(self, first: Callable[[str, str, str, int], EngineMessage]) -> None:
        self._first = first
        self._known: dict[str, _Known] = {}
        self._changed = threading.Condition()
        self._is_closed = False

    def on_state(self, name: str, url: str, facts: Mapping[str, Any]) -> None:
        """What a worker says of itself."""
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
        """It is late, or not reached: nobody goes there until it says something."""
        with self._changed:
            if name in self._known:
                self._known[name].takes = False

    def on_gone(self, name: str) -> None:
        """It is not there any more."""
        with self._changed:
            self._known.pop(name, None)

    def close(self) -> None:
        """No stream goes anywhere any more."""
        with self._changed:
            self._is_closed = True
            self._known.clear()
            self._changed.notify_all()

    def rate_hz(self, kind: str, names: tuple[str, ...], within_s: float) -> int:
        """Of the first worker of a kind that is loaded. Blocks.

        Raises:
            EngineError: none is, in time.
        """
        return self._loaded(kind, names, within_s).rate_hz

    def wait_until_loaded(self, kind: str, names: tuple[str, ...], within_s: float) -> None:
        """Return when a worker of a kind is loaded. Blocks.

        Raises:
            EngineError: none is, in time.
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
        """Where a new stream goes, and the first message there.

        Args:
            kind: of the engine.
            names: of the workers that are meant; none: all of the kind.
            rate_hz: of the audio; 0 of an engine that has none.
            session_id: of a conversation that may come back; None: the stream is of nothing else.
            epoch: of the session.
            near: who has read something of it: a guess, which is preferred.

        Raises:
            EngineBusyError: every worker is full.
            EngineError: none is there.
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
            # A process that was started again has read nothing.
            if had is None or near is None or had.incarnation != near.incarnation:
                had = None
            chosen = min(there, key=lambda known: known.load)
            if had is not None and had.load < 1 and any(known is had for known in there):
                chosen = had
            if chosen.load >= 1:
                raise EngineBusyError(
                    f"{ENGINE}: every {kind} stream of {len(there)} is taken", engine=ENGINE
                )
            chosen.sent += 1
            name = next(name for name, known in self._known.items() if known is chosen)
            url, incarnation = chosen.url, chosen.incarnation
        return url, self._first(name, incarnation, session_id or uuid.uuid4().hex, epoch)

    def not_taken(self, url: str) -> None:
        """A worker did not take a stream."""
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
    """See ``StreamLeasing`` and ``SessionLeasing``: streams of one kind."""

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
    """A recogniser in the workers of a pool. Blocks until one of them is loaded.

    Raises:
        EngineError: none is, in time.
    """
    rate_hz = workers.rate_hz("stt", settings.workers, settings.load_timeout_s)
    return HostedStt(_Placing(workers, "stt", settings.workers, rate_hz), settings, rate_hz)


def pooled_tts(workers: StreamWorkers, settings: PoolTtsSettings) -> HostedTts:
    """A voice in the workers of a pool. Blocks until one of them is loaded.

    Raises:
        EngineError: none is, in time.
    """
    rate_hz = workers.rate_hz("tts", settings.workers, settings.load_timeout_s)
    return HostedTts(_Placing(workers, "tts", settings.workers, rate_hz), settings, rate_hz)


def pooled_llm(workers: StreamWorkers, settings: PoolLlmSettings) -> HostedLlm:
    """Language models in the workers of a pool. Waits for none of them."""
    return HostedLlm(_Placing(workers, "llm", settings.workers, 0), settings)
