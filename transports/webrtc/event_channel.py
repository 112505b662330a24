"""Data channel of a client that speaks a protocol of its own over WebRTC, as the peer of a ``SocketCall``.

Input: texts that the channel's guard has let pass, in order; the first of them may come from elsewhere, such
as the request that began the call. Output: texts on the channel that the client has opened, which wait while
``MOST_BUFFERED_BYTES`` are on their way. Further connections of the call see what is sent (``follow``), and
their texts are read as the client's (``put``). Decides when the client is present: its connection is up. A
client without a data channel is served too; what it would have been sent is dropped after ``OPEN_S``.

Slow client: ``send`` waits, and its caller has the deadline. Too much at once: over ``MOST_WAITING`` texts
that were not read, further ones are refused. Gone: the channel or the connection is closed, and ``receive``
returns None.

Owns no task.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiortc import RTCDataChannel
from loguru import logger
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.protocols.client_protocol import ProtocolError
from parley.transports.webrtc.connection_state import OVER

# Name of the channel in OpenAI's protocol. A client that names it otherwise is served by its first one.
LABEL = "oai-events"
MOST_WAITING = 512
# A further connection leaves room for the client itself.
MOST_PUT = MOST_WAITING // 2
# A message of a further connection may have 4 MB: those that wait have not many more than this together.
MOST_PUT_CHARS = 1_000_000
MOST_BUFFERED_BYTES = 262_144
# A channel is open one round trip after the connection.
OPEN_S = 5.0
# Longest wait for the last messages to leave at the end of a call, and for the channel to be closed.
LEAVE_S = 1.0


class EventChannel:
    """Channel of one client.

    Args:
        connection: of the client, before it is negotiated.
        open_s: longest wait for the channel; what is sent after it, before the channel is open, is dropped.
    """

    def __init__(self, connection: SmallWebRTCConnection, *, open_s: float = OPEN_S) -> None:
        self._open_s = open_s
        self._last_s: float | None = None
        # Not the connection, which refers to this object.
        self._pc = connection.pc
        self._channel: RTCDataChannel | None = None
        self._came: deque[str | ProtocolError] = deque()
        self._came_chars = 0
        # Settings that came with the offer.
        self._first = ""
        # Set when ``receive`` has taken one; further connections of the call.
        self._taken = asyncio.Event()
        self._following: list[Callable[[str], None]] = []
        # Set when something has changed that ``receive``, ``connected`` or ``send`` may wait for.
        self._news, self._room, self._is_open = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._up, self._ended = asyncio.Event(), asyncio.Event()
        self._is_gone = self._has_none = False
        self._pc.on("datachannel", self._on_channel)
        self._pc.on("connectionstatechange", self._on_state)
        connection.add_event_handler("closed", self._on_closed)

    def note_packet(self) -> None:
        """Note a packet of any kind as a sign of life."""
        self._last_s = asyncio.get_running_loop().time()

    def quiet_ms(self) -> int:
        """Return for how many milliseconds nothing came from the client; 0 before the first packet."""
        if self._last_s is None:
            return 0
        return int((asyncio.get_running_loop().time() - self._last_s) * 1000)

    @property
    def is_gone(self) -> bool:
        """True when the channel or the connection is closed."""
        return self._is_gone

    def take(self, text: str) -> None:
        """Keep a text of the client for ``receive``; refuse it where too many wait."""
        if len(self._came) < MOST_WAITING:
            self._came.append(text)
            self._came_chars += len(text)
        elif len(self._came) == MOST_WAITING:
            self._came.append(ProtocolError("too many events at once", code="rate_limited"))
        self._news.set()

    def take_when_up(self, text: str) -> None:
        """Take a text of the offer once the connection is up: an offer alone is no sign of life."""
        self._first = text
        self._on_state()

    async def put(self, text: str) -> None:
        """Take a text of a further connection as one of the client's; waits while many or long ones wait."""
        while self._is_behind and not self._is_gone:
            self._taken.clear()
            await self._taken.wait()
        self.take(text)

    @property
    def _is_behind(self) -> bool:
        """True while further connections have to wait."""
        return len(self._came) >= MOST_PUT or self._came_chars > MOST_PUT_CHARS

    def follow(self, take: Callable[[str], None]) -> Callable[[], None]:
        """Report each text to the client from here on, also one that it does not get; return how to end that.

        ``take`` may not block or raise.
        """
        self._following.append(take)
        return lambda: self._following.remove(take)

    async def ended(self) -> None:
        """Return when the channel or the connection is closed."""
        await self._ended.wait()

    def refuse(self, refusal: ProtocolError) -> None:
        """Have ``receive`` raise the refusal of a message that the guard has dropped."""
        if len(self._came) < MOST_WAITING:
            self._came.append(refusal)
            self._news.set()

    async def connected(self) -> bool:
        """Return whether the client's connection is up, once that is known.

        The signaling ends a connection that does not come up.
        """
        self._on_state()
        await self._up.wait()
        return not self._is_gone

    async def receive(self) -> str | None:
        """Return the next text; None when there will be no more.

        Raises:
            ProtocolError: a message was dropped.
        """
        while not self._came:
            if self._is_gone:
                return None
            self._news.clear()
            await self._news.wait()
        came = self._came.popleft()
        self._taken.set()
        if isinstance(came, ProtocolError):
            raise came
        self._came_chars -= len(came)
        return came

    async def send(self, text: str) -> bool:
        """Send a text; return whether the client is still there."""
        for take in self._following:
            take(text)
        if not self._is_open.is_set() and not self._has_none:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._open_s):
                    await self._is_open.wait()
            # Not for each message: a call may do without the channel.
            self._has_none = not self._is_open.is_set()
        await self._until_buffered(MOST_BUFFERED_BYTES)
        if self._is_gone:
            return False
        channel = self._channel
        if channel is not None:
            if channel.readyState != "open":
                return False
            try:
                channel.send(text)
            except ValueError as error:
                # Such as an item of the client with what was added to it. The call goes on without it.
                logger.warning(f"an event is left out, which is too long for its client: {error}")
        return True

    async def close(self, code: int, reason: str) -> None:
        """Close the channel after the last messages; a channel has no code and reason."""
        logger.debug(f"the events of a call end: {code} {reason}")
        await self.leave()

    async def leave(self) -> None:
        """Close the channel after the last messages, so that the end of the connection is no error for it."""
        channel = self._channel
        if channel is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._until_buffered(0)
                channel.close()
                await self._ended.wait()

    async def _until_buffered(self, most_bytes: int) -> None:
        channel = self._channel
        if channel is None:
            return
        # The channel reports when all of it has left.
        while channel.bufferedAmount > most_bytes and not self._is_gone:
            self._room.clear()
            await self._room.wait()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None and (channel.label != LABEL or self._channel.label == LABEL):
            return
        self._channel = channel
        channel.on("bufferedamountlow", self._room.set)
        channel.on("close", self._end)
        self._is_open.set()

    def _on_state(self) -> None:
        if self._pc.connectionState == "connected":
            self._up.set()
            first, self._first = self._first, ""
            if first:
                self.take(first)
        elif self._pc.connectionState in OVER:
            self._end()

    async def _on_closed(self, _connection: SmallWebRTCConnection) -> None:
        self._end()

    def _end(self) -> None:
        self._is_gone, self._channel = True, None
        for event in (self._news, self._room, self._is_open, self._up, self._ended, self._taken):
            event.set()


class EventConnection(SmallWebRTCConnection):
    """Connection of a client whose data channel carries a protocol of its own.

    Attributes:
        events: messages of its data channel.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events = EventChannel(self)

    async def disconnect(self) -> None:
        """Hang up, first on the data channel."""
        await self.events.leave()
        await super().disconnect()

    def send_app_message(self, message: Any) -> None:
        """Send nothing: the client does not know Pipecat's messages."""
