"""Access to private members of Pipecat, aiortc, aioice and pyOpenSSL, for the transports.

Each function states why there is no public way. No other module of this folder touches a private member of a
library or replaces a method of one; ``scripts/check_foreign_members.py`` checks it.
``tests/contracts/test_foreign_members.py`` lists every member that is used here. It fails with the member's
name when a version of a library has lost it; docs/how-to/upgrade_pipecat.md says how to upgrade.

The module owns nothing and decides nothing: the purpose of a member is documented where it is used.
"""

import asyncio
import copy
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from aioice import Connection, stun
from aioice.ice import CandidatePair, StunProtocol
from aiortc import RTCIceTransport, RTCPeerConnection, RTCRtpCodecParameters, RTCRtpSender, RTCSctpTransport
from aiortc.rtcdtlstransport import State as DtlsState
from aiortc.rtcrtpreceiver import RTCRtpReceiver, StreamStatistics
from aiortc.rtcsctptransport import Chunk
from aiortc.rtp import RtpPacket
from pipecat.frames.frames import Frame, OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_output import BOT_VAD_STOP_FALLBACK_SECS, BaseOutputTransport
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection, SmallWebRTCTrack
from pipecat.utils.base_object import BaseObject
from pylibsrtp import Error as SrtpError

# Members of aiortc's receiver: its codecs by payload type, its statistics by source, and its decoder.
_CODECS = "_RTCRtpReceiver__codecs"
_REMOTE_STREAMS = "_RTCRtpReceiver__remote_streams"
_DECODER_THREAD = "_RTCRtpReceiver__decoder_thread"
_DECODER_QUEUE = "_RTCRtpReceiver__decoder_queue"
# Members of aiortc's sender: its newest packets, its header extensions, and what it reports to the peer.
_SENT_PACKETS = "_RTCRtpSender__rtp_history"
_EXTENSIONS = "_RTCRtpSender__rtp_header_extensions_map"
_SENT_NTP = "_RTCRtpSender__ntp_timestamp"
_SENT_TIMESTAMP = "_RTCRtpSender__rtp_timestamp"
_SENT_COUNT = "_RTCRtpSender__packet_count"
_SENT_OCTETS = "_RTCRtpSender__octet_count"
# Members of aiortc's DTLS transport: what it has sent.
_LINE_BYTES = "_RTCDtlsTransport__tx_bytes"
_LINE_PACKETS = "_RTCDtlsTransport__tx_packets"
# Members of aiortc's peer connection: the sets of its transports. Those of ICE hold the sockets.
_ICE_TRANSPORTS = "_RTCPeerConnection__iceTransports"
_DTLS_TRANSPORTS = "_RTCPeerConnection__dtlsTransports"

HandlePacket = Callable[[bytes], Coroutine[Any, Any, None]]
HandleMessage = Callable[[int, int, bytes], Coroutine[Any, Any, None]]
TakeDatagram = Callable[[bytes], bool]


# Pipecat's events. Its own subclasses declare and call them by these members. The public interface can only
# add and remove handlers.


def declare_events(target: BaseObject, *names: str) -> None:
    """Declare events of ours, so that handlers can be added for them."""
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
    """Queue a frame for the audio writer as it is, after what is queued; False before the output has started.

    The public way cuts audio into chunks of one length, and keeps the rest until more audio comes.
    """
    sender = output._media_senders.get(None)
    if sender is None:
        return False
    await sender.handle_sync_frame(frame)
    return True


def queued_frames(output: FrameProcessor) -> int:
    """Return how many frames wait for the audio writer of an output, which has no count; 0 before it starts.

    ``BaseTransport.output`` has the type of any processor: others have no queue.
    """
    sender = output._media_senders.get(None) if isinstance(output, BaseOutputTransport) else None
    return 0 if sender is None else sender._audio_queue.qsize()


