"""Calls of OpenAI's realtime protocol over WebRTC that are on, and further connections to them.

A further connection (OpenAI's sideband) is a socket by which an application's server follows a call that its
page or app holds: it receives the events that the client is sent, and its own events act as the client's.
So the server runs tools whose secrets are not for the page.

Decides who may end or follow a call: its client, the application of its client, and the operator; without
client keys a client with the id. A call is none for any other. A connection that does not read is closed when
``MOST_UNSENT_BYTES`` wait for it; the call and its other connections go on. It ends with the call, after the
last events.

A connection's tasks are those of the handler of its socket, which ends them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fastapi import HTTPException, WebSocket
from loguru import logger
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from starlette.websockets import WebSocketDisconnect

from parley.core.grants import ClientIdentity
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.serving.gateway.sockets.eval_socket import close_socket

MOST_UNSENT_BYTES = 4_000_000
# Further connections to one call.
MOST_FOLLOWING = 4
# Longest write, and the longest time for the last events of a call.
SEND_S, LAST_S, CLOSE_S = 10.0, 2.0, 3.0
# Codes of close frames: not read, and data that is not text.
UNREAD, NOT_TEXT = 1013, 1003


class EventsOfCall(Protocol):
    """Events between a call and its client (``transports.webrtc.event_channel.EventChannel``)."""

    def follow(self, take: Callable[[str], None]) -> Callable[[], None]:
        """Report each text to the client from here on; return how to end that."""
        ...

    async def put(self, text: str) -> None:
        """Take a text as one of the client's."""
        ...

    async def ended(self) -> None:
        """Return when the client has left, or the call is over."""
        ...


class EventsConnection(Protocol):
    """Connection of a client with events of its own."""

    @property
    def events(self) -> EventsOfCall:
        """Events between the call and its client."""
        ...


@dataclass(eq=False)
class HeldCall:
    """Call that is on.

    Attributes:
        connection: of its client.
        events: between the call and its client.
        protocol: of its client.
        owner: of its session; None for the operator's, and an anonymous client's.
        following: number of further connections.
    """

    connection: SmallWebRTCConnection
    events: EventsOfCall
    protocol: OpenAIRealtime
    owner: str | None
    following: int = 0

    async def follow(self, websocket: WebSocket) -> None:
        """Serve a further connection, which is accepted, to its end or that of the call."""
        self.following += 1
        try:
            await _Follower(websocket, self.events, self.protocol.created()).serve()
        finally:
            self.following -= 1


class HeldRealtimeCalls:
    """Calls of this process that are on, by their ids."""

    def __init__(self) -> None:
        self._held: dict[str, HeldCall] = {}

    def add(self, call_id: str, call: HeldCall, task: asyncio.Task[None]) -> None:
        """Hold a call until its conversation has ended."""
        self._held[call_id] = call
        task.add_done_callback(lambda _task: self._held.pop(call_id, None))

    def find(self, call_id: str, identity: ClientIdentity, *, is_open: bool) -> HeldCall:
        """Return a call of a client.

        Args:
            call_id: of the call.
            identity: of the client.
            is_open: the server has no client keys.

        Raises:
            HTTPException: 404, there is no such call, or it is another client's.
        """
        held = self._held.get(call_id)
        if held is None or not (is_open or identity.is_operator or identity.owns(held.owner)):
            raise HTTPException(404, "there is no such call")
        return held


class _Follower:
    """Further connection to one call.

    Args:
        websocket: accepted.
        events: of the call.
        first: its first text, about the session as it is.
    """

    def __init__(self, websocket: WebSocket, events: EventsOfCall, first: str) -> None:
        self._websocket = websocket
        self._events = events
        self._unsent = deque([first])
        self._unsent_bytes = len(first)
        self._news = asyncio.Event()
        self._news.set()
        self._is_over = False
        self._code = 1000

    async def serve(self) -> None:
        """Pass events on in both directions until one side ends."""
        leave = self._events.follow(self._take)
        reading, writing, ended = tasks = [
            asyncio.create_task(self._read(), name="sideband.reader"),
            asyncio.create_task(self._write(), name="sideband.writer"),
            asyncio.create_task(self._events.ended(), name="sideband.call"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._end()
            if ended.done() and not reading.done():
                await asyncio.wait({writing}, timeout=LAST_S)
        finally:
            leave()
            for task in tasks:
                task.cancel()
            for fault in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(fault, Exception):
                    # The boundary of one connection: it ends, and the call goes on.
                    logger.opt(exception=fault).error(f"a connection to a call: {type(fault).__name__}")
            await close_socket(self._websocket, self._code, within_s=CLOSE_S)

    def _take(self, text: str) -> None:
        self._unsent.append(text)
        self._unsent_bytes += len(text)
        if self._unsent_bytes > MOST_UNSENT_BYTES:
            self._code = UNREAD
            self._unsent.clear()
            self._end()
        self._news.set()

    def _end(self) -> None:
        self._is_over = True
        self._news.set()

    async def _read(self) -> None:
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                self._code = NOT_TEXT
                return
            await self._events.put(text)

    async def _write(self) -> None:
        try:
            while self._unsent or not self._is_over:
                if not self._unsent:
                    self._news.clear()
                    await self._news.wait()
                    continue
                text = self._unsent.popleft()
                self._unsent_bytes -= len(text)
                async with asyncio.timeout(SEND_S):
                    await self._websocket.send_text(text)
        except TimeoutError:
            self._code = UNREAD
        except (WebSocketDisconnect, RuntimeError):
            # The connection has ended; its reader reports that too.
            return
