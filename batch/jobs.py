"""Run a batch job: hand sources to worker processes, and record each result in the destination.

Input: sources that are to do. Output: their files, the record, and ``JobResult``. Each worker has one
source at a time. A worker that dies or makes no progress for ``stall_s`` is replaced; its source is tried
again, and parked after ``tries``. A worker that does not load ends the job, as do outputs that cannot be
written and a bucket that does not answer: every later source would fail alike. Results are recorded by this
process alone.

A killed job leaves the sources under way as they were: being interrupted is no failure of a source.
"""

import json
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from typing import Any

from parley.batch.destination import Destination
from parley.batch.settings import BatchSettings
from parley.batch.sources import BatchSource
from parley.batch.worker import MOST_MESSAGE_BYTES, ReportKind, WorkItem
from parley.batch.worker_process import Executor, JobWorker
from parley.core.errors import EngineError
from parley.runtime.progress import Progress, printable

# Workers that die one after the other without a source: the machine has no memory for them.
MOST_LOST = 3
# Workers that are lost with their machines one after the other while they load.
MOST_UNLOADED = 10
# Machines that a source may lose without a failure of its own: it may be what takes them down.
MOST_MOVED = 3
# A destination that another run has taken over is noticed in this time.
CHECK_S = 5.0


@dataclass(slots=True)
class JobResult:
    """Figures of a run.

    Attributes:
        done: sources that were transcribed.
        parked: sources that were parked.
        audio_ms: their audio.
        speech_ms: audio that was recognised.
        cpu_ms: processor time of it, without the start of the workers.
        wall_s: time from the first worker's readiness to the end.
        workers: number of workers.
        gpus: number of GPUs that the recogniser uses.
    """

    done: int = 0
    parked: int = 0
    audio_ms: int = 0
    speech_ms: int = 0
    cpu_ms: int = 0
    wall_s: float = 0.0
    workers: int = 1
    gpus: int = 0

    @property
    def real_time_factor(self) -> float:
        """Seconds of audio per second of wall clock (RTFx)."""
        return self.audio_ms / 1_000 / self.wall_s if self.wall_s > 0 else 0.0

    def summary(self) -> str:
        """Return the last line of a run."""
        speed = self.real_time_factor
        audio_s, speech_s = self.audio_ms / 1_000, self.speech_ms / 1_000
        return (
            f"{self.done} transcribed, {self.parked} parked; {audio_s:.1f} s of audio ({speech_s:.1f} s of "
            f"speech) in {self.wall_s:.1f} s: RTFx {speed:.1f}, {speed / self.workers:.1f} per core on "
            f"{self.workers}{self._per_gpu()}; {self.cpu_ms / 1_000:.1f} s of processor time"
        )

    def _per_gpu(self) -> str:
        return f", {self.real_time_factor / self.gpus:.1f} per GPU on {self.gpus}" if self.gpus else ""


@dataclass(slots=True, eq=False)
class _Busy:
    """Worker and what it has to do.

    Attributes:
        worker: the worker.
        until_s: time of ``time.monotonic`` until which it has to make progress.
        source: under way; None: it has none.
        is_ready: it has loaded.
    """

    worker: JobWorker
    until_s: float
    source: BatchSource | None = None
    is_ready: bool = False


