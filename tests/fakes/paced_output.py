"""Output that plays audio in real time, and a collector of frames, for pipelines on virtual time."""

import asyncio
from typing import Any

import numpy as np
from pipecat.frames.frames import Frame, OutputAudioRawFrame, StartFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams


class PacedOutput(BaseOutputTransport):
    """Output that plays audio in real time into a list."""

    def __init__(self) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_end_silence_secs=0))
        self.played: list[tuple[float, bytes]] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self.played.append((asyncio.get_running_loop().time(), frame.audio))
        await asyncio.sleep(len(frame.audio) / 2 / frame.sample_rate)
        return True

    def audio(self) -> np.ndarray:
        return np.frombuffer(b"".join(pcm for _, pcm in self.played), dtype="<i2")


class Collector(FrameProcessor):
    def __init__(self, direction: FrameDirection) -> None:
        super().__init__()
        self._collected = direction
        self.frames: list[tuple[float, Frame]] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is self._collected:
            self.frames.append((asyncio.get_running_loop().time(), frame))
        await self.push_frame(frame, direction)

    def of(self, kind: type) -> list[Any]:
        return [frame for _, frame in self.frames if isinstance(frame, kind)]