class PromptSender(BaseOutputTransport.MediaSender):
    """Writer of an output's audio that needs one step of the event loop per chunk.

    Pipecat's waits for each chunk, and for its writing, in a task of its own (``asyncio.wait_for`` before
    Python 3.12): that is five steps. On a loop whose steps take 30 ms, a chunk of 40 ms then takes 150.
    """

    def _next_frame(self) -> AsyncGenerator[Frame, None]:
        return super()._next_frame() if self._mixer else _queued_frames(self)

    async def _internal_write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        output = self._transport
        if not output.is_usable:
            return False
        limit_s = self._params.audio_out_write_timeout_secs
        try:
            async with asyncio.timeout(limit_s):
                return await output.write_audio_frame(frame)
        except TimeoutError as error:
            await output.push_error(
                f"{output}: writing audio took over {limit_s} s; the peer does not read",
                exception=error,
                force_treat_as_permanent=True,
            )
            return False


async def _queued_frames(sender: PromptSender) -> AsyncGenerator[Frame, None]:
    queue = sender._audio_queue
    while True:
        if queue.empty():
            try:
                async with asyncio.timeout(BOT_VAD_STOP_FALLBACK_SECS):
                    frame = await queue.get()
            except TimeoutError:
                await sender._bot_stopped_speaking()
                continue
        else:
            frame = queue.get_nowait()
        await sender._filter_audio(frame)
        sender._apply_volume(frame)
        yield frame
        queue.task_done()


class _PromptSenders(dict[str | None, BaseOutputTransport.MediaSender]):
    """Writers of an output: those that Pipecat makes become prompt ones before they are started."""

    def __setitem__(self, destination: str | None, sender: BaseOutputTransport.MediaSender) -> None:
        sender.__class__ = PromptSender
        super().__setitem__(destination, sender)


def write_promptly(output: BaseOutputTransport) -> None:
    """Give an output ``PromptSender`` before it has started; Pipecat has no way to choose the class."""
    output._media_senders = _PromptSenders()


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


def cut_connection(connection: SmallWebRTCConnection) -> None:
    """Cut the references by which a closed connection refers to itself; it has no public method for it."""
    renegotiated: asyncio.Task[Any] | None = getattr(connection, "_renegotiation_task", None)
    if renegotiated is not None:
        # This task only waits for two seconds. Once cancelled, it refers to the connection by its traceback.
        renegotiated.cancel()
        del connection._renegotiation_task
    connection._track_map.clear()
    if connection._data_channel is not None:
        connection._data_channel.remove_all_listeners()
    # These are bound methods of the connection itself.
    connection._track_getters.clear()


# aiortc's media.


def stop_decoding(receiver: RTCRtpReceiver) -> None:
    """Drop what arrives, as Pipecat does for an unread track; reading the track enables the receiver."""
    receiver._enabled = False


# Sources of one peer that are counted. A browser has one at a time; aiortc has no bound.
MOST_SOURCES = 8


def tap_datagrams(receiver: RTCRtpReceiver, take: TakeDatagram) -> None:
    """Offer each datagram of a receiver's line to ``take`` before aiortc queues it.

    ``take`` returns False for one that has to go on. aioice looks up its method on the instance.
    """
    agent = receiver.transport.transport._connection
    agent.data_received = partial(_offer_datagram, agent, take)  # type: ignore[method-assign]


def untap_datagrams(receiver: RTCRtpReceiver, take: TakeDatagram) -> None:
    """Restore the line's own way, unless another function than ``take`` was put in meanwhile."""
    attributes = vars(receiver.transport.transport._connection)
    tap = attributes.get("data_received")
    if isinstance(tap, partial) and tap.args[1] is take:
        del attributes["data_received"]


def _offer_datagram(agent: Connection, take: TakeDatagram, data: bytes, component: int) -> None:
    # In bounds first: the length of a datagram is a stranger's choice.
    if 0 < len(data) <= MOST_DATAGRAM_BYTES and not take(data):
        _pass_on(agent, data, component)


