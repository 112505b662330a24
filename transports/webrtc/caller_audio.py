"""Sound of one caller: RTP packets in any order become PCM at the rate of the pipeline.

Decides the order (``jitter_buffer``), what is heard in place of a lost packet, and what is dropped. ``take``
runs on the event loop for each packet that arrives; ``read`` is awaited by one task. At most
``MOST_WAITING_MS`` of sound wait in between.

Opus is decoded by libopus at the pipeline's rate, also the copy of a lost packet in the next one. A gap of up
to ``MOST_CONCEALED_MS`` is concealed, so that the words keep their times; a longer one is left out. The other
codecs of a browser, and Opus where libopus cannot be called, go through aiortc's decoder.

Packets are decoded on the loop of all calls, so a caller gets as much sound decoded as time passes, and no
more: what comes faster is dropped before.
"""

import asyncio
from collections import deque

import numpy as np
from aiortc import RTCRtpCodecParameters
from aiortc.codecs import get_decoder
from aiortc.jitterbuffer import JitterFrame
from av import AudioFrame, AudioResampler
from av.error import FFmpegError
from loguru import logger

from parley.audio import libopus
from parley.audio.opus_decoder import RATES_HZ, OpusPacketDecoder
from parley.audio.opus_packets import GRANULE_HZ, packet_samples
from parley.core.clock import Clock
from parley.core.errors import ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.token_bucket import TokenBucket
from parley.runtime.loop_clock import LoopClock
from parley.transports.piece_length import PieceLength
from parley.transports.webrtc.jitter_buffer import DuePacket, LowDelayJitterBuffer
from parley.transports.webrtc.rtp import RtpAudio

# A busy host stops a process for a second or more, and an answer that comes late is better than one to half
# of the words. A process that is always too slow would be later and later.
MOST_WAITING_MS = 3_000
# libopus fades out what it conceals within about 100 ms.
MOST_CONCEALED_MS = 100
# Sound that may come at once, after a stop of either side, and what may come in each second of time: clocks
# of sound cards differ by less than this.
BURST_MS, MS_PER_S = 4_000, 1_050
# Browsers send packets of 10 ms and more; a shorter one counts as so much.
LEAST_MS = 10.0
# G.711 and G.722.
BYTES_PER_MS = 8


