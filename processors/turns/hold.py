"""Stages of a call that can be put on hold: what goes into it is silence, and what would be said waits.

``HeldMedia`` stands directly after the transport's input. While the call is on hold it passes silence in
place of the caller's audio, at the pace of that audio, and no pictures. Voice activity, recogniser and
endpointing thus end what the caller was saying like any other speech.

``HeldSpeech`` stands after the commit gate, so that a turn that ends on hold is durable. Its question waits
there, and so do phrases of the deployment. A later question replaces an earlier one, whose words it contains.
"""

from copy import copy

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    LLMContextFrame,
    TTSSpeakFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.processors.direct_audio import DirectAudio

# Phrases that wait; without a limit a deployment that speaks by itself could fill the memory.
MOST_PHRASES = 8


class HeldMedia(DirectAudio):
    """Silence in place of the caller while a call is on hold.

    Args:
        is_on: the call begins on hold.
    """

    def __init__(self, *, is_on: bool) -> None:
        super().__init__(enable_direct_mode=True)
        self._is_on = is_on

    def hold(self) -> None:
        """Pass silence from here on."""
        self._is_on = True

    def release(self) -> None:
        """Pass the caller from here on."""
        self._is_on = False

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        if not self._is_on:
            await self.pass_audio(frame)
            return
        silent = copy(frame)
        silent.audio = bytes(len(frame.audio))
        await self.pass_audio(silent)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self._is_on and isinstance(frame, InputImageRawFrame):
            return
        await self.push_frame(frame, direction)


class HeldSpeech(FrameProcessor):
    """Questions and phrases that wait while a call is on hold.

    Args:
        is_on: the call begins on hold.

    Attributes:
        is_on: the call is on hold.
    """

    def __init__(self, *, is_on: bool) -> None:
        super().__init__(enable_direct_mode=True)
        self.is_on = is_on
        self._question: LLMContextFrame | None = None
        self._phrases: list[TTSSpeakFrame] = []

    @property
    def has_question(self) -> bool:
        """True when a turn of the caller waits for its answer."""
        return self._question is not None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not self.is_on or direction is FrameDirection.UPSTREAM:
            await self.push_frame(frame, direction)
        elif isinstance(frame, LLMContextFrame):
            if not frame.speculation:
                self._question = frame
        elif isinstance(frame, TTSSpeakFrame):
            # One that is repeated to a caller who waits for a person is said once.
            others = [phrase for phrase in self._phrases if phrase.text != frame.text]
            self._phrases = [*others, frame][-MOST_PHRASES:]
        else:
            await self.push_frame(frame, direction)

    def hold(self) -> None:
        """Keep what comes from here on."""
        self.is_on = True

    def open(self) -> None:
        """Pass on what comes from here on; what waits goes on waiting."""
        self.is_on = False

    async def release(self) -> None:
        """Pass on what waits: the phrases, then the question."""
        self.open()
        phrases, self._phrases = self._phrases, []
        question, self._question = self._question, None
        for frame in (*phrases, *([] if question is None else [question])):
            await self.push_frame(frame)

    def forget_question(self) -> None:
        """Forget the question that waits: a human answers it."""
        self._question = None

    def forget_phrases(self) -> None:
        """Forget the phrases that wait and may be interrupted: a human speaks in place of the bot."""
        self._phrases = [phrase for phrase in self._phrases if not phrase.interruptible]

    def drop(self) -> None:
        """Forget what waits: the call ends, and only its farewell is said."""
        self.open()
        self._phrases, self._question = [], None
