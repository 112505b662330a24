"""The door to private members of Pipecat, aiortc, aioice and pyOpenSSL, for the transports.

Each function says why there is no public way. Nothing else in this folder touches a private member of a
library, and nothing replaces a method of one, which ``scripts/check_foreign_members.py`` checks.
``tests/contracts/test_foreign_members.py`` lists every member that is used here and fails with its name when
a version of a library has lost it; docs/architecture.md has the upgrade drill.

Owns nothing and decides nothing: what a member is used for stands with its user.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiortc import RTCIceTransport, RTCPeerConnection, RTCSctpTransport
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket
from pipecat.frames.frames import Frame
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection, SmallWebRTCTrack
from pipecat.utils.base_object import BaseObject

# Of aiortc's receiver; Pipecat replaces it for a shared screen in the same way.
_JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
# Of aiortc's peer connection: the sets of its transports. Those of ICE hold the sockets.
_ICE_TRANSPORTS = "_RTCPeerConnection__iceTransports"
_DTLS_TRANSPORTS = "_RTCPeerConnection__dtlsTransports"

HandlePacket = Callable[[bytes], Coroutine[Any, Any, None]]
HandleMessage = Callable[[int, int, bytes], Coroutine[Any, Any, None]]


# Pipecat's events. Its own subclasses declare and call them by these members: handlers can be added and
# removed in public, and nothing else.


def declare_events(target: BaseObject, *names: str) -> None:
    """Let handlers be added for events of ours."""
    for name in names:
        target._register_event_handler(name)


async def emit(target: BaseObject, name: str, *arguments: Any) -> None:
    """Call the handlers of an event, each in a task of its own."""
    await target._call_event_handler(name, *arguments)


def forget_handlers(target: BaseObject) -> None:
    """Remove the handlers of all events of an object; events that come later have no effect."""
    for event in target._event_handlers.values():
        event.handlers.clear()


def running_handlers(target: BaseObject) -> list[asyncio.Task[Any]]:
    """Return the tasks of handlers that have not ended."""
    return [task for _, task in target._event_tasks]


# Pipecat's output.


async def queue_whole(output: BaseOutputTransport, frame: Frame) -> bool:
    """Queue a frame for the audio writer as it is, after what waits; False before the output has started.

    The public way cuts audio into chunks of one length, and keeps the rest for more.
    """
    sender = output._media_senders.get(None)
    if sender is None:
        return False
    await sender.handle_sync_frame(frame)
    return True


# Pipecat's connection to a browser.


def last_ping_s(connection: SmallWebRTCConnection) -> float | None:
    """Return the wall-clock time of the peer's newest ping. The connection handles pings without an event."""
    at_s: float | None = connection._last_received_time
    return at_s


def early_messages(connection: SmallWebRTCConnection) -> list[dict[str, Any]]:
    """Return the list of messages that came before ``connect``, which Pipecat keeps without a bound."""
    messages: list[dict[str, Any]] = connection._pending_app_messages
    return messages


def receiver_of(track: SmallWebRTCTrack) -> RTCRtpReceiver:
    """Return aiortc's receiver of a track; Pipecat wraps it and has no accessor."""
    receiver: RTCRtpReceiver = track._receiver
    return receiver


def waiting_frames(track: SmallWebRTCTrack) -> int:
    """Return how many decoded frames wait to be read; aiortc queues them without a bound and has no count."""
    waiting: asyncio.Queue[Any] | None = getattr(track, "_queue", None)
    return 0 if waiting is None else waiting.qsize()


def cut_connection(connection: SmallWebRTCConnection) -> None:
    """Cut the references by which a closed connection refers to itself; it has no way of letting go."""
    renegotiated: asyncio.Task[Any] | None = getattr(connection, "_renegotiation_task", None)
    if renegotiated is not None:
        # It only counts two seconds. Cancelled, it refers to the connection by its traceback.
        renegotiated.cancel()
        del connection._renegotiation_task
    connection._track_map.clear()
    if connection._data_channel is not None:
        connection._data_channel.remove_all_listeners()
    # Bound methods of the connection itself.
    connection._track_getters.clear()


# aiortc's media.


def stop_decoding(receiver: RTCRtpReceiver) -> None:
    """Drop what arrives, as Pipecat does while a track is not read; its reading turns the receiver on."""
    receiver._enabled = False


def payload_of(packet: RtpPacket) -> bytes:
    """Return the payload without the header of its codec: what aiortc's own jitter buffer reads."""
    data: bytes = packet._data  # type: ignore[attr-defined]  # set by the receiver
    return data


def jitter_buffer_of(receiver: RTCRtpReceiver) -> object | None:
    """Return the jitter buffer of a receiver; None: this aiortc keeps it somewhere else."""
    buffer: object | None = getattr(receiver, _JITTER_BUFFER, None)
    return buffer


