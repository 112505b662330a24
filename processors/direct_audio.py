"""Caller's audio without a frame's bookkeeping between the processors that use it.

Pipecat shows each frame to the observers before and after every processor, in queues with a task each, raises
four events and formats a line of its log. For fifty pieces of audio a second that is more work than what the
processors do with them, and no observer or handler of a call reads audio. So a processor here takes audio by
a call of the one before. It passes audio on by a call of ``queue_frame``, which any processor has. All other
frames go Pipecat's way.

``transports.direct_input`` begins the chain.
"""

from abc import abstractmethod

from pipecat.frames.frames import Frame, InputAudioRawFrame
from pipecat.processors.frame_processor import FrameCallback, FrameDirection, FrameProcessor
from pipecat.utils.errors import ErrorCategory


class DirectAudio(FrameProcessor):
    """Mixin of processors in direct mode that take the caller's audio in the task that brings it.

    An exception in ``take_audio`` is reported as an error of the processor, as Pipecat does.
    """

    @abstractmethod
    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        """Process a piece of audio, and pass it on where later processors need it."""

    async def pass_audio(self, frame: InputAudioRawFrame) -> None:
        """Hand audio to the next processor."""
        following = self.next
        if following is not None:
            await following.queue_frame(frame)

    async def queue_frame(
        self,
        frame: Frame,
        direction: FrameDirection = FrameDirection.DOWNSTREAM,
        callback: FrameCallback | None = None,
    ) -> None:
        """Take audio that comes down the pipeline; see the base class for the rest."""
        if (
            isinstance(frame, InputAudioRawFrame)
            and direction is FrameDirection.DOWNSTREAM
            and callback is None
        ):
            await self._take(frame)
        else:
            await super().queue_frame(frame, direction, callback)

    async def _take(self, frame: InputAudioRawFrame) -> None:
        try:
            await self.take_audio(frame)
        except Exception as error:
            await self.push_error(
                f"Error processing audio: {error}", exception=error, category=ErrorCategory.UNKNOWN
            )
