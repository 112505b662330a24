"""A supervised child with a large model, for threads that wait: one question, one answer, one deadline.

Owns a thread with an event loop, on which the child lives. A question that is stopped or late is forgotten,
and a late answer to it is dropped. Late: the child is killed, and the next one loads at once. Thread-safe.
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

from core.errors import EngineError
from runtime.engine_hosting.child import ChildSettings, EngineChild
from runtime.engine_hosting.messages import EngineFailure, EngineMessage, MessageType

T = TypeVar("T")
# A stop may go unseen for so long by a thread that waits.
POLL_S = 0.02


class BlockingChild:
    """See the module.

    Args:
        command: see ``EngineChild``, which also has the others.
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
        """The process id of the child while there is one."""
        return self._child.pid

    @property
    def restarts(self) -> int:
        """How often the child was started again; numbers its lives, for ``ask`` and ``kill``."""
        return self._child.restarts

    @property
    def loaded(self) -> Mapping[str, Any]:
        """What the child answered when its engine was loaded."""
        return self._child.loaded

    @property
    def unanswered(self) -> int:
        """Questions that wait for their answers."""
        return len(self._pending)

    def start(self) -> None:
        """Start the child and wait until its engine is loaded. Raises as ``Supervisor.start``."""
        try:
            self._run(self._child.start()).result()
        except BaseException:
            self.close()
            raise

    def wait_ready(self, is_stopped: Callable[[], bool]) -> bool:
        """Wait until the engine is loaded, also after a restart; return False when stopped.

        Raises:
            AgentError: see ``Supervisor.wait_ready``.
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

    def tell(self, type_: MessageType) -> None:
        """Send a message that has no answer. Raises EngineError when closed."""
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
        """Return the answer; None when ``is_stopped`` says so first: the child is stopped as well.

        Args:
            type_: of the question.
            facts: of the question.
            payload: of the question.
            life: of the child that the question is for.
            within_s: longest wait; the child is killed then.
            is_stopped: asked every ``POLL_S``.

        Raises:
            AgentError: the failure that the child answers.
            EngineError: the child ends, or does not answer in time and is killed.
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
            self.tell(MessageType.STOP)
        return None

    def kill(self, reason: str, *, life: int) -> None:
        """End a life of the child that lasts. Its memory is free afterwards, or it hangs in a driver."""
        if self._is_closed:
            return
        try:
            self._run(self._kill(reason, life)).result(self._close_timeout_s)
        except TimeoutError:
            logger.error(f"{self._name}: the process {self.pid} cannot be killed: it holds its device")

    def close(self) -> None:
        """End the child and the thread. No child is started from here on."""
        if self._is_closed:
            return
        self._is_closed = True
        self._run(self._child.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError(f"{self._name}: the worker is gone", engine=self._name)

    def _schedule(self, call: Callable[..., None], *arguments: object) -> None:
        self._check_open()
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError as error:
            # It was closed a moment ago.
            raise EngineError(f"{self._name}: the worker is gone", engine=self._name) from error

    # On the loop.

    def _run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _ask(self, message: EngineMessage, life: int, answer: "Future[EngineMessage]") -> None:
        if not self._child.is_ready or life != self.restarts:
            answer.set_exception(EngineError(f"{self._name}: the worker is gone", engine=self._name))
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
