"""Single thread that writes the recordings of all calls of a process, in the order in which jobs came.

Full: ``put`` refuses, and the caller counts the loss; the last jobs of a call have a reserve. Slow: jobs
wait. Dead: a job that never returns keeps the thread; the queue fills, and every further job is refused. The
thread is a daemon, so such a job does not hold the end of the process. A job reports its own failure; one
that raises is logged, and the next one runs.
"""

import queue
import threading
from collections.abc import Callable

from loguru import logger

# A segment of 5 s at 24 kHz is 240 kB: 60 MB of audio at most wait for the disk.
MOST_JOBS = 256
# Further ones for the ends of calls: a timeline, and the path of a folder to merge or to remove.
RESERVED_JOBS = 512


class RecordingDisk:
    """Thread with a bounded queue of jobs. It starts with the first one.

    Args:
        name: name of the thread.
        most_jobs: jobs that may wait.
    """

    def __init__(self, name: str = "recording", *, most_jobs: int = MOST_JOBS) -> None:
        self._most_jobs = most_jobs
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(most_jobs + RESERVED_JOBS)
        self._name = name
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return self._jobs.qsize()

    def put(self, job: Callable[[], None], *, is_last: bool = False) -> bool:
        """Queue a job; return False when the queue is full or closed. Never blocks.

        Args:
            job: what runs on the thread.
            is_last: it belongs to the end of a call, and may take a place of the reserve.
        """
        if self._is_closed or (not is_last and self._jobs.qsize() >= self._most_jobs):
            return False
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return True

    def close(self, timeout_s: float) -> bool:
        """Run the jobs that wait and end the thread, within ``timeout_s``. Blocks.

        Returns:
            True when everything was written.
        """
        self._is_closed = True
        if self._thread is None:
            return True
        try:
            self._jobs.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:  # the edge of a job: those of other calls go on
                logger.opt(exception=error).error(f"a job of {self._name} failed: {type(error).__name__}")
