"""Line of the bot's audio without a network: aiortc's sender and its transports, with real protection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from aioice.ice import Connection, StunProtocol
from aiortc import (
    RTCCertificate,
    RTCDtlsTransport,
    RTCIceGatherer,
    RTCIceTransport,
    RTCRtpCodecParameters,
    RTCRtpSender,
)
from aiortc.mediastreams import MediaStreamTrack
from aiortc.rtcdtlstransport import State
from aiortc.rtcrtpparameters import (
    RTCRtcpParameters,
    RTCRtpHeaderExtensionParameters,
    RTCRtpSendParameters,
)
from aiortc.rtp import AnyRtcpPacket, HeaderExtensionsMap, RtcpPacket, RtpPacket, is_rtcp
from pylibsrtp import Policy, Session

KEY = bytes(range(30))
OPUS = RTCRtpCodecParameters("audio/opus", 48_000, 2, 111)
MID, MID_URI = "0", "urn:ietf:params:rtp-hdrext:sdes:mid"


class BotLine:
    """Both ends of a line on which only audio goes out.

    Attributes:
        sender: aiortc's.
        sent: packets without their protection, and the loop's time at which each left.
        reports: packets of RTCP.
    """

    def __init__(self) -> None:
        agent = Connection(ice_controlling=False)
        protocol = StunProtocol(agent)
        protocol.transport = SimpleNamespace(sendto=self._arrived)  # type: ignore[assignment]
        self._pair: Any = SimpleNamespace(protocol=protocol, remote_addr=("192.0.2.1", 5_000))
        ice = RTCIceTransport(RTCIceGatherer(iceServers=[]))
        ice._connection = agent
        ice._send = agent.send  # type: ignore[method-assign]
        self._agent = agent
        self.dtls = RTCDtlsTransport(ice, [RTCCertificate.generateCertificate()])
        self.dtls._tx_srtp = Session(Policy(key=KEY, ssrc_type=Policy.SSRC_ANY_OUTBOUND))
        self._inbound = Session(Policy(key=KEY, ssrc_type=Policy.SSRC_ANY_INBOUND))
        self._extensions = HeaderExtensionsMap()
        self.sender = RTCRtpSender("audio", self.dtls)
        self.sent: list[tuple[float, RtpPacket]] = []
        self.reports: list[AnyRtcpPacket] = []
        self.connect()

    def connect(self) -> None:
        """Let datagrams through."""
        self._agent._nominated[1] = self._pair
        self.dtls._state = State.CONNECTED

    def disconnect(self) -> None:
        """Let the line end, as aioice does when its peer is gone."""
        self._agent._nominated.clear()

    @asynccontextmanager
    async def sending(self, track: MediaStreamTrack) -> AsyncIterator[None]:
        """Have aiortc send a track, as a connection that comes up does."""
        parameters = RTCRtpSendParameters(
            codecs=[OPUS],
            headerExtensions=[RTCRtpHeaderExtensionParameters(id=1, uri=MID_URI)],
            muxId=MID,
            rtcp=RTCRtcpParameters(cname="bot"),
        )
        self._extensions.configure(parameters)
        self.sender.replaceTrack(track)
        await self.sender.send(parameters)
        try:
            yield
        finally:
            await self.sender.stop()

    @property
    def payloads(self) -> list[bytes]:
        return [packet.payload for _, packet in self.sent]

    def _arrived(self, data: bytes, addr: tuple[str, int]) -> None:
        assert addr == self._pair.remote_addr
        if is_rtcp(data):
            self.reports += RtcpPacket.parse(self._inbound.unprotect_rtcp(data))
        else:
            packet = RtpPacket.parse(self._inbound.unprotect(data), self._extensions)
            self.sent.append((asyncio.get_running_loop().time(), packet))
