"""A client of a turn-based socket: messages in one by one, messages out one by one.

Input: text, each read by the protocol's function. Long work (JSON and base64 of over ``LARGE_BYTES``) is done
in a thread. A ``stop`` and the client's leaving are noticed at any time, also during other work. Output:
bytes in a message are written as base64. Decides what a client may do to this process:

* a refused message is answered with the reason; ``most_refusals`` in a row end it;
* what it may send and cost in a second is bounded (``transports.client_budget``), and messages that come
  while ``most_waiting`` wait are refused;
* a client that does not read what it is sent within ``send_s`` is given up.

Owns one task, the reader, from ``open`` to ``close``.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from loguru import logger
from pydantic import Field

from parley.protocols.client_protocol import REFUSED, UNREAD, Message, ProtocolError, written
from parley.runtime.busy_time import Metered
from parley.runtime.loop_clock import LoopClock
from parley.transports.client_budget import ClientBudget, ClientShare
from parley.transports.websocket.session import SocketPeer, SocketSettings

# JSON and base64 of this size take a third of a millisecond.
LARGE_BYTES = 100_000

T = TypeVar("T")


class ChatSocketTuning(SocketSettings, ClientShare):
    """Bounds of one client of ``/ws/chat`` and ``/ws/streaming``, with those that no deployment sets."""

    messages_per_s: float = Field(10.0, ge=0.1, le=10_000)
    burst_messages: int = Field(40, ge=1, le=100_000)
    most_refusals: int = Field(
        20, ge=1, le=10_000, description="consecutive refused messages after which the client is disconnected"
    )
    most_waiting: int = Field(8, ge=1, le=1_000, description="messages that may wait for the one in progress")
    send_s: float = Field(10.0, gt=0, le=120)
    idle_s: float = Field(
        300.0,
        gt=0,
        le=86_400,
        description="/ws/streaming: time without a request after which the client is disconnected",
    )
    most_audio_s: float = Field(
        120.0,
        gt=0,
        le=3_600,
        description="recordings in one request; the limit on the length of a message usually applies first",
    )
    hear_s: float = Field(30.0, gt=0, le=600, description="longest wait for the transcript of a recording")
    prefill_s: float = Field(60.0, gt=0, le=600, description="longest time to read a question")
    answer_s: float = Field(120.0, gt=0, le=3_600, description="longest time to generate an answer")


class MessageSocket(Generic[T]):
    """Socket of one client.

    Args:
        peer: the client's socket.
        read: makes a typed message of a text, or raises ProtocolError; runs in a thread for a large one.
        is_stop: returns whether a message ends the present answer; such a message is not queued.
        settings: bounds.
        on_first_message: called with the first message that is accepted; must not block.

    Attributes:
        has_spoken: a message was accepted.
        gone: set when the other side is gone.
        stopped: set when a stop came after the message taken last, also when it came before that was taken.
        given_up: reason with which this side gave the client up, and a sentence for readers; None: it did
            not.
    """

    def __init__(
        self,
        peer: SocketPeer,
        read: Callable[[str], T],
        *,
        is_stop: Callable[[T], bool],
        settings: ChatSocketTuning,
        on_first_message: Callable[[], None] | None = None,
    ) -> None:
        self.has_spoken = False
        self._on_first_message = on_first_message
        self.gone = asyncio.Event()
        self.stopped = asyncio.Event()
        self.given_up: tuple[str, str] | None = None
        self._peer = peer
        self._read_message = read
        self._is_stop = is_stop
        self._settings = settings
        self._inbox: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue(settings.most_waiting + 1)
        # Number of messages that came, and the number of the last stop among them.
        self._came = self._stop_came = 0
        self._clock = LoopClock()
        self._budget = ClientBudget(settings)
        self._refusals = 0
        self._sending = asyncio.Lock()
        self._close: tuple[int, str] | None = None
        self._reader: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to read."""
        self._reader = asyncio.create_task(self._listen(), name="messages.reader")

    async def next(self, within_s: float) -> T | None:
        """Return the next message; None when there will be no more.

        Raises:
            TimeoutError: none came within ``within_s``.
        """
        async with asyncio.timeout(within_s):
            taken = None if self.gone.is_set() and self._inbox.empty() else await self._inbox.get()
        if taken is None:
            return None
        came, message = taken
        if self._stop_came > came:
            self.stopped.set()
        else:
            self.stopped.clear()
        return message

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; values that are bytes become base64. Has no effect when the client is gone."""
        size = sum(len(value) for value in message.values() if isinstance(value, (bytes, str)))
        text = await asyncio.to_thread(_encoded, message) if size > LARGE_BYTES else _encoded(message)
        async with self._sending:
            if self.gone.is_set():
                return
            try:
                async with asyncio.timeout(self._settings.send_s):
                    went_out = await self._peer.send(text)
            except TimeoutError:
                logger.warning("a client of a chat socket does not read, disconnecting it")
                self.give_up(1013, "what you were sent was not read", why=UNREAD)
                return
        if not went_out:
            self._leave()

    def give_up(self, code: int, reason: str, *, why: tuple[str, str]) -> None:
        """Give the client up: nothing more is read from it or sent to it.

        Args:
            code, reason: of the close frame.
            why: reason of the end, and a sentence for readers.
        """
        self._close = self._close or (code, reason)
        if not self.gone.is_set():
            self.given_up = why
        self._leave()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the socket and end the reader."""
        code, reason = self._close or (code, reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.send_s):
                await self._peer.close(code, reason)
        # A task that was cancelled refers to this object by its traceback.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait({reader})

    async def _listen(self) -> None:
        try:
            while not self.gone.is_set():
                try:
                    text = await self._peer.receive()
                    if text is None:
                        return
                    await self._handle(text)
                    self._refusals = 0
                except ProtocolError as refusal:
                    await self.refuse(refusal)
                text = None
                wait_us = self._budget.wait_us(self._clock.now_us())
                if wait_us:
                    await asyncio.sleep(wait_us / 1_000_000)
        finally:
            self._leave()

    async def _handle(self, text: str) -> None:
        if not self._budget.take(len(text), self._clock.now_us()):
            raise ProtocolError(
                f"over {self._settings.messages_per_s:g} messages per second", code="rate_limited"
            )
        reading = Metered(self._read_text(text))
        try:
            self._take(await reading)
        finally:
            self._budget.spend(reading.busy_us, self._clock.now_us())

    async def _read_text(self, text: str) -> T:
        if len(text) > LARGE_BYTES:
            return await asyncio.to_thread(self._read_message, text)
        return self._read_message(text)

    def _take(self, message: T) -> None:
        self._came += 1
        if not self.has_spoken and not self._is_stop(message):
            self.has_spoken = True
            if self._on_first_message is not None:
                self._on_first_message()
        if self._is_stop(message):
            self._stop_came = self._came
            self.stopped.set()
        elif self._inbox.qsize() >= self._settings.most_waiting:
            raise ProtocolError(
                "too many messages are waiting: send the next one when this one is answered", code="too_fast"
            )
        else:
            self._inbox.put_nowait((self._came, message))

    async def refuse(self, refusal: ProtocolError) -> None:
        """Send the reason for refusing a message; give the client up after ``most_refusals`` in a row."""
        self._refusals += 1
        await self.send({"type": "error", "error": str(refusal), "code": refusal.code})
        if self._refusals >= self._settings.most_refusals:
            reason = f"{self._refusals} messages in a row were refused: {refusal}"
            self.give_up(1008, reason, why=REFUSED)

    def _leave(self) -> None:
        if not self.gone.is_set():
            self.gone.set()
            # The queue has one extra place for this, after all messages that wait.
            self._inbox.put_nowait(None)


def _encoded(message: Mapping[str, Any]) -> str:
    shown: Message = {
        name: written(value) if isinstance(value, bytes) else value for name, value in message.items()
    }
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair, which JSON can hold and UTF-8 cannot, becomes an escape again.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
