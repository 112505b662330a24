"""Marks of the answer's way through the pipeline, for ``telemetry.turns``.

Three places, because the stages between them consume what they work on: in front of the user aggregator typed
text is seen, in front of the voice the first text of the answer, behind it the first clause and the first
audio. Processors that stand there anyway call these methods with each frame: one of our own in each place
would cost every frame another hop.
"""

from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
)

from telemetry.turns import TurnLog


class TurnMarks:
    """Writes into the turn log of one call.

    Args:
        turns: of the call.
    """

    def __init__(self, turns: TurnLog) -> None:
        self._turns = turns

    def typing(self, frame: Frame) -> None:
        """What the person typed; spoken words come from the user aggregator."""
        if isinstance(frame, LLMMessagesAppendFrame):
            for message in frame.messages:
                if isinstance(message, dict) and message.get("role") == "user":
                    self._turns.user_typed(str(message.get("content", "")))

    def thinking(self, frame: Frame) -> None:
        """``llm_first_token``, and the tools that the answer waits for."""
        if isinstance(frame, LLMTextFrame):
            self._turns.mark("llm_first_token")
        elif isinstance(frame, FunctionCallsStartedFrame):
            self._turns.tools_called()

    def speaking(self, frame: Frame) -> None:
        """``first_clause`` and ``tts_first_audio``."""
        if isinstance(frame, TTSStartedFrame):
            self._turns.mark("first_clause")
        elif isinstance(frame, TTSAudioRawFrame):
            self._turns.mark("tts_first_audio")