class BatchJob:
    """Run over sources.

    Args:
        settings: of the job.
        destination: of the outputs, held by this process.
        executor: in which the workers run.
    """

    def __init__(self, settings: BatchSettings, destination: Destination, executor: Executor) -> None:
        self._settings = settings
        self._destination = destination
        self._executor = executor
        self._workers: list[_Busy] = []
        self._waiting: deque[BatchSource] = deque()
        self._moved = Counter[str]()
        self._result = JobResult()
        self._began_s = 0.0
        # Workers lost without a source since one has loaded: by themselves, and with their machines.
        self._lost = self._unloaded = 0

    def run(self, sources: Sequence[BatchSource], *, workers: int | None = None) -> JobResult:
        """Transcribe the sources; return when all are done or parked.

        Args:
            sources: that are to do.
            workers: number of workers; None: that of the executor.

        Raises:
            EngineError: a worker does not load, or the outputs cannot be written.
            OutputError: another run has taken the destination over.
        """
        if not sources:
            return self._result
        self._waiting = deque(sources)
        most = self._executor.default_workers() if workers is None else workers
        self._result.workers = min(most, len(sources))
        self._result.gpus = self._executor.gpus(self._result.workers)
        progress = Progress("transcribed", len(sources))
        try:
            self._workers = [self._start() for _ in range(self._result.workers)]
            while self._workers:
                self._destination.check_held()
                until_s = min(busy.until_s for busy in self._workers)
                left_s = min(max(0.0, until_s - time.monotonic()), CHECK_S)
                ready = wait([each.worker.connection for each in self._workers], left_s)
                for busy in list(self._workers):
                    if busy.worker.connection in ready:
                        self._hear(busy, progress)
                    elif time.monotonic() >= busy.until_s:
                        self._on_late(busy, progress)
                self._end_unplaced()
        finally:
            for busy in self._workers:
                busy.worker.end()
        self._result.wall_s = time.monotonic() - self._began_s
        return self._result

    def _start(self) -> _Busy:
        return _Busy(self._executor.start(), time.monotonic() + self._settings.limits.load_s)

    def _on_late(self, busy: _Busy, progress: Progress) -> None:
        limits, started_s = self._settings.limits, busy.worker.started_s
        if busy.is_ready:
            self._lose(busy, f"no progress for {limits.stall_s:g} s", progress)
        elif started_s is not None and time.monotonic() < started_s + limits.load_s:
            # It had to wait for its place.
            busy.until_s = started_s + limits.load_s
        elif started_s is not None:
            self._lose(busy, f"no progress for {limits.load_s:g} s", progress)
        elif any(each.worker.started_s is not None for each in self._workers):
            # The others may have all the places there are.
            busy.until_s = time.monotonic() + limits.load_s
        else:
            self._lose(busy, busy.worker.death(), progress)

    def _end_unplaced(self) -> None:
        """End workers that wait for a place when no source waits for them."""
        for busy in list(self._workers):
            if busy.worker.started_s is None and not self._waiting:
                self._workers.remove(busy)
                busy.worker.end()

    def _hear(self, busy: _Busy, progress: Progress) -> None:
        try:
            message = json.loads(busy.worker.connection.recv_bytes(MOST_MESSAGE_BYTES))
        except (EOFError, OSError):
            self._lose(busy, busy.worker.death(), progress)
            return
        busy.until_s = time.monotonic() + self._settings.limits.stall_s
        match ReportKind(message["kind"]):
            case ReportKind.PROGRESS:
                name = "" if busy.source is None else printable(busy.source.name)
                progress.note(f"{message['audio_ms'] // 1_000} s of {name}")
            case ReportKind.READY:
                busy.is_ready = True
                self._lost = self._unloaded = 0
                self._began_s = self._began_s or time.monotonic()
                self._give(busy)
            case ReportKind.DONE:
                self._done(busy, message, progress)
            case ReportKind.REFUSED:
                self._failed(busy, message["reason"], may_succeed=message["may_succeed"], progress=progress)
                self._give(busy)
            case ReportKind.BROKEN:
                raise EngineError(message["reason"], engine=self._settings.recogniser.name, retryable=False)

    def _give(self, busy: _Busy) -> None:
        """Give a worker the next source; end it when there is none."""
        busy.source = None
        if not self._waiting:
            self._workers.remove(busy)
            busy.worker.end()
            return
        busy.source = source = self._waiting.popleft()
        item = WorkItem(
            source.name,
            source.location,
            source.kind,
            source.version,
            source.key(self._settings),
            source.written_us,
            dict(self._destination.replaced(source.name)),
        )
        busy.until_s = time.monotonic() + self._settings.limits.stall_s
        # A worker that is gone is noticed when the answer is read.
        with suppress(OSError):
            busy.worker.connection.send_bytes(json.dumps(asdict(item)).encode())

    def _done(self, busy: _Busy, facts: dict[str, Any], progress: Progress) -> None:
        assert busy.source is not None
        self._destination.finish(busy.source.name, audio_ms=facts["audio_ms"], cpu_ms=facts["cpu_ms"])
        result = self._result
        result.done += 1
        result.audio_ms += facts["audio_ms"]
        result.speech_ms += facts["speech_ms"]
        result.cpu_ms += facts["cpu_ms"]
        self._step(progress, busy.source.name)
        self._give(busy)

    def _failed(self, busy: _Busy, reason: str, *, may_succeed: bool, progress: Progress) -> None:
        source = busy.source
        assert source is not None
        busy.source = None
        # It may name a path with bytes that are no UTF-8.
        reason = reason.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        tries = self._settings.limits.tries if may_succeed else 1
        if self._destination.fail(source.name, reason, most_tries=tries):
            self._result.parked += 1
            self._step(progress, f"{source.name} parked: {reason}")
        else:
            # After the others, so that a bad source does not hold them up.
            self._waiting.append(source)

    def _step(self, progress: Progress, note: str) -> None:
        result = self._result
        result.wall_s = time.monotonic() - self._began_s
        progress.step(f"RTFx {result.real_time_factor:.0f}, {result.parked} parked; {printable(note)}")

    def _lose(self, busy: _Busy, reason: str, progress: Progress) -> None:
        """Replace a worker that is gone or stalls.

        Raises:
            EngineError: workers die without a source.
        """
        source = busy.source
        busy.worker.end()
        self._workers.remove(busy)
        if source is not None and busy.worker.is_blameless and self._moved[source.name] < MOST_MOVED:
            self._moved[source.name] += 1
            self._waiting.appendleft(source)
        elif source is not None:
            self._failed(busy, f"its worker was lost: {reason}", may_succeed=True, progress=progress)
        else:
            self._unloaded += busy.worker.is_blameless
            self._lost += not busy.worker.is_blameless
            if self._lost >= MOST_LOST or self._unloaded >= MOST_UNLOADED:
                raise EngineError(
                    f"workers do not start: {reason}; try --workers 1",
                    engine=self._settings.recogniser.name,
                    retryable=False,
                )
        if self._waiting:
            self._workers.append(self._start())
