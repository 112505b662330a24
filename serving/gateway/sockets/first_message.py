"""Recognition of the protocol of a realtime client that names none in its address.

OpenAI's clients name a model, and Unmute's a subprotocol. Pages of the MiniCPM-o server should name a mode,
and some do not. Their first message shows it: its fields are those of one protocol alone. Some send none
before they have received ``session.queue_done``, which other clients ignore, so that is sent to a client that
says nothing at first.
"""

import asyncio
import json
from contextlib import suppress

from starlette.websockets import WebSocketDisconnect

from parley.protocols.client_protocol import MOST_REALTIME_VALUES, ProtocolError, json_object
from parley.serving.gateway.sockets.replayable_socket import ReplayableSocket

# Silence after which a client may wait for a message, and the whole wait for its first one.
QUIET_S, FIRST_S = 0.3, 1.0
QUEUE_DONE = json.dumps({"type": "session.queue_done"})
_SESSION_FIELDS = {"instructions", "max_slice_nums", "ref_audio", "tts_ref_audio"}
_APPEND_FIELDS = {"video_frames", "force_listen", "max_slice_nums"}


class FirstMessage:
    """First message of a client, which stays on its socket.

    Args:
        websocket: accepted.

    Attributes:
        text: the message; empty when none came in time.
        was_placed: the client was sent ``session.queue_done``.
    """

    def __init__(self, websocket: ReplayableSocket) -> None:
        self.text = ""
        self.was_placed = False
        self._websocket = websocket

    async def read(self) -> None:
        """Wait for the message."""
        reading = asyncio.create_task(self._websocket.receive(), name="socket.first_message")
        try:
            done, _ = await asyncio.wait({reading}, timeout=QUIET_S)
            if not done:
                self.was_placed = True
                # A client that has left is noticed by the call.
                with suppress(WebSocketDisconnect, RuntimeError):
                    await self._websocket.send_text(QUEUE_DONE)
                done, _ = await asyncio.wait({reading}, timeout=FIRST_S - QUIET_S)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
        if done:
            message = reading.result()
            self._websocket.put_back([message])
            self.text = message.get("text") or ""


def is_minicpm(text: str) -> bool:
    """Return whether a first message is one of the MiniCPM-o realtime protocol and not of OpenAI's."""
    try:
        event = json_object(text, most_values=MOST_REALTIME_VALUES)
    except ProtocolError:
        return False
    if "event_id" in event:
        return False
    match event.get("type"):
        case "session.update":
            session = event.get("session")
            return (
                isinstance(session, dict) and "instructions" in session and session.keys() <= _SESSION_FIELDS
            )
        case "input_audio_buffer.append":
            return bool(event.keys() & _APPEND_FIELDS)
        case kind:
            return kind == "session.close"