def codecs_of(receiver: RTCRtpReceiver) -> dict[int, RTCRtpCodecParameters]:
    """Return the codecs by payload type; empty until the receiver has started, and filled then."""
    codecs: dict[int, RTCRtpCodecParameters] = getattr(receiver, _CODECS)
    return codecs


def is_sender_of(receiver: RTCRtpReceiver, payload_type: int, ssrc: int) -> bool:
    """Return whether packets of a source belong to a receiver, by the rules of aiortc's router.

    The router itself adds each source that it is asked for, also those of strangers.
    """
    router = receiver.transport._rtp_router
    known = router.ssrc_table.get(ssrc)
    if known is not None:
        return known is receiver
    receivers = router.payload_type_table.get(payload_type, ())
    return len(receivers) == 1 and receiver in receivers


def unprotected(receiver: RTCRtpReceiver, data: bytes) -> bytes | None:
    """Return an RTP packet without its protection; None for one of a stranger, or before there are keys."""
    session = receiver.transport._rx_srtp
    if session is None:
        return None
    try:
        plain: bytes = session.unprotect(data)
    except SrtpError:
        return None
    return plain


def count_packet(receiver: RTCRtpReceiver, packet: Any, codec: RTCRtpCodecParameters) -> None:
    """Count a packet for the reports to the peer. Of too many sources the one is forgotten that came first.

    Args:
        receiver: of the packet.
        packet: has ``ssrc``, ``sequence_number`` and ``timestamp``.
        codec: of the packet.
    """
    streams: dict[int, StreamStatistics] = getattr(receiver, _REMOTE_STREAMS)
    stream = streams.get(packet.ssrc)
    if stream is None:
        table = receiver.transport._rtp_router.ssrc_table
        if len(streams) >= MOST_SOURCES:
            oldest = next(iter(streams))
            del streams[oldest]
            table.pop(oldest, None)
        stream = streams[packet.ssrc] = StreamStatistics(codec.clockRate)
        # By this table the sender's reports find the receiver.
        table.setdefault(packet.ssrc, receiver)
    stream.add(packet)


def stop_decoding_thread(receiver: RTCRtpReceiver) -> None:
    """End the thread in which a receiver decodes, once it has started; the receiver then joins none."""
    if getattr(receiver, _DECODER_THREAD) is not None:
        getattr(receiver, _DECODER_QUEUE).put(None)
        setattr(receiver, _DECODER_THREAD, None)


# Seconds from the origin of NTP's time (RFC 5905) to that of Unix, and its fractions of a second.
_NTP_UNIX_S, _NTP_PER_S = 2_208_988_800, 1 << 32


def last_sent(sender: RTCRtpSender) -> RtpPacket | None:
    """Return the newest packet that a sender has sent itself; None before the first."""
    packets: dict[int, RtpPacket] = getattr(sender, _SENT_PACKETS)
    timestamp: int = getattr(sender, _SENT_TIMESTAMP)
    return next((packet for packet in packets.values() if packet.timestamp == timestamp), None)


def packet_head(sender: RTCRtpSender, packet: RtpPacket) -> bytes:
    """Return the header of a packet with the extensions that were negotiated."""
    return packet.serialize(getattr(sender, _EXTENSIONS)).removesuffix(packet.payload)


def send_packet(sender: RTCRtpSender, packet: bytes, timestamp: int, payload_bytes: int) -> bool:
    """Protect and send a packet, and count it for the reports to the peer and the statistics.

    aiortc's sender can only be given a track, and wakes a task for each of its packets. Returns False when
    nothing is sent, because a negotiation has ended the sending for now.

    Raises:
        ConnectionError: the connection has ended.
    """
    dtls = sender.transport
    pair = dtls.transport._connection._nominated.get(1)
    if pair is None or dtls._state is not DtlsState.CONNECTED:
        raise ConnectionError("not connected")
    if not sender._enabled:
        return False
    data = dtls._tx_srtp.protect(packet)
    pair.protocol.transport.sendto(data, pair.remote_addr)
    line, sent = vars(dtls), vars(sender)
    line[_LINE_BYTES] += len(data)
    line[_LINE_PACKETS] += 1
    sent[_SENT_NTP] = int((time.time() + _NTP_UNIX_S) * _NTP_PER_S)
    sent[_SENT_TIMESTAMP] = timestamp
    sent[_SENT_OCTETS] += payload_bytes
    sent[_SENT_COUNT] += 1
    return True


