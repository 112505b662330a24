"""Access to private members of aiortc and Pipecat, for evaluations.

Nothing else in this folder touches a private member of a library, which ``scripts/check_foreign_members.py``
checks. ``tests/contracts/test_foreign_members.py`` lists every member that is used here and fails with its
name when a version of a library has lost it.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from aioice import Connection
from aiortc import RTCRtpTransceiver
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket
from pipecat.services.tts_service import TTSService
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator


def take_packets(
    receiver: RTCRtpReceiver, take: Callable[[RtpPacket, int], Coroutine[Any, Any, None]]
) -> None:
    """Install a handler for the packets of a receiver as they arrive.

    The receiver has no event for that, and records no times.
    """
    receiver._handle_rtp_packet = take  # type: ignore[method-assign, assignment]


def set_payload(packet: RtpPacket, payload: bytes) -> None:
    """Set the payload of a packet that a jitter buffer reads, as the receiver does."""
    packet._data = payload  # type: ignore[attr-defined]


def aggregate_sentences(service: TTSService) -> None:
    """Restore the text aggregation that a voice has by default in Pipecat."""
    service._text_aggregator = SimpleTextAggregator(aggregation_type=service._text_aggregation_mode)


class DirectMedia:
    """Media of a caller past aiortc's sender and receiver, which take a task for each packet.

    Args:
        transceiver: of the offer's audio; it neither sends nor receives anything itself.
        take: called with each audio datagram that arrives, as it is, protected.

    Attributes:
        sender: aiortc's.
        take: see the argument.
        ssrc: source that the offer announces.
    """

    def __init__(self, transceiver: RTCRtpTransceiver, take: Callable[[bytes], None]) -> None:
        self.sender, self.take = transceiver.sender, take
        self.ssrc: int = self.sender._ssrc
        # aiortc starts both when the connection is up.
        for part, start in ((transceiver.sender, "send"), (transceiver.receiver, "receive")):
            setattr(part, start, self.begin)

    async def begin(self, _parameters: object) -> None:
        """Take the audio of the line; aiortc calls it in place of its own, once for each direction."""
        agent = self.sender.transport.transport._connection
        agent.data_received = partial(self.arrived, agent)  # type: ignore[method-assign]

    def arrived(self, agent: Connection, data: bytes, component: int) -> None:
        """Take a datagram of audio, and pass any other on."""
        if 127 < data[0] < 192 and not 192 <= data[1] <= 223:
            self.take(data)
        else:
            Connection.data_received(agent, data, component)

    def send(self, packet: bytes) -> None:
        """Protect and send a packet; has no effect after the end of the connection."""
        dtls = self.sender.transport
        pair = dtls.transport._connection._nominated.get(1)
        if pair is not None and dtls.state == "connected":
            pair.protocol.transport.sendto(dtls._tx_srtp.protect(packet), pair.remote_addr)
