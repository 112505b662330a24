"""Redact the words of the model before anything says, shows or stores them.

Input: the text of a response, piece by piece. Output: the same pieces, apart from the end that may yet be
part of personal data: a number that may go on, and a word that is not whole. It is held until the next piece
decides, at most ``MOST_HELD`` characters; longer numbers are hidden as they are. The end of the response
flushes it, and an interruption drops it.
"""

from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.language.personal_data import Redactor

MOST_HELD = 400
# Before a number's first digit, what belongs to it.
_OPENING = " +(["


class AgentRedaction(FrameProcessor):
    """Redaction of the responses of one pipeline.

    Args:
        redactor: decides what is hidden.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(enable_direct_mode=True)
        self._redactor = redactor
        self._held = ""
        self._like: LLMTextFrame | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame) and direction is FrameDirection.DOWNSTREAM:
            self._held += frame.text
            self._like = frame
            await self._release(self._open_at())
            return
        if isinstance(frame, LLMFullResponseStartFrame | InterruptionFrame):
            self._held = ""
        elif isinstance(frame, LLMFullResponseEndFrame):
            await self._release(len(self._held))
        await self.push_frame(frame, direction)

    def _open_at(self) -> int:
        """Return the place from which the text is not decided."""
        text = self._held
        last_word = text.rfind(" ") + 1
        if len(text) > MOST_HELD:
            return last_word
        open_at = len(text) if text.endswith((" ", "\n")) else last_word
        runs = self._redactor.rules.runs(text)
        if runs and not any(each.isalpha() for each in text[runs[-1].end : last_word]):
            open_at = min(open_at, runs[-1].start)
            while open_at and text[open_at - 1] in _OPENING:
                open_at -= 1
        # The word before a number may belong to it: "plus".
        return open_at

    async def _release(self, until: int) -> None:
        text, self._held = self._held[:until], self._held[until:]
        if not text or self._like is None:
            return
        shown = self._redactor.of_agent(text)
        like = self._like
        if like.text == shown and not self._held:
            await self.push_frame(like)
            return
        frame = LLMTextFrame(shown)
        frame.skip_tts, frame.append_to_context = like.skip_tts, like.append_to_context
        frame.metadata.update(like.metadata)
        await self.push_frame(frame)