# aiortc's data channel. It has no way to read more slowly, or to inspect a message before it is handled.


class EndingSctp(RTCSctpTransport):
    """Transport whose unsent chunks are dropped when its line has closed.

    aiortc sends by tasks that no code awaits, also when a timer finds that a peer which has left did not
    acknowledge something. Each of them would end in the log with "Task exception was never retrieved".
    """

    async def _send_chunk(self, chunk: Chunk) -> None:
        with suppress(ConnectionError):
            await super()._send_chunk(chunk)


def tap_sctp(sctp: RTCSctpTransport, on_packet: HandlePacket, on_message: HandleMessage) -> None:
    """Replace the handlers of packets and messages of one transport.

    The replacements may pass on to ``handle_packet`` and ``handle_message``. aiortc looks up both methods on
    the instance, for each packet and each message.
    """
    # aiortc has no way to choose the class; this one has the same members.
    sctp.__class__ = EndingSctp
    sctp._handle_data = on_packet  # type: ignore[method-assign, assignment]
    sctp._data_channel_receive = on_message  # type: ignore[method-assign, assignment]


def untap_sctp(sctp: RTCSctpTransport) -> None:
    """Restore a transport's own handlers."""
    vars(sctp).pop("_handle_data", None)
    vars(sctp).pop("_data_channel_receive", None)


async def handle_packet(sctp: RTCSctpTransport, data: bytes) -> None:
    """Handle a packet as a transport without a tap does."""
    await RTCSctpTransport._handle_data(sctp, data)


async def handle_message(sctp: RTCSctpTransport, stream_id: int, pp_id: int, data: bytes) -> None:
    """Handle a message as a transport without a tap does."""
    await RTCSctpTransport._data_channel_receive(sctp, stream_id, pp_id, data)


def receive_window_bytes(sctp: RTCSctpTransport) -> int:
    """Return the free bytes of the receive buffer; aiortc announces this window and does not enforce it."""
    free: int = sctp._advertised_rwnd
    return free


def misordered_packets(sctp: RTCSctpTransport) -> int:
    """Return how many packets wait for one that is missing."""
    return len(sctp._sack_misordered)


# aioice's datagrams and STUN messages.


# Length of pylibsrtp's buffer.
MOST_DATAGRAM_BYTES = 1_500


def check_datagram_lengths() -> None:
    """Make aioice drop datagrams whose length ends a call: empty ones, and those over the longest of media.

    aioice passes on what is not STUN, from any address. aiortc reads the first byte before it knows the
    sender, and copies the datagram to a buffer. Its reading ends with IndexError or ValueError, and the call
    is silent from then on. The method is one of the class, and further calls change nothing.
    """
    Connection.data_received = _datagram_received  # type: ignore[method-assign, assignment]


_pass_on = Connection.data_received


def _datagram_received(agent: Connection, data: bytes, component: int) -> None:
    if 0 < len(data) <= MOST_DATAGRAM_BYTES:
        _pass_on(agent, data, component)


def check_stun_lengths() -> None:
    """Make aioice drop a STUN message with a number of a wrong length, as it drops other garbage.

    It unpacks attributes before it knows the sender. A wrong length raises ``struct.error``, which it does
    not expect: the event loop then writes a traceback for each such datagram, from any address. The table is
    one of the module, and further calls change nothing.
    """
    for number, (_, name, pack, unpack) in list(stun.ATTRIBUTES_BY_TYPE.items()):
        if unpack in _STUN_NUMBERS:
            stun.ATTRIBUTES_BY_TYPE[number] = (number, name, pack, partial(_unpacked, unpack))


