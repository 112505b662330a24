"""RTP of the bot's audio, sent where its packets are due.

aiortc's sender wakes a task for each packet and builds a dozen objects for it: 55 us of processor's time with
40 calls, and 30 here, the timer included. One function call writes the header, protects the packet and hands
it to the socket. The packets go on in the stream that aiortc has begun: the same source, the next sequence
number, timestamps from the same origin. Its reports to the peer and its statistics count them. No packet is
kept for a retransmission, which no answer of aiortc offers for audio.

Owns no task; the sender's owner decides when a packet leaves.
"""

import struct

from aiortc import RTCRtpSender
from aiortc.rtp import RtpPacket

from parley.transports.pipecat_internals import last_sent, packet_head, send_packet

# RFC 3550, 5.1: what changes in the header from packet to packet, and where it begins.
_NUMBERS = struct.Struct("!HI")
_NUMBERS_AT = 2


class OutgoingRtp:
    """Stream of a sender.

    Args:
        sender: of the stream.
        packet: the newest that it has sent.
    """

    def __init__(self, sender: RTCRtpSender, packet: RtpPacket) -> None:
        self._sender = sender
        self._head = bytearray(packet_head(sender, packet))
        self._number, self._timestamp = packet.sequence_number, packet.timestamp

    def send(self, payload: bytes, ticks: int) -> None:
        """Send a packet, ``ticks`` of the RTP clock after the one before; none while the peer takes no audio.

        Raises:
            ConnectionError: the connection has ended.
        """
        number = (self._number + 1) & 0xFFFF
        self._timestamp = (self._timestamp + ticks) & 0xFFFFFFFF
        _NUMBERS.pack_into(self._head, _NUMBERS_AT, number, self._timestamp)
        if send_packet(self._sender, bytes(self._head) + payload, self._timestamp, len(payload)):
            self._number = number


def outgoing_of(sender: RTCRtpSender) -> OutgoingRtp | None:
    """Return the stream that a sender has begun; None while it has sent nothing."""
    packet = last_sent(sender)
    return None if packet is None else OutgoingRtp(sender, packet)
