"""Line of a caller's audio without a network: aiortc's receiver and aioice's agent, with real protection."""

import struct
from types import SimpleNamespace
from typing import Any

from aioice import Connection
from aiortc import RTCRtpCodecParameters
from aiortc.rtcdtlstransport import RtpRouter
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from pylibsrtp import Policy, Session

from parley.transports.speech_encoder import SpeechEncoder
from parley.transports.webrtc.audio_track import silent_packet

OPUS, PCMU = 111, 0
CODECS = {
    OPUS: RTCRtpCodecParameters("audio/opus", 48_000, 2, OPUS),
    PCMU: RTCRtpCodecParameters("audio/PCMU", 8_000, 1, PCMU),
}
KEY, OTHER_KEY = bytes(range(30)), bytes(30)
SILENCE = silent_packet(SpeechEncoder(16_000))


def rtp(
    number: int, payload: bytes = SILENCE, *, ssrc: int = 1, payload_type: int = OPUS, first: int = 0x80
) -> bytes:
    """Return a packet without protection."""
    return struct.pack("!BBHII", first, payload_type, number & 0xFFFF, number * 960, ssrc) + payload


def _session(key: bytes, kind: int) -> Session:
    return Session(Policy(key=key, ssrc_type=kind))


class CallerLine:
    """Both ends of a line on which only audio comes in.

    Attributes:
        receiver: aiortc's, not started.
        track: what Pipecat calls a track, as far as a client needs it.
        passed_on: datagrams that went aiortc's way.
    """

    def __init__(self) -> None:
        self._agent = Connection(ice_controlling=False)
        self._sessions = {key: _session(key, Policy.SSRC_ANY_OUTBOUND) for key in (KEY, OTHER_KEY)}
        self.router = RtpRouter()
        transport: Any = SimpleNamespace(
            state="connected",
            transport=SimpleNamespace(_connection=self._agent),
            _rx_srtp=_session(KEY, Policy.SSRC_ANY_INBOUND),
            _rtp_router=self.router,
        )
        self.receiver = RTCRtpReceiver("audio", transport)
        vars(self.receiver)["_RTCRtpReceiver__codecs"].update(CODECS)
        self.router.register_receiver(self.receiver, ssrcs=[], payload_types=list(CODECS))
        self.track = SimpleNamespace(_receiver=self.receiver)

    def send(self, packet: bytes, *, key: bytes = KEY) -> None:
        """Protect a packet and let it arrive."""
        self.arrive(self._sessions[key].protect(packet))

    def arrive(self, datagram: bytes) -> None:
        """Let a datagram arrive that is not STUN."""
        self._agent.data_received(datagram, 1)

    @property
    def passed_on(self) -> list[bytes]:
        waiting = self._agent._queue
        found: list[bytes] = []
        while not waiting.empty():
            item = waiting.get_nowait()
            assert item is not None
            found.append(item[0])
        return found

    @property
    def counted(self) -> dict[int, int]:
        """Packets of each source, as aiortc reports them to the peer."""
        streams = vars(self.receiver)["_RTCRtpReceiver__remote_streams"]
        return {ssrc: stream.packets_received for ssrc, stream in streams.items()}
