"""Microphone audio without a queue in between.

Pipecat's input transport puts every piece into a queue without a bound and has a task of its own take it out
again. Here the task that received a piece carries it through the direct part of the pipeline (voice activity,
recogniser) itself: two wake-ups and a timer less for each piece, and a pipeline that is slow holds its reader
back, whose own backlog is bounded. Audio filters of the transport's parameters are not applied; Parley's
front end is made of processors.
"""

from pipecat.frames.frames import InputAudioRawFrame
from pipecat.transports.base_input import BaseInputTransport


class DirectAudioInput(BaseInputTransport):
    """Base of input transports whose reader is a task of its own."""

    async def push_audio_frame(self, frame: InputAudioRawFrame) -> None:
        if self._params.audio_in_enabled and not self._paused:
            await self.push_frame(frame)

    def _create_audio_task(self) -> None:
        """There is nothing to take out of a queue."""
