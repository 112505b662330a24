"""Executors without threads."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class InlineExecutor(Executor):
    """Executor that runs each job at once in the caller's thread, so that virtual time sees everything."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class TimedExecutor(Executor):
    """Executor that runs one job at a time on the running loop, each for a given time: a thread in virtual
    time.

    Args:
        took_s: duration of a job in seconds; None: it never ends.
    """

    def __init__(self, took_s: Callable[[str], float | None]) -> None:
        self._took_s = took_s
        self._jobs: deque[tuple[Future[Any], Callable[[], Any], str]] = deque()
        self._is_busy = False
        self.started: list[tuple[float, str]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: fn(*args, **kwargs), getattr(fn, "__name__", "")))
        self._next()
        return future

    def _next(self) -> None:
        if self._is_busy or not self._jobs:
            return
        future, work, name = self._jobs.popleft()
        loop = asyncio.get_running_loop()
        self.started.append((loop.time(), name))
        took_s = self._took_s(name)
        self._is_busy = True
        if took_s is not None:
            loop.call_later(took_s, self._end, future, work)

    def _end(self, future: Future[Any], work: Callable[[], Any]) -> None:
        self._is_busy = False
        if not future.cancelled():
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        self._next()
