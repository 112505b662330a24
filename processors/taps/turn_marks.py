"""Marks of the answer's way through the pipeline, for ``telemetry.turns``.

Three taps, because the stages between them consume what they work on: ``TypingTap`` stands first and sees
typed text, ``ThinkingTap`` before the speech synthesis sees the first text of the answer, ``SpeakingTap``
behind it sees the first clause and the first audio. They pass every frame on, in the task of whoever pushes.
"""

from pipecat.frames.frames import (
    Frame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from telemetry.turns import TurnLog


class TypingTap(FrameProcessor):
    """Notes what the person typed; spoken words come from the user aggregator."""

    def __init__(self, turns: TurnLog) -> None:
        super().__init__(enable_direct_mode=True)
        self._turns = turns

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMMessagesAppendFrame):
            for message in frame.messages:
                if isinstance(message, dict) and message.get("role") == "user":
                    self._turns.user_typed(str(message.get("content", "")))
        await self.push_frame(frame, direction)


class ThinkingTap(FrameProcessor):
    """Marks ``llm_first_token``."""

    def __init__(self, turns: TurnLog) -> None:
        super().__init__(enable_direct_mode=True)
        self._turns = turns

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self._turns.mark("llm_first_token")
        await self.push_frame(frame, direction)


class SpeakingTap(FrameProcessor):
    """Marks ``first_clause`` and ``tts_first_audio``."""

    def __init__(self, turns: TurnLog) -> None:
        super().__init__(enable_direct_mode=True)
        self._turns = turns

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSStartedFrame):
            self._turns.mark("first_clause")
        elif isinstance(frame, TTSAudioRawFrame):
            self._turns.mark("tts_first_audio")
        await self.push_frame(frame, direction)
