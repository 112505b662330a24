"""RTP of a caller's audio, read where its datagrams arrive.

Input: datagrams of one connection, as the ICE agent passes them on. Output: packets of the caller's audio,
without their protection, in the order of their arrival, to a function that must not block. Everything else
(pictures, RTCP, DTLS) goes aiortc's way, through two queues and two tasks.

aiortc's receiver decodes every stream in a thread of its own, which costs three changes of threads for a
packet; a third of the processor's time of a call in which both sides are silent went into that. It still
starts the thread, which ends with the first packet here.

A reader counts packets for the reports that aiortc sends to the peer. It owns no task; ``detach`` ends it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aiortc import RTCRtpCodecParameters
from aiortc.rtcrtpreceiver import RTCRtpReceiver

from parley.transports.pipecat_internals import (
    codecs_of,
    count_packet,
    is_sender_of,
    stop_decoding_thread,
    tap_datagrams,
    unprotected,
    untap_datagrams,
)

HEADER_BYTES = 12
VERSION = 2


@dataclass(frozen=True, slots=True)
class RtpAudio:
    """A packet of audio (RFC 3550, 5.1).

    Attributes:
        sequence_number: modulo 2 to the 16th.
        timestamp: in ticks of the codec's clock.
        ssrc: synchronisation source.
        payload_type: number of the codec.
        payload: encoded sound; empty where the sender probes the line.
    """

    sequence_number: int
    timestamp: int
    ssrc: int
    payload_type: int
    payload: bytes


OnPacket = Callable[[RtpAudio, RTCRtpCodecParameters], None]


class RtpReader:
    """Reader of one receiver's packets.

    Args:
        receiver: of the caller's audio; its own decoder gets nothing any more.
        on_packet: takes each packet, with its codec; must not block.
    """

    def __init__(self, receiver: RTCRtpReceiver, on_packet: OnPacket) -> None:
        self._receiver: RTCRtpReceiver | None = receiver
        self._take = partial(_take, receiver, codecs_of(receiver), on_packet)
        tap_datagrams(receiver, self._take)

    def detach(self) -> None:
        """Stop reading; further packets go aiortc's way."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            untap_datagrams(receiver, self._take)
            del self._take


def _take(
    receiver: RTCRtpReceiver, codecs: dict[int, RTCRtpCodecParameters], on_packet: OnPacket, data: bytes
) -> bool:
    """Read a datagram; return False for one that is not audio of this receiver."""
    # RFC 7983: the first byte of RTP; RFC 5761: the second of RTCP.
    if not 127 < data[0] < 192 or len(data) < HEADER_BYTES or 192 <= data[1] <= 223:
        return False
    codec = codecs.get(data[1] & 0x7F)
    if codec is None or not is_sender_of(receiver, data[1] & 0x7F, int.from_bytes(data[8:12])):
        return False
    plain = unprotected(receiver, data)
    packet = parse(plain) if plain else None
    if packet is not None:
        count_packet(receiver, packet, codec)
        stop_decoding_thread(receiver)
        on_packet(packet, codec)
    return True


def parse(data: bytes) -> RtpAudio | None:
    """Read a packet without protection; None when it is not RTP."""
    if len(data) < HEADER_BYTES or data[0] >> 6 != VERSION:
        return None
    number, timestamp, ssrc = struct.unpack_from("!HII", data, 2)
    begin = HEADER_BYTES + 4 * (data[0] & 0x0F)
    end = len(data)
    if data[0] & 0x10:
        if end < begin + 4:
            return None
        begin += 4 + 4 * int.from_bytes(data[begin + 2 : begin + 4])
    if data[0] & 0x20:
        end -= data[-1]
        if data[-1] == 0:
            return None
    if begin > end:
        return None
    return RtpAudio(number, timestamp, ssrc, data[1] & 0x7F, data[begin:end])