_STUN_NUMBERS = (stun.unpack_unsigned, stun.unpack_unsigned_short, stun.unpack_unsigned_64)


def _unpacked(unpack: Callable[[bytes], int], data: bytes) -> int:
    try:
        return unpack(data)
    except struct.error as error:
        raise ValueError("STUN attribute has an invalid length") from error


# Members of aioice's transaction: its request, and the address to which it is sent.
_REQUEST = "_Transaction__request"
_RECIPIENT = "_Transaction__addr"


def answer_checks_promptly() -> None:
    """Make aioice send its own check again as soon as its peer's check has come.

    A NAT in front of the peer drops the first check of this side, because the peer sends its own only when it
    has the answer. By RFC 8445, 7.3.1.4, the peer's check triggers another one, also while one is in
    progress. aioice waits for the retransmission instead, which costs the beginning of each such call up to
    0.5 s. The method is one of the class, and further calls change nothing.
    """
    Connection.check_incoming = _check_received  # type: ignore[method-assign, assignment]


_check_incoming = Connection.check_incoming


def _check_received(
    agent: Connection, message: stun.Message, addr: tuple[str, int], protocol: StunProtocol
) -> None:
    # The same request, so that a late response to its first copy counts. Only for the peer's authentic check.
    is_checking = any(
        pair.protocol is protocol
        and pair.remote_addr == addr
        and pair.state is CandidatePair.State.IN_PROGRESS
        for pair in agent._check_list
    )
    lost = [
        each for each in protocol.transactions.values() if is_checking and getattr(each, _RECIPIENT) == addr
    ]
    _check_incoming(agent, message, addr, protocol)
    for transaction in lost:
        protocol.send_stun(getattr(transaction, _REQUEST), addr)


def free_late_transactions() -> None:
    """Make aioice leave no reference cycle of a STUN transaction that fails, or has no response in time.

    The transaction has a future with the error, and the error a traceback with the transaction. A check of an
    address that does not answer is common, and the cycle keeps the connection, the offer and its identity
    until the next full collection. The method is one of the class, and further calls change nothing.
    """
    stun.Transaction.run = _run_transaction  # type: ignore[method-assign, assignment]


_run = stun.Transaction.run


async def _run_transaction(transaction: stun.Transaction) -> tuple[stun.Message, tuple[str, int]]:
    try:
        return await _run(transaction)
    except stun.TransactionError as error:
        failed = copy.copy(error)
        error.__traceback__ = None
    # Outside of the handler, so that the error of the future is not its context.
    try:
        raise failed
    finally:
        del failed


# The end of a peer connection. aiortc closes it, keeps its parts in reference cycles, and lets some of them
# run on.


def ice_transports(peer: RTCPeerConnection) -> list[RTCIceTransport]:
    """Return the transports that hold a peer connection's sockets, those of a failed negotiation included."""
    return list(getattr(peer, _ICE_TRANSPORTS, ()))


def closing_handlers(peer: RTCPeerConnection) -> Iterable[asyncio.Future[Any]]:
    """Return the tasks of asynchronous listeners that have not ended; pyee holds them."""
    waiting: Iterable[asyncio.Future[Any]] = getattr(peer, "_waiting", ())
    return waiting


def stop_connecting(peer: RTCPeerConnection) -> None:
    """Prevent a peer connection that is about to be closed from starting anything more.

    aiortc's task that connects goes on when a peer connection is closed during the handshake. It starts
    senders and receivers for good (three tasks and the thread of a decoder), or fails where no code awaits
    it.
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
        # Channels that were not open yet, and their unsent messages.
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
    """Replace the methods that start a part of a peer connection."""


def _dtls_transports(peer: RTCPeerConnection) -> list[Any]:
    return list(getattr(peer, _DTLS_TRANSPORTS, ()))


def _cut_verification(dtls: object) -> None:
    """Cut the callback of pyOpenSSL that refers to itself. A closed transport makes no handshake."""
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
