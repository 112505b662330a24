"""Bounds of a browser's data channel: traffic is counted before any code reads it.

aiortc reads SCTP in Python on the event loop and gives every message to a task of its own. None of its parts
can be read more slowly. So the guard acts at two places:

* packets: those over the peer's share of packets, bytes or time on the loop are dropped. SCTP takes that for
  a lossy line: it sends again, later and more slowly, and an honest peer loses nothing;
* messages: one over the rate, one that is too large and one that is neither an RTVI message nor Pipecat's
  signalling is refused; Pipecat would write it to the log in full. The peer is notified at most once a
  second. The texts of a client with a protocol of its own go to that protocol (``TakesEvents``), and not to
  Pipecat.

A peer counts as flooding when more than ``MOST_DROPPED`` of its messages a minute are dropped. It does as
well when it fills aiortc's unbounded buffers (pieces of messages, packets out of order). Its call is ended.

Owns no task and no queue; ``detach`` ends it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from aiortc import RTCSctpTransport
from aiortc.rtcsctptransport import WEBRTC_DCEP
from loguru import logger
from pipecat.processors.frameworks.rtvi.models import MESSAGE_LABEL
from pipecat.processors.frameworks.rtvi.models import Message as RtviMessage
from pipecat.transports.smallwebrtc.connection import SIGNALLING_TYPE, SignallingMessage
from pydantic import TypeAdapter, ValidationError

from parley.core.clock import Clock
from parley.core.token_bucket import TokenBucket
from parley.protocols.client_protocol import Message, ProtocolError, json_object
from parley.runtime.busy_time import Metered
from parley.runtime.loop_clock import LoopClock
from parley.transports.client_budget import ClientBudget, ClientShare
from parley.transports.pipecat_internals import (
    handle_message,
    handle_packet,
    misordered_packets,
    receive_window_bytes,
    tap_sctp,
    untap_sctp,
)

# A page types, presses keys and sends a sign of life once a second; a picture is one message.
SHARE = ClientShare(
    messages_per_s=20, burst_messages=50, bytes_per_s=200_000, burst_bytes=4_000_000, busy_ms_per_s=50
)
PACKETS_PER_S, BURST_PACKETS = 400, 4_000
MOST_MESSAGE_BYTES = 3_000_000
# Messages dropped in a minute, and the largest burst.
MOST_DROPPED = 1_000
REFUSAL_EVERY_US = 1_000_000
# Bounds of aiortc's receive buffer, which it announces and does not enforce: bytes below zero, and packets
# that wait for one that is missing.
LEAST_WINDOW_BYTES, MOST_MISORDERED = -4_000_000, 4_000
# Sign of life that Pipecat's pages send.
PING = b"ping"
# Pipecat writes a type that it does not know to the log, and repeats an id in its answer.
MOST_TYPE_CHARACTERS, MOST_ID_CHARACTERS = 64, 256
SIGNALLING: TypeAdapter[object] = TypeAdapter(SignallingMessage.Inbound)


class TakesEvents(Protocol):
    """Reader of a client's own protocol. The methods may not block or raise."""

    def take(self, text: str) -> None:
        """Take a message."""
        ...

    def refuse(self, refusal: ProtocolError) -> None:
        """Note that a message was dropped."""
        ...


