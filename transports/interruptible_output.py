"""Output that is silent from the moment of an interruption, however long its handling takes.

Pipecat passes the interruption on before it empties its queue of audio, and dropping the accepted audio makes
room for more. A slow processor downstream of the output would therefore let the rest of a cancelled reply
through. Here chunks are refused until the queue is empty. A refused or dropped chunk goes no further. The
chunks that pass downstream are the ones that are played, and no part of a cancelled reply follows the
interruption.
"""

from abc import abstractmethod
from typing import Any

from pipecat.frames.frames import Frame, InterruptionFrame, OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_output import BaseOutputTransport

from parley.transports.pipecat_internals import write_promptly


class InterruptibleOutput(BaseOutputTransport):
    """Base of our output transports; a subclass implements ``take_audio`` and ``drop_unsent``."""

    _is_interrupting = False
    _last_was_interruptible = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        write_promptly(self)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if not isinstance(frame, InterruptionFrame):
            await super().process_frame(frame, direction)
            return
        self._is_interrupting = True
        try:
            # Speech that may not be interrupted keeps the audio that waits to be sent.
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
        """Write a chunk; return False when it was dropped before it could be played."""

    def drop_unsent(self) -> None:
        """Drop audio that was accepted and has not been played."""