class CallerAudio:
    """Sound of one caller, from the first packet to the end of the call.

    Args:
        rate_hz: rate of the PCM.
        channels: of the PCM.
        clock: of the bound on what comes; that of the running loop when None.

    Attributes:
        pieces: length of the pieces in which the sound is read.
    """

    def __init__(self, rate_hz: int, channels: int, *, clock: Clock | None = None) -> None:
        self._rate_hz, self._channels = rate_hz, channels
        self._clock = clock or LoopClock()
        self._allowed_ms = TokenBucket(MS_PER_S, BURST_MS)
        self._sample_bytes = channels * PCM_BYTES_PER_SAMPLE
        self._most_bytes = MOST_WAITING_MS * rate_hz // 1000 * self._sample_bytes
        self._order = LowDelayJitterBuffer()
        # Source and payload type of the stream that is decoded.
        self._stream: tuple[int, int] | None = None
        self._decoder: _Opus | _Library | None = None
        # Packets that are lost before the next one with sound.
        self._lost = 0
        self.pieces = PieceLength(rate_hz)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        # Sound that comes while the pipeline is being built is no sign of overload.
        self._is_read = False

    def take(self, packet: RtpAudio, codec: RTCRtpCodecParameters) -> None:
        """Take a packet that has arrived."""
        if self._stream is not None and packet.ssrc != self._stream[0]:
            # Numbers of another source say nothing about those of the last one.
            self._order, self._stream = LowDelayJitterBuffer(), None
        for due in self._order.add(packet):
            for pcm in self._decoded(due, codec):
                self._waiting.append(pcm)
                self._waiting_bytes += len(pcm)
        if self._waiting_bytes > self._most_bytes:
            self._drop()
        if self._is_piece():
            self._arrived.set()

    async def read(self) -> bytes:
        """Return the next piece of sound; waits for it."""
        self._is_read = True
        while not self._is_piece():
            self._arrived.clear()
            await self._arrived.wait()
        found = [self._waiting.popleft()]
        taken = len(found[0])
        most = self.pieces.most_joined_samples * self._sample_bytes
        while self._waiting and taken + len(self._waiting[0]) <= most:
            found.append(self._waiting.popleft())
            taken += len(found[-1])
        self._waiting_bytes -= taken
        self.pieces.left(taken // self._sample_bytes)
        return b"".join(found)

    def _is_piece(self) -> bool:
        return self.pieces.is_whole(self._waiting_bytes // self._sample_bytes)

    def _drop(self) -> None:
        """Drop all that waits: a late process continues with current sound after a gap."""
        waiting_ms = self._waiting_bytes // (self._rate_hz * self._sample_bytes // 1000)
        level = "WARNING" if self._is_read else "DEBUG"
        logger.log(level, f"dropping {waiting_ms} ms of input audio: this process is overloaded")
        self._waiting.clear()
        self._waiting_bytes = 0

    def _decoded(self, due: DuePacket, codec: RTCRtpCodecParameters) -> list[bytes]:
        packet = due.packet
        self._lost += due.lost
        if not packet.payload:
            return []
        try:
            length_ms = _length_ms(packet.payload, codec)
            lost, self._lost = self._lost, 0
            concealed_ms = lost * length_ms if lost * length_ms <= MOST_CONCEALED_MS else 0
            cost_ms = max(LEAST_MS, length_ms) + concealed_ms
            if not self._allowed_ms.take(cost_ms, self._clock.now_us()):
                return []
            if self._decoder is None or self._stream != (packet.ssrc, packet.payload_type):
                self._stream = packet.ssrc, packet.payload_type
                self._decoder = _decoder(codec, self._rate_hz, self._channels)
                concealed_ms = 0
            return self._decoder.decode(packet, lost if concealed_ms else 0)
        except (ValueError, ShapeError, FFmpegError) as error:
            logger.debug(f"a packet of the caller cannot be decoded: {error}")
            return []


def _length_ms(payload: bytes, codec: RTCRtpCodecParameters) -> float:
    if codec.name.lower() == "opus":
        return packet_samples(payload) * 1000 / GRANULE_HZ
    return len(payload) / BYTES_PER_MS


def _decoder(codec: RTCRtpCodecParameters, rate_hz: int, channels: int) -> "_Opus | _Library":
    if codec.name.lower() == "opus" and rate_hz in RATES_HZ and libopus.is_available():
        return _Opus(rate_hz, channels)
    return _Library(codec, rate_hz, channels)


class _Opus:
    def __init__(self, rate_hz: int, channels: int) -> None:
        self._decoder = OpusPacketDecoder(rate_hz, channels)
        self._rate_hz = rate_hz

    def decode(self, packet: RtpAudio, lost: int) -> list[bytes]:
        samples = packet_samples(packet.payload) * self._rate_hz // GRANULE_HZ
        found: list[bytes] = []
        for left in range(lost, 0, -1):
            # The next packet has a copy of the last one that is lost.
            found.append(self._decoder.conceal(samples, packet.payload if left == 1 else b""))
        found.append(self._decoder.decode(packet.payload))
        return [pcm for pcm in found if pcm]


class _Library:
    def __init__(self, codec: RTCRtpCodecParameters, rate_hz: int, channels: int) -> None:
        self._decoder = get_decoder(codec)
        self._resampler = AudioResampler("s16", "stereo" if channels == 2 else "mono", rate_hz)

    def decode(self, packet: RtpAudio, _lost: int) -> list[bytes]:
        frames = self._decoder.decode(JitterFrame(packet.payload, packet.timestamp))
        return [
            piece.to_ndarray().astype(np.int16).tobytes()
            for frame in frames
            if isinstance(frame, AudioFrame)
            for piece in self._resampler.resample(frame)
        ]
