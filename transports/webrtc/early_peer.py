"""A browser that is connected before there is a pipeline for it: sends it messages and watches it.

Decides which of its data is kept. Audio and pictures are dropped where they arrive, undecoded. Of its
messages the first ``client-ready`` is kept, which Pipecat passes to the pipeline later. A browser that sends
no media, no message and no ping for ``vanish_ms`` has left, as in a call. The signalling hangs up one that
never connects.

Owns no task: ``left`` runs in its caller's. ``release`` leaves the connection to a pipeline.
"""

import asyncio
import json
from typing import Any

from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.transports.pipecat_internals import early_messages, last_ping_s, stop_decoding
from parley.transports.webrtc.connection_state import is_over, packets_received

LOOK_S = 0.25
CLIENT_READY = "client-ready"
MOST_READY_CHARS = 10_000


class EarlyPeer:
    """Connection of one browser.

    Args:
        connection: a negotiated connection.
        vanish_ms: quiet time after which the browser has left.
    """

    def __init__(self, connection: SmallWebRTCConnection, *, vanish_ms: int) -> None:
        self._connection = connection
        self._vanish_s = vanish_ms / 1000
        self._closed = asyncio.Event()
        connection.add_event_handler("closed", self._on_closed)
        self._drop_media()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message when the data channel is open; never blocks."""
        if not self._closed.is_set():
            self._connection.send_app_message(message)

    async def left(self) -> None:
        """Return when the browser has left."""
        loop = asyncio.get_running_loop()
        seen, seen_s = await self._signs(), loop.time()
        # It may have closed before this object was made, and the event comes once.
        while not self._closed.is_set() and not is_over(self._connection):
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._closed.wait()
            except TimeoutError:
                pass
            # A negotiation may have brought more tracks.
            self._drop_media()
            self._drop_messages()
            signs = await self._signs()
            if signs != seen or self._connection.pc.connectionState != "connected":
                seen, seen_s = signs, loop.time()
            elif loop.time() - seen_s > self._vanish_s:
                return

    def release(self) -> None:
        """Stop watching."""
        self._connection.remove_event_handler("closed", self._on_closed)
        self._drop_messages()

    async def _on_closed(self, _connection: SmallWebRTCConnection) -> None:
        self._closed.set()

    def _drop_media(self) -> None:
        for transceiver in self._connection.pc.getTransceivers():
            stop_decoding(transceiver.receiver)

    def _drop_messages(self) -> None:
        pending = early_messages(self._connection)
        ready = [message for message in pending if message.get("type") == CLIENT_READY][:1]
        pending[:] = [message for message in ready if len(json.dumps(message)) <= MOST_READY_CHARS]

    async def _signs(self) -> tuple[object, ...]:
        """Return values that change while anything comes from the browser."""
        return await packets_received(self._connection), last_ping_s(self._connection)
