"""Conversation with the hosted engine: its messages, its deadlines, its end.

Input: messages of the worker link. Outputs: an answer to each request, in order and after its pieces; calls
of the engine, one at a time, in a thread of the conversation. It ends when its socket does, when it is
released, when its lease or its pause expires, when a newer owner of its session connects, and when a call of
the engine is overdue. However it ends, ``run`` returns when everything is cleaned up, or raises
``EngineHungError`` when that is impossible. The thread is lost then, and the process must end.

Slow client: the next message is read when there is room for it. Pieces wait for the client up to a bound, and
the engine never waits with them, because a voice may be shared by all; a call that produces more fails.
Output of a stopped request is not sent any more. Owns five tasks, which end with ``run``.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Any

from loguru import logger
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from parley.core.errors import AgentError, CapacityError, PeerError
from parley.runtime.engine_hosting.codec import decode, encode
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType, failed
from parley.runtime.engine_thread import EngineThread
from parley.serving.worker.hosting import EngineSession, Hosted, LeaseHolder
from parley.serving.worker.leases import Held
from parley.serving.worker.lifecycle import LifecycleEvent
from parley.serving.worker.settings import WorkerServerSettings
from parley.telemetry.worker_traces import ConversationTraces

LEAST_UNIT_MS = 500
SEND_S = 5.0


class CloseReason(StrEnum):
    """Reason for the end of a conversation."""

    RELEASED = "released"
    GONE = "gone"
    UNREADABLE = "unreadable"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    PAUSE_EXPIRED = "pause_expired"
    HUNG = "hung"
    DRAINED = "drained"


class EngineHungError(Exception):
    """A call of the engine does not return: its thread is lost, with everything that it holds."""


class _Over(Exception):
    def __init__(self, why: CloseReason, number: int = 0) -> None:
        super().__init__(why)
        self.why, self.number = why, number


class WorkerConversation:
    """Conversation of one client.

    Args:
        socket: of the client.
        hosted: the engine.
        held: the lease.
        lessee: identity of the conversation, for the engine.
        settings: deadlines.
        on_event: called with the events of the worker that it causes.
        renew: called when the client has shown that it is present.
        introduce: returns facts of the worker for the first message.
        traces: makes the spans of requests.

    Attributes:
        held: the lease.
        is_broken: the engine's code raised when a conversation was to be opened.
        is_overdue: a call of the engine has not returned in time.
        calls: number of engine calls so far.
        slowest_ms: duration of the slowest of them.
    """

    def __init__(
        self,
        socket: ServerConnection,
        hosted: Hosted,
        held: Held,
        *,
        lessee: LeaseHolder,
        settings: WorkerServerSettings,
        on_event: Callable[[LifecycleEvent], None],
        renew: Callable[[], bool],
        introduce: Callable[[], dict[str, Any]],
        traces: ConversationTraces,
    ) -> None:
        self._socket = socket
        self._hosted = hosted
        self.held = held
        self._lessee = lessee
        self._settings = settings
        self._on_event = on_event
        self._renew = renew
        self._introduce = introduce
        self._traces = traces
        self._thread = EngineThread(f"conversation-{held.session_id[:8]}")
        self._talk: EngineSession | None = None
        self._running: Future[Any] | None = None
        # Deadline of the running call, and its time limit.
        self._due_s = 0.0
        self._within_s = 0.0
        self._loop = asyncio.get_running_loop()
        # Pieces that are not sent yet, with the number of their request. Bounded by their bytes.
        self._unsent: asyncio.Queue[tuple[int, str | bytes]] = asyncio.Queue()
        self._unsent_bytes = 0
        self._unsent_lock = threading.Lock()
        # Number of the newest request that was stopped.
        self._stopped = 0
        self._questions: asyncio.Queue[EngineMessage] = asyncio.Queue(settings.waiting_messages)
        # True when it is to end at the next moment at which nothing is lost.
        self._drains = False
        self._revoked: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()
        self._paused_until_s: float | None = None
        self._pause_changed = asyncio.Event()
        self._closed = asyncio.Event()
        self.is_broken = self.is_overdue = False
        self.calls = 0
        self.slowest_ms = 0.0

    def revoke(self, why: CloseReason) -> None:
        """End the conversation for its client."""
        if not self._revoked.done():
            self._revoked.set_result(why)

    def interrupt(self) -> None:
        """Stop the request that is in progress, whichever it is."""
        if self._talk is not None:
            self._talk.stop()

    def drain(self) -> None:
        """End the conversation as soon as nothing is in progress, because the worker is to end."""
        self._drains = True
        if self._is_between():
            self.revoke(CloseReason.DRAINED)

    def _is_between(self) -> bool:
        is_asked = self._running is not None or not self._questions.empty()
        return self._talk is not None and self._talk.is_between and not is_asked

    async def closed(self) -> None:
        """Wait until everything is cleaned up."""
        await self._closed.wait()

    async def run(self) -> Callable[[], Awaitable[None]]:
        """Serve until the end, and clean up.

        Returns:
            A function that notifies the client which released the engine. The client waits for that, and may
            lease the engine again after it.

        Raises:
            EngineHungError: a call of the engine does not return.
        """
        over = _Over(CloseReason.GONE)
        try:
            over = await self._serve()
        finally:
            self.held.end()
            self._on_event(
                LifecycleEvent.ENDING if self._paused_until_s is None else LifecycleEvent.PAUSE_EXPIRED
            )
            if over.why not in (CloseReason.RELEASED, CloseReason.GONE):
                await self._send_quietly(
                    EngineMessage(MessageType.REVOKED, facts={"message": over.why.value})
                )
            await self._clean_up()
            self._closed.set()

        async def report() -> None:
            if over.number:
                await self._send_quietly(EngineMessage(MessageType.DONE, over.number))

        return report

    async def _serve(self) -> _Over:
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, work in self._works().items():
                    tasks.create_task(work, name=f"conversation.{name}")
        except BaseExceptionGroup as group:
            return _ended_by(group)
        raise AssertionError("a part of the conversation ended on its own")

    def _works(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "read": self._read(),
            "answer": self._answer(),
            "say": self._say(),
            "ping": self._ping(),
            "watch": self._watch(),
        }

    async def _read(self) -> None:
        async for data in self._socket:
            try:
                message = decode(data)
            except PeerError as error:
                await self._send_quietly(failed(0, error))
                raise _Over(CloseReason.UNREADABLE) from error
            self._renew()
            match message.type:
                case MessageType.STOP:
                    self._stop(message.facts.get("of"))
                case MessageType.PAUSE if self._hosted.is_duplex:
                    self._pause(message.facts.get("pause_ms"))
                case MessageType.RESUME if self._hosted.is_duplex:
                    self._resume()
                case _:
                    await self._questions.put(message)
        raise _Over(CloseReason.GONE)

    async def _answer(self) -> None:
        await self._open()
        await self._send(EngineMessage(MessageType.LEASED, facts=self._introduce()))
        while True:
            question = await self._questions.get()
            if question.type is MessageType.RELEASE:
                raise _Over(CloseReason.RELEASED, question.number)
            answer = await self._answered(question)
            await self._unsent.join()
            await self._send_data(answer)
            if self._drains and self._is_between():
                raise _Over(CloseReason.DRAINED)

    def _stop(self, number: object) -> None:
        """Stop one request, where the number says which: it may be over, and another one begun."""
        if isinstance(number, int) and not isinstance(number, bool):
            self._stopped = max(self._stopped, number)
        else:
            self.interrupt()

    def _emit(self, number: int, facts: dict[str, Any], payload: bytes) -> bool:
        """Queue a piece of an answer, from the engine's thread; return False when it is not wanted.

        Raises:
            CapacityError: too much waits to be sent.
        """
        if self._is_unwanted(number):
            return False
        # The engine has shown progress.
        self._due_s = self._loop.time() + self._within_s
        if not facts and not payload:
            return True
        data = encode(EngineMessage(MessageType.PIECE, number, facts, payload))
        limit = self._settings.waiting_bytes
        with self._unsent_lock:
            if self._unsent_bytes + len(data) > limit:
                raise CapacityError("the client does not read the results sent before", limit=limit)
            self._unsent_bytes += len(data)
        self._loop.call_soon_threadsafe(self._unsent.put_nowait, (number, data))
        return True

    def _is_unwanted(self, number: int) -> bool:
        return number <= self._stopped or self.held.is_over

    async def _say(self) -> None:
        while True:
            number, data = await self._unsent.get()
            if not self._is_unwanted(number):
                await self._send_data(data)
            with self._unsent_lock:
                self._unsent_bytes -= len(data)
            self._unsent.task_done()

    async def _open(self) -> None:
        try:
            self._talk = await self._call(lambda: self._hosted.open(self._lessee), self._settings.prepare_ms)
        except _Over:
            raise
        # the outermost level of a conversation: any exception of the engine's code
        except Exception as error:
            logger.opt(exception=None if isinstance(error, AgentError) else error).error(
                f"the engine can open no conversation: {type(error).__name__}: {error}"
            )
            self.is_broken = not isinstance(error, AgentError)
            facts = {"because": "not_ready", "message": "the engine does not open a conversation"}
            await self._send_quietly(EngineMessage(MessageType.REFUSED, facts=facts))
            raise _Over(CloseReason.GONE) from error

    async def _answered(self, question: EngineMessage) -> str | bytes:
        """Return the encoded answer to a request."""
        talk = self._talk
        assert talk is not None
        if self._paused_until_s is not None:
            return encode(failed(question.number, PeerError("the conversation is paused")))
        if question.number <= self._stopped:
            return encode(failed(question.number, PeerError("it was stopped before it began")))
        within_ms = self._settings.prepare_ms if question.type is MessageType.PREPARE else self._unit_ms()

        span = self._traces.begin(question.type, question.facts)

        def emit(facts: dict[str, Any], payload: bytes) -> bool:
            # Speech or text: counts and signs of life precede them.
            if payload or "text" in facts:
                span.piece()
            return self._emit(question.number, facts, payload)

        try:
            with span:
                facts, payload = await self._call(
                    lambda: talk.ask(question.type, question.facts, question.payload, emit), within_ms
                )
        except AgentError as error:
            return encode(failed(question.number, error))
        except _Over:
            raise
        # the outermost level of a conversation: any exception of the engine's code
        except Exception as error:
            logger.opt(exception=error).error(f"the engine raised {type(error).__name__}")
            return encode(failed(question.number, AgentError(f"the engine raised {type(error).__name__}")))
        try:
            return encode(EngineMessage(MessageType.DONE, question.number, facts, payload))
        except (TypeError, ValueError) as error:
            logger.error(f"cannot send a result: {error}")
            return encode(failed(question.number, AgentError("the engine's result cannot be sent")))

    async def _call(self, work: Callable[[], Any], within_ms: int) -> Any:
        """Run a call in the thread.

        An overdue call ends the conversation; the cleanup waits for a call that is still running. A piece
        that is produced is a sign of progress, and the time limit begins anew.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._within_s = within_ms / 1000
        self._due_s = began_s + self._within_s
        self._running = running = self._thread.submit(work)
        wrapped = asyncio.wrap_future(running)
        done: set[asyncio.Future[Any]] = set()
        while not done and (left_s := self._due_s - loop.time()) > 0:
            done, _ = await asyncio.wait({wrapped}, timeout=left_s)
        self.calls += 1
        self.slowest_ms = max(self.slowest_ms, (loop.time() - began_s) * 1000)
        if not done:
            # Its result is not used.
            wrapped.cancel()
            self.is_overdue = True
            self._on_event(LifecycleEvent.OVERDUE)
            raise _Over(CloseReason.HUNG)
        self._running = None
        return wrapped.result()

    def _unit_ms(self) -> int:
        settings, unit_ms = self._settings, self._hosted.unit_ms
        if settings.unit_ms is not None:
            return settings.unit_ms
        return settings.call_ms if unit_ms is None else max(LEAST_UNIT_MS, 2 * unit_ms)

    async def _ping(self) -> None:
        """Renew the lease while the client answers pings, also without requests."""
        while True:
            answered = await self._socket.ping()
            await answered
            self._renew()
            await asyncio.sleep(self._settings.lease_ms / 3_000)

    # Pauses.

    def _pause(self, wanted_ms: object) -> None:
        if self._paused_until_s is not None:
            return
        longest_ms = self._settings.pause_ms
        is_given = isinstance(wanted_ms, int) and wanted_ms > 0
        pause_ms = min(int(wanted_ms), longest_ms) if is_given else longest_ms  # type: ignore[call-overload]
        self._paused_until_s = asyncio.get_running_loop().time() + pause_ms / 1000
        self._on_event(LifecycleEvent.PAUSED)
        self._pause_changed.set()

    def _resume(self) -> None:
        if self._paused_until_s is not None:
            self._paused_until_s = None
            self._on_event(LifecycleEvent.RESUMED)
            self._pause_changed.set()

    async def _watch(self) -> None:
        """Wait for the end that other tasks set, and for that of a pause."""
        loop = asyncio.get_running_loop()
        while True:
            until_s = self._paused_until_s
            if until_s is not None and loop.time() >= until_s:
                raise _Over(CloseReason.PAUSE_EXPIRED)
            self._pause_changed.clear()
            changed = asyncio.ensure_future(self._pause_changed.wait())
            waited_for: set[asyncio.Future[Any]] = {changed, self._revoked}
            try:
                await asyncio.wait(
                    waited_for,
                    timeout=None if until_s is None else until_s - loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                changed.cancel()
            if self._revoked.done():
                raise _Over(self._revoked.result())

    # The end.

    async def _clean_up(self) -> None:
        settings = self._settings
        try:
            if self._talk is not None:
                self._talk.stop()
            running = self._running
            if running is not None:
                # The call may take its whole time limit: a client that hung up is no reason to lose the
                # weights.
                left_ms = max(0.0, self._due_s - asyncio.get_running_loop().time()) * 1000
                await self._returned(running, round(left_ms) + settings.grace_ms)
            was_opened = running is not None and not running.cancelled() and running.exception() is None
            if self._talk is None and running is not None and was_opened:
                # The conversation was opened too late to be used.
                self._talk = running.result()
            if self._talk is not None:
                closing = self._thread.submit(self._talk.close)
                await self._returned(closing, settings.cleanup_ms + settings.grace_ms)
                if (error := closing.exception()) is not None:
                    # The state of the engine is unknown.
                    raise EngineHungError from error
        finally:
            self._thread.shutdown(wait=False)

    async def _returned(self, running: Future[Any], within_ms: int) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + within_ms / 1000
        # Not by a future of the loop: this continues while the task that runs it is cancelled.
        while not running.done():
            if loop.time() >= due_s:
                self._on_event(LifecycleEvent.OVERDUE)
                raise EngineHungError
            await asyncio.sleep(0.01)

    async def _send(self, message: EngineMessage) -> None:
        await self._send_data(encode(message))

    async def _send_data(self, data: str | bytes) -> None:
        async with asyncio.timeout(SEND_S):
            await self._socket.send(data)

    async def _send_quietly(self, message: EngineMessage) -> None:
        with suppress(ConnectionClosed, OSError, TimeoutError):
            await self._send(message)


def _ended_by(group: BaseExceptionGroup[BaseException]) -> _Over:
    """Return the cause that ended the conversation; raise a defect."""
    overs, others = group.split(_Over)
    if others is not None:
        _, defects = others.split((ConnectionClosed, OSError, TimeoutError))
        if defects is not None:
            raise defects
    if overs is None:
        return _Over(CloseReason.GONE)
    error: BaseException = overs
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, _Over)
    return error
