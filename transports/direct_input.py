"""Microphone audio without a queue in between.

Pipecat's input transport puts every piece into a queue without a bound, and a task of its own takes it out
again. Here the task that received a piece carries it through the direct part of the pipeline (voice activity,
recogniser) itself. This saves two wake-ups and a timer for each piece. A slow pipeline holds back its reader,
whose own backlog is bounded. Audio filters of the transport's parameters are not applied, because Parley's
front end is made of processors.

Audio is handed to the next processor by a call of its ``queue_frame``, without the observers, events and log
lines of ``push_frame`` (``processors.direct_audio``).
"""

from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame, StartFrame, StopFrame
from pipecat.transports.base_input import BaseInputTransport
from pipecat.utils.errors import ErrorCategory


class DirectAudioInput(BaseInputTransport):
    """Base of input transports whose reader is a task of its own.

    Nothing is pushed before the pipeline has started, or after a ``StopFrame``.
    """

    _takes_audio = False
    _takes_pictures = False

    async def start(self, frame: StartFrame) -> None:
        enabled = self.capabilities
        self._takes_audio, self._takes_pictures = bool(enabled.audio_in), bool(enabled.video_in)
        await super().start(frame)

    async def set_transport_ready(self, frame: StartFrame) -> None:
        """Do nothing: there is no queue to prepare."""

    async def pause(self, frame: StopFrame) -> None:
        """Stop pushing audio and pictures; Pipecat's method empties its queue here."""
        self._takes_audio = self._takes_pictures = False

    async def push_audio_frame(self, frame: InputAudioRawFrame) -> None:
        following = self.next
        if not self._takes_audio or following is None:
            return
        try:
            await following.queue_frame(frame)
        except Exception as error:
            await self.push_error(
                f"Uncaught exception: {error}", exception=error, category=ErrorCategory.UNKNOWN
            )

    async def push_video_frame(self, frame: InputImageRawFrame) -> None:
        if self._takes_pictures:
            await self.push_frame(frame)
