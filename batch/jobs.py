"""Run a batch job: hand sources to worker processes, and record each result in the destination.

Input: sources that are to do. Output: their files, the record, and ``JobResult``. Each worker has one
source at a time. A worker that dies or makes no progress for ``stall_s`` is replaced; its source is tried
again, and parked after ``tries``. A worker that does not load ends the job, as do outputs that cannot be
written and a bucket that does not answer: every later source would fail alike. Results are recorded by this
process alone.

A killed job leaves the sources under way as they were: being interrupted is no failure of a source.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from parley.batch.destination import Destination
from parley.batch.recogniser import gpus_of, secrets_of
from parley.batch.s3.address import storage_environment
from parley.batch.settings import BatchSettings, RecogniserChoice
from parley.batch.sources import BatchSource
from parley.batch.worker import MOST_MESSAGE_BYTES, JobStart, ReportKind, WorkItem
from parley.core.errors import EngineError
from parley.recording.at_rest import KEYS_ENV
from parley.runtime.engine_hosting.supervisor import child_environment
from parley.runtime.progress import Progress, printable

# Workers that die one after the other without a source: the machine has no memory for them.
MOST_LOST = 3
END_S = 5.0
# A destination that another run has taken over is noticed in this time.
CHECK_S = 5.0
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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


class BatchJob:
    """Run over sources.

    Args:
        settings: of the job.
        destination: of the outputs, held by this process.
    """

    def __init__(self, settings: BatchSettings, destination: Destination) -> None:
        self._settings = settings
        self._destination = destination
        self._workers: list[_WorkerProcess] = []
        self._waiting: deque[BatchSource] = deque()
        self._result = JobResult(gpus=gpus_of(settings.recogniser))
        self._began_s = 0.0
        self._lost = 0

    def run(self, sources: Sequence[BatchSource], *, workers: int) -> JobResult:
        """Transcribe the sources; return when all are done or parked.

        Raises:
            EngineError: a worker does not load, or the outputs cannot be written.
            OutputError: another run has taken the destination over.
        """
        if not sources:
            return self._result
        self._waiting = deque(sources)
        self._result.workers = min(workers, len(sources))
        progress = Progress("transcribed", len(sources))
        try:
            self._workers = [self._start() for _ in range(self._result.workers)]
            while self._workers:
                self._destination.check_held()
                until_s = min(worker.until_s for worker in self._workers)
                left_s = min(max(0.0, until_s - time.monotonic()), CHECK_S)
                ready = wait([each.connection for each in self._workers], left_s)
                for worker in list(self._workers):
                    if worker.connection in ready:
                        self._hear(worker, progress)
                    elif time.monotonic() >= worker.until_s:
                        stall_s = (
                            self._settings.limits.stall_s if worker.is_ready else self._settings.limits.load_s
                        )
                        self._lose(worker, f"no progress for {stall_s:g} s", progress)
        finally:
            for worker in self._workers:
                worker.end()
        self._result.wall_s = time.monotonic() - self._began_s
        return self._result

    def _start(self) -> "_WorkerProcess":
        return _WorkerProcess(self._settings, self._destination)

    def _hear(self, worker: "_WorkerProcess", progress: Progress) -> None:
        try:
            message = json.loads(worker.connection.recv_bytes(MOST_MESSAGE_BYTES))
        except (EOFError, OSError):
            self._lose(worker, worker.death(), progress)
            return
        worker.until_s = time.monotonic() + self._settings.limits.stall_s
        match ReportKind(message["kind"]):
            case ReportKind.PROGRESS:
                progress.note(f"{message['audio_ms'] // 1_000} s of {printable(worker.name)}")
            case ReportKind.READY:
                worker.is_ready = True
                self._lost = 0
                self._began_s = self._began_s or time.monotonic()
                self._give(worker)
            case ReportKind.DONE:
                self._done(worker, message, progress)
            case ReportKind.REFUSED:
                self._failed(worker, message["reason"], may_succeed=message["may_succeed"], progress=progress)
                self._give(worker)
            case ReportKind.BROKEN:
                raise EngineError(message["reason"], engine=self._settings.recogniser.name, retryable=False)

    def _give(self, worker: "_WorkerProcess") -> None:
        """Give a worker the next source; end it when there is none."""
        worker.source = None
        if not self._waiting:
            self._workers.remove(worker)
            worker.end()
            return
        worker.source = source = self._waiting.popleft()
        item = WorkItem(
            source.name,
            source.location,
            source.kind,
            source.version,
            source.key(self._settings),
            source.written_us,
            dict(self._destination.replaced(source.name)),
        )
        worker.until_s = time.monotonic() + self._settings.limits.stall_s
        # A worker that is gone is noticed when the answer is read.
        with suppress(OSError):
            worker.connection.send_bytes(json.dumps(asdict(item)).encode())

    def _done(self, worker: "_WorkerProcess", facts: dict[str, Any], progress: Progress) -> None:
        assert worker.source is not None
        self._destination.finish(worker.source.name, audio_ms=facts["audio_ms"], cpu_ms=facts["cpu_ms"])
        result = self._result
        result.done += 1
        result.audio_ms += facts["audio_ms"]
        result.speech_ms += facts["speech_ms"]
        result.cpu_ms += facts["cpu_ms"]
        self._step(progress, worker.source.name)
        self._give(worker)

    def _failed(
        self, worker: "_WorkerProcess", reason: str, *, may_succeed: bool, progress: Progress
    ) -> None:
        source = worker.source
        assert source is not None
        worker.source = None
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

    def _lose(self, worker: "_WorkerProcess", reason: str, progress: Progress) -> None:
        """Replace a worker that is gone or stalls.

        Raises:
            EngineError: workers die without a source.
        """
        worker.end()
        self._workers.remove(worker)
        if worker.source is not None:
            self._failed(worker, f"its worker was lost: {reason}", may_succeed=True, progress=progress)
        else:
            self._lost += 1
            if self._lost >= MOST_LOST:
                raise EngineError(
                    f"workers do not start: {reason}; try --workers 1",
                    engine=self._settings.recogniser.name,
                    retryable=False,
                )
        if self._waiting:
            self._workers.append(self._start())


class _WorkerProcess:
    """Process of ``batch.worker``, and its source."""

    def __init__(self, settings: BatchSettings, destination: Destination) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            self._process = subprocess.Popen(
                (sys.executable, "-m", "parley.batch.worker", str(handle)),
                env=_worker_environment(settings.recogniser),
                pass_fds=(handle, *destination.descriptors),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self.connection = Connection(ours.detach())
        self.source: BatchSource | None = None
        self.is_ready = False
        self.until_s = time.monotonic() + settings.limits.load_s
        start = JobStart(settings.model_dump(mode="json"), destination.location)
        with suppress(OSError):
            self.connection.send_bytes(json.dumps(asdict(start)).encode())

    @property
    def name(self) -> str:
        """Name of the source under way."""
        return "" if self.source is None else self.source.name

    def death(self) -> str:
        """Return how the process ended."""
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def end(self) -> None:
        """Kill the process: what it has written is whole, and what it has not is done again."""
        self.connection.close()
        self._process.kill()
        self._process.wait()


def _worker_environment(recogniser: RecogniserChoice) -> dict[str, str]:
    """Return the environment of a worker: one core, and the secrets of calls, buckets and the recogniser."""
    keys = os.environ.get(KEYS_ENV)
    own = dict.fromkeys(THREADS, "1") | storage_environment() | ({} if keys is None else {KEYS_ENV: keys})
    return child_environment(on_device=True) | own | secrets_of(recogniser)


def default_workers() -> int:
    """Return the number of usable cores but one, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