class ChannelGuard:
    """Guard of one peer's data channels, over all its peer connections.

    Args:
        refuse: sends the peer a message with the reason for refusing one of its own.
        on_flood: ends the call; called once.
        events: takes the messages of a client with a protocol of its own, in place of Pipecat's connection.
        share: bounds of what the peer may send and cost.
        clock: clock of the budget; that of the running loop when None.
    """

    def __init__(
        self,
        *,
        refuse: Callable[[dict[str, Any]], None],
        on_flood: Callable[[], None],
        events: TakesEvents | None = None,
        share: ClientShare = SHARE,
        clock: Clock | None = None,
    ) -> None:
        self._refuse = refuse
        self._on_flood = on_flood
        self._events = events
        self._share = share
        self._clock = clock or LoopClock()
        self._budget = ClientBudget(share)
        self._packets = TokenBucket(PACKETS_PER_S, BURST_PACKETS)
        self._drops = TokenBucket(MOST_DROPPED / 60, MOST_DROPPED)
        self._sctp: RTCSctpTransport | None = None
        self._refused_us: int | None = None
        self._is_flooded = False

    @property
    def dropped(self) -> int:
        """Number of messages refused over the rate."""
        return self._budget.dropped

    def attach(self, sctp: RTCSctpTransport | None) -> None:
        """Guard a transport; None when the peer has no data channel. Has no effect for the guarded one."""
        if sctp is self._sctp:
            return
        self.detach()
        self._sctp = sctp
        if sctp is not None:
            tap_sctp(sctp, self._handle_data, self._receive)

    def detach(self) -> None:
        """Restore the transport's own handlers."""
        sctp, self._sctp = self._sctp, None
        if sctp is not None:
            untap_sctp(sctp)

    async def _handle_data(self, data: bytes) -> None:
        sctp, now_us = self._sctp, self._clock.now_us()
        if sctp is None or self._is_flooded or self._budget.wait_us(now_us):
            return
        if not self._packets.take(1, now_us):
            return
        handling = Metered(handle_packet(sctp, data))
        try:
            await handling
        finally:
            self._budget.spend(handling.busy_us, self._clock.now_us())
        if receive_window_bytes(sctp) < LEAST_WINDOW_BYTES or misordered_packets(sctp) > MOST_MISORDERED:
            self._flooded("fills the receive buffer")

    async def _receive(self, stream_id: int, pp_id: int, data: bytes) -> None:
        sctp = self._sctp
        if sctp is None or self._is_flooded:
            return
        # A message that opens a channel counts too.
        if not self._budget.take(len(data), self._clock.now_us()):
            self._send_refusal(
                ProtocolError(f"over {self._share.messages_per_s:g} messages a second", code="rate_limited")
            )
            if not self._drops.take(1, self._clock.now_us()):
                self._flooded(f"{self._budget.dropped} messages over the rate")
            return
        if pp_id == WEBRTC_DCEP or (self._events is None and data.startswith(PING)):
            await handle_message(sctp, stream_id, pp_id, data)
            return
        try:
            if self._events is not None:
                # The protocol reads its content, and refuses what it does not know.
                self._events.take(_text(data))
                return
            _check(data)
        except ProtocolError as refusal:
            self._send_refusal(refusal)
            return
        await handle_message(sctp, stream_id, pp_id, data)

    def _send_refusal(self, refusal: ProtocolError) -> None:
        now_us = self._clock.now_us()
        if self._refused_us is not None and now_us - self._refused_us < REFUSAL_EVERY_US:
            return
        self._refused_us = now_us
        if self._events is not None:
            self._events.refuse(refusal)
            return
        # RTVI's form of an error that belongs to no request.
        data = {"error": str(refusal), "fatal": False}
        self._refuse({"label": MESSAGE_LABEL, "type": "error", "data": data})

    def _flooded(self, reason: str) -> None:
        if not self._is_flooded:
            self._is_flooded = True
            logger.warning(f"a browser floods its data channel ({reason}), ending its call")
            self._on_flood()


def _text(data: bytes) -> str:
    if len(data) > MOST_MESSAGE_BYTES:
        raise ProtocolError(f"the message is over {MOST_MESSAGE_BYTES} bytes", code="too_large")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("the message is not text", code="invalid_json") from None


def _check(data: bytes) -> None:
    message = json_object(_text(data))
    if message.get("type") == SIGNALLING_TYPE:
        try:
            SIGNALLING.validate_python(message.get("message"))
        except ValidationError:
            raise ProtocolError("the signalling message is not known", code="invalid_value") from None
    elif not _is_rtvi(message):
        raise ProtocolError(
            f"the message is not an RTVI message: label {MESSAGE_LABEL!r}, type, id and data",
            code="invalid_value",
        )


def _is_rtvi(message: Message) -> bool:
    try:
        request = RtviMessage.model_validate(message)
    except ValidationError:
        return False
    # The model takes a message without a label for one of RTVI's; its processor does not.
    return (
        message.get("label") == MESSAGE_LABEL
        and len(request.type) <= MOST_TYPE_CHARACTERS
        and len(request.id) <= MOST_ID_CHARACTERS
    )
