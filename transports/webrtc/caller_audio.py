"""Sound of one caller: RTP packets in any order become PCM at the rate of the pipeline.

Decides the order (``jitter_buffer``), what is heard in place of a lost packet, and what is dropped. ``take``
runs on the event loop for each packet that arrives; ``read`` is awaited by one task. At most
``MOST_WAITING_MS`` of sound wait in between.

Opus is decoded by libopus at the pipeline's rate, also the copy of a lost packet in the next one. Up to
``MOST_CONCEALED`` lost packets are concealed, so that the words keep their times; a longer gap is left out.
The other codecs of a browser, and Opus where libopus cannot be called, go through aiortc's decoder.
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

from parley.audio import opus_decoder
from parley.audio.opus_decoder import OpusPacketDecoder
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.transports.webrtc.jitter_buffer import DuePacket, LowDelayJitterBuffer
from parley.transports.webrtc.rtp import RtpAudio

# A busy host stops a process for a second or more, and an answer that comes late is better than one to half
# of the words. A process that is always too slow would be later and later.
MOST_WAITING_MS = 3_000
# libopus fades out what it conceals within about 100 ms.
MOST_CONCEALED = 5


class CallerAudio:
    """Sound of one caller, from the first packet to the end of the call.

    Args:
        rate_hz: rate of the PCM.
        channels: of the PCM.
    """

    def __init__(self, rate_hz: int, channels: int) -> None:
        self._rate_hz, self._channels = rate_hz, channels
        self._most_bytes = MOST_WAITING_MS * rate_hz // 1000 * channels * PCM_BYTES_PER_SAMPLE
        self._order = LowDelayJitterBuffer()
        self._payload_type: int | None = None
        self._decoder: _Opus | _Library | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        # Sound that comes while the pipeline is being built is no sign of overload.
        self._is_read = False

    def take(self, packet: RtpAudio, codec: RTCRtpCodecParameters) -> None:
        """Take a packet that has arrived."""
        for due in self._order.add(packet):
            for pcm in self._decoded(due, codec):
                self._waiting.append(pcm)
                self._waiting_bytes += len(pcm)
        if self._waiting_bytes > self._most_bytes:
            self._drop()
        if self._waiting:
            self._arrived.set()

    async def read(self) -> bytes:
        """Return the sound of the next packet; waits for it."""
        self._is_read = True
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        pcm = self._waiting.popleft()
        self._waiting_bytes -= len(pcm)
        return pcm

    def _drop(self) -> None:
        """Drop all that waits: a late process continues with current sound after a gap."""
        waiting_ms = self._waiting_bytes // (self._rate_hz * self._channels * PCM_BYTES_PER_SAMPLE // 1000)
        level = "WARNING" if self._is_read else "DEBUG"
        logger.log(level, f"dropping {waiting_ms} ms of input audio: this process is overloaded")
        self._waiting.clear()
        self._waiting_bytes = 0

    def _decoded(self, due: DuePacket, codec: RTCRtpCodecParameters) -> list[bytes]:
        packet = due.packet
        if not packet.payload:
            return []
        if self._decoder is None or packet.payload_type != self._payload_type:
            self._payload_type = packet.payload_type
            self._decoder = _decoder(codec, self._rate_hz, self._channels)
        try:
            return self._decoder.decode(packet, due.lost)
        except (ValueError, FFmpegError) as error:
            logger.debug(f"a packet of the caller cannot be decoded: {error}")
            return []


def _decoder(codec: RTCRtpCodecParameters, rate_hz: int, channels: int) -> "_Opus | _Library":
    if codec.name.lower() == "opus" and rate_hz in opus_decoder.RATES_HZ and opus_decoder.is_available():
        return _Opus(rate_hz, channels)
    return _Library(codec, rate_hz, channels)


class _Opus:
    def __init__(self, rate_hz: int, channels: int) -> None:
        self._decoder = OpusPacketDecoder(rate_hz, channels)
        self._sample_bytes = channels * PCM_BYTES_PER_SAMPLE
        # Of one packet: that of the one before.
        self._samples = 0

    def decode(self, packet: RtpAudio, lost: int) -> list[bytes]:
        found: list[bytes] = []
        for left in range(lost if lost <= MOST_CONCEALED else 0, 0, -1):
            # The next packet has a copy of the last one that is lost.
            found.append(self._decoder.conceal(self._samples, packet.payload if left == 1 else b""))
        found.append(self._decoder.decode(packet.payload))
        self._samples = len(found[-1]) // self._sample_bytes
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
