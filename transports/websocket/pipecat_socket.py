"""Call of a client of Pipecat's over a WebSocket, with frames of ``pipecat_frames``.

A frame is checked before any other code reads it. One that cannot be used (text, garbage, a wrong rate, too
much) ends the call: the client reads an RTVI ``error`` with the reason, and a close frame. A client is read
at the pace of its share (``ClientBudget``), and one that sends more frames than that is closed.
"""

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from pipecat.processors.frameworks.rtvi.models import MESSAGE_LABEL
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from parley.core.clock import Clock
from parley.core.token_bucket import TokenBucket
from parley.protocols.client_protocol import ProtocolError
from parley.runtime.loop_clock import LoopClock
from parley.transports.client_budget import ClientBudget, ClientShare
from parley.transports.request import TransportRequest
from parley.transports.websocket.pipecat_frames import (
    CallSerializer,
    ClientAudio,
    client_frame,
    message_frame,
)

# Rate at which calls take audio.
CALL_RATE_HZ = 16_000
# Audio in pieces of 10 ms, of 48 kHz in two channels, and RTVI messages.
SHARE = ClientShare(messages_per_s=150, burst_messages=600, bytes_per_s=400_000, burst_bytes=2_000_000)
# Audio faster than it is spoken: a client that was held up sends what it has.
MOST_AHEAD_MS = 10_000
# RFC 6455, 7.4.1.
UNSUPPORTED = 1003
CLOSE_S = 2.0


class CheckedSocket(WebSocket):
    """Accepted socket whose messages are checked as they are read.

    Args:
        websocket: accepted; used by nothing else from here on.
        clock: clock of the budgets; that of the running loop when None.
    """

    def __init__(self, websocket: WebSocket, clock: Clock | None = None) -> None:
        super().__init__(websocket.scope, websocket.receive, websocket.send)
        self.client_state = websocket.client_state
        self.application_state = websocket.application_state
        self._clock = clock or LoopClock()
        self._budget = ClientBudget(SHARE)
        self._audio_ms = TokenBucket(1_000, MOST_AHEAD_MS)
        # Rate of the first audio; None before it.
        self._rate_hz: int | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next message of the client; a disconnect after one that cannot be used."""
        await asyncio.sleep(self._budget.wait_us(self._clock.now_us()) / 1_000_000)
        message = await super().receive()
        if message["type"] != "websocket.receive":
            return message
        try:
            self._check(message)
        except ProtocolError as error:
            await self._refuse(str(error))
            return {"type": "websocket.disconnect", "code": UNSUPPORTED}
        return message

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Close the socket; a further call has no effect. Pipecat's transport closes one that was refused."""
        if self.application_state is not WebSocketState.DISCONNECTED:
            await super().close(code, reason)

    def _check(self, message: MutableMapping[str, Any]) -> None:
        data = message.get("bytes")
        now_us = self._clock.now_us()
        if not self._budget.take(len(data or message.get("text") or ""), now_us):
            raise ProtocolError(f"over {SHARE.messages_per_s:g} frames a second", code="rate_limited")
        if data is None:
            raise ProtocolError("the message is text and not a frame of Pipecat's", code="invalid_payload")
        frame = client_frame(data)
        if isinstance(frame, ClientAudio):
            if self._rate_hz not in (None, frame.rate_hz):
                raise ProtocolError(
                    f"audio.sample_rate: {frame.rate_hz} after {self._rate_hz}: it stays the same in a call",
                    code="invalid_value",
                )
            self._rate_hz = frame.rate_hz
            length_ms = 1_000 * len(frame.pcm) / (2 * frame.channels * frame.rate_hz)
            if not self._audio_ms.take(length_ms, now_us):
                raise ProtocolError(
                    f"over {MOST_AHEAD_MS // 1_000} s of audio ahead of the clock", code="too_fast"
                )

    async def _refuse(self, reason: str) -> None:
        error = {"label": MESSAGE_LABEL, "type": "error", "data": {"error": reason, "fatal": True}}
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self.send_bytes(message_frame(error))
                await self.close(UNSUPPORTED, reason[:100])


async def open_pipecat(arguments: Any, _request: TransportRequest) -> FastAPIWebsocketTransport:
    """Open the transport of a client whose socket the arguments bring."""
    return FastAPIWebsocketTransport(
        CheckedSocket(arguments.websocket),
        FastAPIWebsocketParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_end_silence_secs=0,
            serializer=CallSerializer(CALL_RATE_HZ),
            # The gateway has checked the origin.
            allowed_origins=[],
        ),
    )
