"""Executor with one daemon thread, for an engine whose calls block and may hang.

Jobs run in order. The thread is a daemon, unlike those of ``concurrent.futures``: an engine that hangs in
native code cannot be stopped, and must not keep the process from exiting.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread(Executor):
    """Executor with one daemon thread; jobs run in order.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        # Bounded by its owner: at most one call waits at a time, followed by a clean-up.
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._is_shut_down = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """True when no job runs or waits."""
        return self._unfinished == 0

    @property
    def is_awaited(self) -> bool:
        """True when a job waits for the one that runs."""
        return self._unfinished > 1

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a job after those already submitted.

        Raises:
            RuntimeError: the executor was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the thread accepts no more work")
            self._unfinished += 1
            # With the submitter's context: the thread works for its call (``trace_context``).
            context = copy_context()
            self._jobs.put((future, lambda: context.run(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work; the thread ends after the jobs that were submitted.

        Args:
            wait: block until the thread has ended.
            cancel_futures: cancel the jobs that have not begun.
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
            except BaseException as error:  # passed to the waiter through the future, as other executors do
                self._done()
                future.set_exception(error)
            else:
                # Update the count first: the waiter may look at it as soon as it has the result.
                self._done()
                future.set_result(result)

    def _done(self) -> None:
        with self._lock:
            self._unfinished -= 1
