"""Stages of the call of a human at the desk: their microphone, and their words for the record."""

from collections.abc import Callable

from pipecat.frames.frames import Frame, InputAudioRawFrame, TranscriptionFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class HumanMicrophone(FrameProcessor):
    """Processor that copies the audio of the human.

    Args:
        speak: receives each piece; must not block.
    """

    def __init__(self, speak: Callable[[bytes], None]) -> None:
        super().__init__(enable_direct_mode=True)
        self._speak = speak

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            self._speak(frame.audio)
        await self.push_frame(frame, direction)


class HumanWords(FrameProcessor):
    """Processor that consumes the recogniser's final words.

    Args:
        write: receives the words of each utterance; must not block.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(enable_direct_mode=True)
        self._write = write

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            if frame.text.strip():
                self._write(frame.text.strip())
            return
        if isinstance(frame, InputAudioRawFrame):
            return
        await self.push_frame(frame, direction)
