"""Callers in the queue for a line: reports of their position, and detection of those who leave.

Input: the request of a conversation for its line (``serving.gateway.line_request``). Output: positions in the
queue as messages in the client's protocol. These are RTVI server messages of kind ``queue``, as for a worker
of a pool (``pipelines.queue_announcer``), or those of its protocol. No other part of the conversation exists
meanwhile: no session is opened, no engine is used. Each function returns whether the conversation has its
line. It has none when the caller has left or may not wait any longer, and the caller has then received the
reason.

A few of the messages that a client sends before it has its line are kept for its conversation: a browser's
``client-ready``, ``MOST_EARLY`` messages of a socket. A client that sends more is given up.
"""

import asyncio
import json
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from starlette.websockets import WebSocketDisconnect

from parley.core.errors import CapacityError
from parley.protocols.client_protocol import QueueUpdate
from parley.serving.gateway.line_request import LineRequest, ReportPlace
from parley.serving.gateway.sockets.replayable_socket import Message, ReplayableSocket
from parley.transports.webrtc.early_peer import EarlyPeer
from parley.transports.websocket.pipecat_frames import ClientAudio, client_frame, message_frame
from parley.transports.websocket.pipecat_socket import CheckedSocket
from parley.transports.websocket.session import SocketCall

MOST_EARLY = 64
TRY_AGAIN_LATER = 1013


async def wait_as_browser(
    line: LineRequest | None, connection: SmallWebRTCConnection, *, vanish_ms: int
) -> bool:
    """Wait for the line of a browser's call; return whether it has one.

    Args:
        line: request of the call; None when it has a line already.
        connection: connection of the browser.
        vanish_ms: quiet time after which the browser counts as gone.
    """
    if line is None or line.is_granted:
        return True
    peer = EarlyPeer(connection, vanish_ms=vanish_ms)

    async def report_place(place: QueueUpdate) -> None:
        peer.send(server_message(place))

    try:
        await _until_granted(line, report_place, peer.left())
    except CapacityError as error:
        peer.send(server_message(QueueUpdate(0), refused=str(error)))
    finally:
        peer.release()
    if line.is_granted:
        peer.send(server_message(QueueUpdate(0)))
    return line.is_granted


async def wait_as_socket(
    line: LineRequest | None, websocket: ReplayableSocket, *, in_frames: bool = False
) -> bool:
    """Wait for the line of a socket that speaks RTVI.

    Args:
        line: request of the call; None when it has a line already.
        websocket: socket of the client.
        in_frames: its messages are frames of Pipecat's. Its audio of that time is dropped.
    """
    if line is None or line.is_granted:
        return True
    waiting = _WaitingSocket(websocket, in_frames=in_frames)
    try:
        await _until_granted(line, waiting.report_place, waiting.left())
    except CapacityError as error:
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.close(TRY_AGAIN_LATER, str(error)[:100])
    if line.is_granted:
        websocket.put_back(waiting.early)
        await waiting.report_place(QueueUpdate(0))
    return line.is_granted


class _WaitingSocket:
    """Socket of a client in the queue.

    Args:
        websocket: socket of the client.
        in_frames: its messages are frames of Pipecat's.

    Attributes:
        early: messages that came meanwhile, for the call.
    """

    def __init__(self, websocket: ReplayableSocket, *, in_frames: bool) -> None:
        self.early: list[Message] = []
        self._websocket = websocket
        self._in_frames = in_frames

    async def report_place(self, place: QueueUpdate) -> None:
        """Send the client its place."""
        message = server_message(place)
        with suppress(WebSocketDisconnect, RuntimeError):
            if self._in_frames:
                await self._websocket.send_bytes(message_frame(message))
            else:
                await self._websocket.send_text(json.dumps(message))

    async def left(self) -> None:
        """Return when the client has left, or has sent more than is kept."""
        peer = CheckedSocket(self._websocket) if self._in_frames else self._websocket
        while len(self.early) < MOST_EARLY:
            message = await peer.receive()
            if message["type"] == "websocket.disconnect":
                self.early.append(message)
                return
            if not self._in_frames or not isinstance(client_frame(message["bytes"]), ClientAudio):
                self.early.append(message)


async def wait_as_client(line: LineRequest | None, session: SocketCall) -> bool:
    """Wait for the line of a client that speaks a protocol of its own; return whether it has one.

    Args:
        line: request of the call; None when it has a line already.
        session: session of the client, open.

    Raises:
        CapacityError: the call may not wait any longer; the protocol has a message for it.
    """
    if line is None or line.is_granted:
        return True

    async def report_place(place: QueueUpdate) -> None:
        session.queued(place)

    async def left() -> None:
        await session.gone.wait()

    await _until_granted(line, report_place, left())
    if line.is_granted:
        session.queued(QueueUpdate(0))
    return line.is_granted


def server_message(place: QueueUpdate, *, refused: str = "") -> dict[str, Any]:
    """Return a position in the queue as an RTVI message; 0 when the caller does not wait any longer.

    Args:
        place: position of the caller.
        refused: reason for which they have no line; empty when they have one, or wait.
    """
    wait_s = None if place.wait_s is None else round(place.wait_s)
    data: dict[str, Any] = {"kind": "queue", "position": place.position, "wait_s": wait_s}
    if place.ticket_id:
        data["ticket_id"] = place.ticket_id
    if refused:
        data["refused"] = refused
    return {"label": "rtvi-ai", "type": "server-message", "data": data}


async def _until_granted(line: LineRequest, report_place: ReportPlace, left: Awaitable[None]) -> None:
    """Return when the line is granted or the caller has left; raise the errors of the request."""
    granted = asyncio.ensure_future(line.granted(report_place))
    leaving = asyncio.ensure_future(left)
    try:
        await asyncio.wait({granted, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if granted.done():
            # A caller that reads nothing has left.
            with suppress(TimeoutError):
                granted.result()
    finally:
        for task in (granted, leaving):
            task.cancel()
        await asyncio.gather(granted, leaving, return_exceptions=True)
