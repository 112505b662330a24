"""Process of ``batch.worker`` with its connection, and the job's view of a worker wherever that runs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Protocol

from parley.batch.destination import Destination
from parley.batch.recogniser import gpus_of, secrets_of
from parley.batch.s3.address import storage_environment
from parley.batch.settings import BatchSettings, RecogniserChoice
from parley.batch.worker import JobStart
from parley.recording.at_rest import KEYS_ENV
from parley.runtime.engine_hosting.supervisor import child_environment

END_S = 5.0
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class JobWorker(Protocol):
    """Worker of a job. For one thread.

    Attributes:
        connection: to it; it ends with the worker.
        started_s: time of ``time.monotonic`` when its process was started; None while it waits for a place.
        is_blameless: it was lost with its machine, which is no failure of the source under way.
    """

    connection: Connection
    started_s: float | None
    is_blameless: bool

    def death(self) -> str:
        """Return how it ended."""
        ...

    def end(self) -> None:
        """End it: what it has written is whole, and what it has not is done again."""
        ...


class Executor(Protocol):
    """Place in which the workers of a job run."""

    def default_workers(self) -> int:
        """Return the number of workers where none was given, at least 1."""
        ...

    def gpus(self, workers: int) -> int:
        """Return the number of GPUs that so many workers use."""
        ...

    def start(self) -> JobWorker:
        """Start a worker."""
        ...


class BatchProcess:
    """Process of ``batch.worker`` on this machine.

    Args:
        settings: of the job.
        location: of the outputs.
        descriptors: open files that it inherits.
    """

    def __init__(self, settings: BatchSettings, location: str, descriptors: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            self._process = subprocess.Popen(
                (sys.executable, "-m", "parley.batch.worker", str(handle)),
                env=_worker_environment(settings.recogniser),
                pass_fds=(handle, *descriptors),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self.connection = Connection(ours.detach())
        start = JobStart(settings.model_dump(mode="json"), location)
        with suppress(OSError):
            self.connection.send_bytes(json.dumps(asdict(start)).encode())

    def death(self) -> str:
        """Return how the process ended."""
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def end(self) -> None:
        """Kill the process."""
        self.connection.close()
        self._process.kill()
        self._process.wait()


class LocalWorker(BatchProcess):
    """Worker on this machine (``JobWorker``)."""

    def __init__(self, settings: BatchSettings, destination: Destination) -> None:
        super().__init__(settings, destination.location, destination.descriptors)
        self.started_s: float | None = time.monotonic()
        self.is_blameless = False


class LocalExecutor:
    """Workers on this machine (``Executor``).

    Args:
        settings: of the job.
        destination: of the outputs, held by this process.
    """

    def __init__(self, settings: BatchSettings, destination: Destination) -> None:
        self._settings, self._destination = settings, destination

    def default_workers(self) -> int:
        return max(1, len(os.sched_getaffinity(0)) - 1)

    def gpus(self, workers: int) -> int:
        # All of them have the same one.
        return gpus_of(self._settings.recogniser)

    def start(self) -> LocalWorker:
        return LocalWorker(self._settings, self._destination)


def _worker_environment(recogniser: RecogniserChoice) -> dict[str, str]:
    """Return the environment of a worker: one core, and the secrets of calls, buckets and the recogniser."""
    keys = os.environ.get(KEYS_ENV)
    own = dict.fromkeys(THREADS, "1") | storage_environment() | ({} if keys is None else {KEYS_ENV: keys})
    return child_environment(on_device=True) | own | secrets_of(recogniser)
