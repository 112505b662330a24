"""One thread for one engine that blocks, and that may never come back.

An executor of one thread, whose work is done in order. Unlike those of ``concurrent.futures`` its thread is a
daemon: an engine that hangs in native code cannot be ended, and must not keep the process from ending.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread(Executor):
    """See the module.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        # Bounded by who owns it: one call waits at a time, and a clean-up behind it.
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._is_shut_down = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing that it does or is to do."""
        return self._unfinished == 0

    @property
    def is_awaited(self) -> bool:
        """Whether something waits behind what it does."""
        return self._unfinished > 1

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have it done behind what is being done.

        Raises:
            RuntimeError: it was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the thread takes no more work")
            self._unfinished += 1
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and end behind what was given.

        Args:
            wait: until the thread has ended.
            cancel_futures: what has not begun is not done.
        """
        with self._lock:
            if not self._is_shut_down:
                self._is_shut_down = True
                self._jobs.put(None)
        if cancel_futures:
            self._cancel_waiting()
        if wait:
            self._thread.join()

    def _cancel_waiting(self) -> None:
        kept = False
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                kept = True
            else:
                job[0].cancel()
                self._done()
        if kept:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                self._done()
                continue
            try:
                result = work()
            except BaseException as error:  # handed to whoever waits, as executors do
                self._done()
                future.set_exception(error)
            else:
                # Before whoever waits goes on, and looks.
                self._done()
                future.set_result(result)

    def _done(self) -> None:
        with self._lock:
            self._unfinished -= 1
