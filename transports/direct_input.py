"""Microphone audio without a queue in between.

Pipecat's input transport puts every piece into a queue without a bound and has a task of its own take it out
again. Here the task that received a piece carries it through the direct part of the pipeline (voice activity,
recogniser) itself: two wake-ups and a timer less for each piece, and a pipeline that is slow holds its reader
back, whose own backlog is bounded. Audio filters of the transport's parameters are not applied; Parley's
front end is made of processors.
"""

from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame, StartFrame, StopFrame
from pipecat.transports.base_input import BaseInputTransport


class DirectAudioInput(BaseInputTransport):
    """Base of input transports whose reader is a task of its own.

    Nothing goes on before the pipeline has started, or after a ``StopFrame``.
    """

    _takes_audio = False
    _takes_pictures = False

    async def start(self, frame: StartFrame) -> None:
        enabled = self.capabilities
        self._takes_audio, self._takes_pictures = bool(enabled.audio_in), bool(enabled.video_in)
        await super().start(frame)

    async def set_transport_ready(self, frame: StartFrame) -> None:
        """There is no queue to prepare."""

    async def pause(self, frame: StopFrame) -> None:
        """See Pipecat's, which empties its queue."""
        self._takes_audio = self._takes_pictures = False

    async def push_audio_frame(self, frame: InputAudioRawFrame) -> None:
        if self._takes_audio:
            await self.push_frame(frame)

    async def push_video_frame(self, frame: InputImageRawFrame) -> None:
        if self._takes_pictures:
            await self.push_frame(frame)
