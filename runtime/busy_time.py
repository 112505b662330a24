"""Measurement of the time for which a coroutine keeps its thread busy, without its suspensions."""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Metered(Generic[T]):
    """Awaitable that runs a coroutine and adds up the processor time of its steps.

    Args:
        coroutine: not awaited yet.

    Attributes:
        busy_us: processor time so far.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.busy_us = 0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            began_ns = time.thread_time_ns()
            try:
                awaited = step(value)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                # Keeping the exception would create a cycle with its own traceback.
                value = None
                self.busy_us += (time.thread_time_ns() - began_ns) // 1000
            try:
                value = yield awaited
                step = self._coroutine.send
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                value, step = error, self._coroutine.throw
