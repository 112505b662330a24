"""An output that is silent from the moment of an interruption, however long its handling takes.

Pipecat hands the interruption on before it empties its queue of audio, and dropping what was taken makes room
for more of it: a listener behind the output that takes its time would let the rest of a cancelled reply
through. Here chunks are refused until the queue is empty. A refused or dropped chunk goes no further, so what
passes behind the output is what will be played, and nothing of a cancelled reply follows the interruption.
"""

from abc import abstractmethod

from pipecat.frames.frames import Frame, InterruptionFrame, OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_output import BaseOutputTransport


class InterruptibleOutput(BaseOutputTransport):
    """Base of our output transports; ``take_audio`` and ``drop_unsent`` are theirs."""

    _is_interrupting = False
    _last_was_interruptible = True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if not isinstance(frame, InterruptionFrame):
            await super().process_frame(frame, direction)
            return
        self._is_interrupting = True
        try:
            # Speech that may not be interrupted keeps what waits to be sent.
            if self._last_was_interruptible:
                self.drop_unsent()
            await super().process_frame(frame, direction)
        finally:
            self._is_interrupting = False

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if self._is_interrupting and frame.interruptible:
            return False
        self._last_was_interruptible = frame.interruptible
        return await self.take_audio(frame)

    @abstractmethod
    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        """Write a chunk; False when it was dropped before it could be played."""

    def drop_unsent(self) -> None:
        """Drop what was taken and not played."""
