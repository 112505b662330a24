"""The output of a browser call without the connection: a real track, and a peer that takes every packet."""

import asyncio
from collections.abc import Callable

from pipecat.frames.frames import OutputAudioRawFrame, StartFrame
from pipecat.transports.base_transport import TransportParams

from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.webrtc.audio_track import PacedAudioTrack

RATE_HZ = 16_000


class TrackOutput(InterruptibleOutput):
    """Output that plays into a real track."""

    lead_ms = 60

    def __init__(self, on_packet: Callable[[bytes], None]) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_end_silence_secs=0))
        self.sent: list[tuple[float, bytes]] = []
        self._told = on_packet
        self._track = PacedAudioTrack(RATE_HZ, lead_ms=self.lead_ms, on_packet=self._left)
        self._peer: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._peer = self.create_task(self._listen(), name="peer")
        await self.set_transport_ready(frame)

    async def cleanup(self) -> None:
        await super().cleanup()
        if self._peer is not None:
            await self.cancel_task(self._peer)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        return await self._track.write(frame.audio)

    def drop_unsent(self) -> None:
        self._track.clear()

    def _left(self, pcm: bytes) -> None:
        self.sent.append((asyncio.get_running_loop().time(), pcm))
        self._told(pcm)

    async def _listen(self) -> None:
        while True:
            await self._track.recv()

    def audible_ms(self) -> int:
        return sum(len(pcm) for _, pcm in self.sent) // 32
