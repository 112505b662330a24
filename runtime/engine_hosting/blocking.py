"""Supervised child with a large model, for blocking threads: one question, one answer, one deadline.

Owns a thread with an event loop, on which the child is supervised. A question that is stopped or times out is
dropped, and so is a late answer to it. On a timeout the child is killed, and the next one loads at once.
Thread-safe.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, TypeVar

from loguru import logger

from parley.core.errors import EngineError
from parley.runtime.engine_hosting.child import ChildSettings, EngineChild
from parley.runtime.engine_hosting.messages import EngineFailure, EngineMessage, MessageType

T = TypeVar("T")
# Interval at which a waiting thread checks whether it was stopped, in seconds.
POLL_S = 0.02


class BlockingChild:
    """Blocking interface to an ``EngineChild``.

    Args:
        command: command line of the child, as in ``EngineChild``.
        load: facts of the first message.
        limits: deadlines.
        name: registry name of the engine, for errors and logs.
    """

    def __init__(
        self, command: Sequence[str], load: Mapping[str, Any], *, limits: ChildSettings, name: str
    ) -> None:
        self._name, self._close_timeout_s = name, limits.close_timeout_s
        self._numbers = count(1)
        self._pending: dict[int, Future[EngineMessage]] = {}
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{name}.child", daemon=True)
        self._thread.start()
        self._child = EngineChild(
            command,
            load,
            limits=limits,
            name=name,
            on_message=self._on_message,
            on_end=self._on_end,
            on_device=True,
            ends_for_good=True,
        )

    @property
    def pid(self) -> int | None:
        """Process id of the child; None without one."""
        return self._child.pid

    @property
    def restarts(self) -> int:
        """Number of restarts of the child; it identifies a life for ``ask`` and ``kill``."""
        return self._child.restarts

    @property
    def loaded(self) -> Mapping[str, Any]:
        """Facts that the child answered when its engine was loaded."""
        return self._child.loaded

    @property
    def unanswered(self) -> int:
        """Number of questions without an answer yet."""
        return len(self._pending)

    def start(self) -> None:
        """Start the child and wait until its engine is loaded. Raises the errors of ``Supervisor.start``."""
        try:
            self._run(self._child.start()).result()
        except BaseException:
            self.close()
            raise

    def wait_ready(self, is_stopped: Callable[[], bool]) -> bool:
        """Wait until the engine is loaded, also during a restart; return False when stopped.

        Raises:
            AgentError: the errors of ``Supervisor.wait_ready``.
        """
        self._check_open()
        waiting = self._run(self._child.wait_ready())
        while not is_stopped():
            if wait({waiting}, POLL_S).done:
                waiting.result()
                return True
            self._check_open()
        waiting.cancel()
        return False

    def notify(self, type_: MessageType) -> None:
        """Send a message that has no answer. Raises EngineError after ``close``."""
        self._schedule(self._child.send, EngineMessage(type_))

    def ask(
        self,
        type_: MessageType,
        facts: Mapping[str, Any] | None = None,
        payload: bytes = b"",
        *,
        life: int,
        within_s: float,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> EngineMessage | None:
        """Return the answer, or None when ``is_stopped`` returned true first; the child then gets a stop
        message.

        Args:
            type_: type of the question.
            facts: facts of the question.
            payload: payload of the question.
            life: life of the child that the question is for, as ``restarts`` counts.
            within_s: longest wait; after it the child is killed.
            is_stopped: called every ``POLL_S``.

        Raises:
            AgentError: the failure that the child answered.
            EngineError: the child ended, or did not answer in time and was killed.
        """
        number, answer = next(self._numbers), Future[EngineMessage]()
        message = EngineMessage(type_, number, facts or {}, payload)
        self._schedule(self._ask, message, life, answer)
        deadline_s = monotonic() + within_s
        try:
            while not is_stopped():
                left_s = deadline_s - monotonic()
                if wait({answer}, max(0.0, min(left_s, POLL_S))).done:
                    return self._checked(answer.result())
                if left_s <= 0:
                    late = f"{type_.value} is not answered in time"
                    self.kill(late, life=life)
                    raise EngineError(f"{self._name}: {late}", engine=self._name)
        finally:
            self._pending.pop(number, None)
        with suppress(EngineError):
            self.notify(MessageType.STOP)
        return None

    def kill(self, reason: str, *, life: int) -> None:
        """Kill the child if this life still lasts. Its memory is free afterwards unless it hangs in a
        driver.
        """
        if self._is_closed:
            return
        try:
            self._run(self._kill(reason, life)).result(self._close_timeout_s)
        except TimeoutError:
            logger.error(f"{self._name}: the process {self.pid} cannot be killed; it still holds its device")

    def close(self) -> None:
        """End the child and the thread. No child is started afterwards."""
        if self._is_closed:
            return
        self._is_closed = True
        self._run(self._child.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError(f"{self._name}: the worker is lost", engine=self._name)

    def _schedule(self, call: Callable[..., None], *arguments: object) -> None:
        self._check_open()
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError as error:
            # The loop was closed a moment ago.
            raise EngineError(f"{self._name}: the worker is lost", engine=self._name) from error

    # Called on the loop, except ``_run`` and ``_checked``.

    def _run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _ask(self, message: EngineMessage, life: int, answer: "Future[EngineMessage]") -> None:
        if not self._child.is_ready or life != self.restarts:
            answer.set_exception(EngineError(f"{self._name}: the worker is lost", engine=self._name))
            return
        self._pending[message.number] = answer
        self._child.send(message)

    def _on_message(self, _stream: int, message: EngineMessage) -> None:
        answer = self._pending.pop(message.number, None)
        if answer is not None:
            answer.set_result(message)

    def _on_end(self) -> None:
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            answer.set_exception(EngineError(f"{self._name}: the worker ended", engine=self._name))

    async def _kill(self, reason: str, life: int) -> None:
        if life == self.restarts:
            self._child.kill(reason)
            await self._child.wait_ended()

    def _checked(self, message: EngineMessage) -> EngineMessage:
        if message.type is MessageType.DONE:
            return message
        raise EngineFailure.read(message.facts).error(self._name)