def set_jitter_buffer(receiver: RTCRtpReceiver, buffer: object) -> None:
    """Have a receiver put its packets in order by a buffer of ours: aiortc's has one fixed delay."""
    setattr(receiver, _JITTER_BUFFER, buffer)


# aiortc's data channel. Nothing in it can be read more slowly, or looked at before it is handled.


def tap_sctp(sctp: RTCSctpTransport, on_packet: HandlePacket, on_message: HandleMessage) -> None:
    """Have packets and messages handled by these, which may hand them on to ``handle_packet`` and
    ``handle_message``. Both methods are looked up on the instance, for each packet and each message.
    """
    sctp._handle_data = on_packet  # type: ignore[method-assign, assignment]
    sctp._data_channel_receive = on_message  # type: ignore[method-assign, assignment]


def untap_sctp(sctp: RTCSctpTransport) -> None:
    """Leave a transport as it was."""
    vars(sctp).pop("_handle_data", None)
    vars(sctp).pop("_data_channel_receive", None)


async def handle_packet(sctp: RTCSctpTransport, data: bytes) -> None:
    """Handle a packet as a transport without a tap."""
    await RTCSctpTransport._handle_data(sctp, data)


async def handle_message(sctp: RTCSctpTransport, stream_id: int, pp_id: int, data: bytes) -> None:
    """Handle a message as a transport without a tap."""
    await RTCSctpTransport._data_channel_receive(sctp, stream_id, pp_id, data)


def receive_window_bytes(sctp: RTCSctpTransport) -> int:
    """Return what is free of the receive buffer; aiortc announces it and does not enforce it."""
    free: int = sctp._advertised_rwnd
    return free


def misordered_packets(sctp: RTCSctpTransport) -> int:
    """Return how many packets wait for one that is missing."""
    return len(sctp._sack_misordered)


# The end of a peer connection. aiortc closes it, keeps its parts in circles, and lets some of them run on.


def ice_transports(peer: RTCPeerConnection) -> list[RTCIceTransport]:
    """Return the transports that hold a peer connection's sockets, those of a failed negotiation included."""
    return list(getattr(peer, _ICE_TRANSPORTS, ()))


def closing_handlers(peer: RTCPeerConnection) -> Iterable[asyncio.Future[Any]]:
    """Return the tasks of asynchronous listeners that have not ended: pyee's."""
    waiting: Iterable[asyncio.Future[Any]] = getattr(peer, "_waiting", ())
    return waiting


def stop_connecting(peer: RTCPeerConnection) -> None:
    """Have a peer connection start nothing any more: it is about to be closed.

    aiortc's task that connects goes on when a peer connection is closed during the handshake. It starts
    senders and receivers for good (three tasks and the thread of a decoder), or fails where no caller waits.
    """
    parts: list[tuple[object, str]] = []
    for transceiver in peer.getTransceivers():
        parts += [(transceiver.sender, "send"), (transceiver.receiver, "receive")]
    parts += [(transport, "start") for transport in (*_dtls_transports(peer), *ice_transports(peer))]
    if peer.sctp is not None:
        parts.append((peer.sctp, "start"))
    for part, start in parts:
        setattr(part, start, _start_nothing)


def cut_peer_connection(peer: RTCPeerConnection) -> None:
    """Cut the references by which the parts of a closed peer connection refer to each other."""
    if peer.sctp is not None:
        peer.sctp.remove_all_listeners()
        # Channels that were not open yet, and what waited to be sent by them.
        getattr(peer.sctp, "_data_channels", {}).clear()
        getattr(peer.sctp, "_data_channel_queue", deque[Any]()).clear()
    for dtls in _dtls_transports(peer):
        dtls.remove_all_listeners()
        _cut_verification(dtls)
    for ice in ice_transports(peer):
        ice.remove_all_listeners()
        ice.iceGatherer.remove_all_listeners()
        _cut_agent(ice._connection)


async def _start_nothing(*_parameters: object) -> None:
    """Take the place of the methods that start a part of a peer connection."""


def _dtls_transports(peer: RTCPeerConnection) -> list[Any]:
    return list(getattr(peer, _DTLS_TRANSPORTS, ()))


def _cut_verification(dtls: object) -> None:
    """Cut the callback of pyOpenSSL that refers to itself. No handshake follows: the transport is closed."""
    ssl = getattr(dtls, "_ssl", None)
    helper = getattr(getattr(ssl, "_context", None), "_verify_helper", None)
    if helper is not None and getattr(dtls, "state", None) in ("closed", "failed"):
        helper.callback = None


def _cut_agent(agent: object) -> None:
    """Cut the pairs of an ICE agent, which refer to it by their sockets and the tasks of their checks."""
    pairs = getattr(agent, "_check_list", [])
    for pair in pairs:
        pair.task = None
    pairs.clear()
    getattr(agent, "_nominated", {}).clear()
