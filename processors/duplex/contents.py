"""Turn the output of the voice before a full-duplex engine into contents for the engine to say.

The object stands where the voice's frames arrive. Input: the frames of a reply (a response of the model, or a
phrase of its own), as any voice of the registry pushes them. Output: one ``Content`` for each, passed to
``give`` as soon as it begins and filled as the frames come; the frames go no further. A content holds the
speech of the voice: audio at the engine's rate, and words at their places (for a voice without word times:
the length of its audio when they came).

While the current engine finds its own words, a reply passes unchanged, from its first frame to its last, even
when the engine changes meanwhile.

An interruption that comes down the pipeline takes back everything that was made and not said, and its late
frames are dropped by the id of their context. The work is pure and takes microseconds. Contents that are
never taken are bounded by the model's answer.
"""

from collections import deque
from collections.abc import Callable

from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)

from parley.audio.resample import Resampler
from parley.core.media import pcm16_to_float
from parley.models.omni.two_tier.content import Content
from parley.processors.speech.spoken_at import SPOKEN_AT, BrokeOffFrame

_US_PER_S = 1_000_000
# Number of contexts whose late frames are recognised.
_VOID = 64
# More responses than that are never on their way to the voice.
_WRITTEN = 8


class _Written:
    """Text that the model writes of a response, before the voice and while it speaks."""

    def __init__(self) -> None:
        self.text = ""
        self.content: Content | None = None


class _Making:
    """A content and the contexts in which it is made."""

    def __init__(self, content: Content, *, in_response: bool) -> None:
        self.content = content
        self.in_response = in_response
        # More contexts may follow; number of open ones.
        self.may_follow = in_response
        self.open_contexts = 0
        # Words were announced that have no context yet.
        self.is_announced = False


class Contents:
    """Contents of one call.

    Args:
        rate_hz: rate of the engine's output.
        give: takes a content that begins.
    """

    def __init__(self, rate_hz: int, give: Callable[[Content], None]) -> None:
        self._rate_hz = rate_hz
        self._give = give
        self._response: _Making | None = None
        # A response, and contexts, that pass unchanged.
        self._passes_response = False
        self._passing: set[str] = set()
        # Those of them that an interruption does not end.
        self._protected: set[str] = set()
        self._making: dict[str, _Making] = {}
        # Beginning of each context in its content, in samples.
        self._began: dict[str, int] = {}
        self._void: deque[str] = deque(maxlen=_VOID)
        self._given: list[Content] = []
        # Responses that the model has begun and the voice has not.
        self._written: deque[_Written] = deque(maxlen=_WRITTEN)
        self._writing: _Written | None = None
        self._resampler: Resampler | None = None
        self._heard_hz = rate_hz

    def thought(self, frame: Frame) -> None:
        """Read a frame before the voice: the unheard part of an answer is known from the written text."""
        if isinstance(frame, LLMFullResponseStartFrame) and not frame.skip_tts:
            self._writing = _Written()
            self._written.append(self._writing)
        elif isinstance(frame, LLMTextFrame) and self._writing is not None:
            self._writing.text += frame.text
            if self._writing.content is not None:
                self._writing.content.wrote(frame.text)
        elif isinstance(frame, LLMFullResponseEndFrame | InterruptionFrame):
            self._writing = None

    @property
    def is_waiting(self) -> bool:
        """True when a content is not said, or not finished."""
        return any(not content.is_over for content in self._given)

    @property
    def is_passing(self) -> bool:
        """True when the voice speaks by itself."""
        return bool(self._passing)

    def take(self, frame: Frame, *, captures: bool) -> bool:
        """Return whether the frame is a part of a content, and goes no further.

        Args:
            frame: a frame of the voice.
            captures: True when a reply that begins with it is for the engine.
        """
        context_id = getattr(frame, "context_id", None) or ""
        if isinstance(frame, TTSStartedFrame):
            if not captures:
                self._passing.add(context_id)
                if not frame.interruptible:
                    self._protected.add(context_id)
                return False
            self._begin(frame)
        elif isinstance(frame, LLMFullResponseStartFrame):
            self._passes_response = not captures or bool(frame.skip_tts)
            if self._passes_response:
                if self._written and not frame.skip_tts:
                    self._written.popleft()
                return False
            self._response = _Making(self._of_response(), in_response=True)
        elif isinstance(frame, LLMFullResponseEndFrame):
            return self._end_response()
        elif context_id in self._passing:
            if isinstance(frame, TTSStoppedFrame):
                self._passing.discard(context_id)
                self._protected.discard(context_id)
            return False
        elif isinstance(frame, TTSAudioRawFrame):
            self._audio(frame)
        elif isinstance(frame, TTSTextFrame):
            self._word(frame)
        elif isinstance(frame, BrokeOffFrame):
            if (making := self._making.get(context_id)) is not None:
                making.content.broke_off()
        elif isinstance(frame, AggregatedTextFrame):
            return self._text(frame, captures=captures)
        elif isinstance(frame, TTSStoppedFrame):
            self._end(context_id)
        else:
            # A voice sends this frame after a phrase; here the end of the engine's own reply replaces it.
            return captures and isinstance(frame, LLMAssistantPushAggregationFrame)
        return True

    def _of_response(self) -> Content:
        content = Content(self._rate_hz)
        if self._written:
            written = self._written.popleft()
            written.content = content
            content.wrote(written.text)
        return content

    def interrupted(self) -> None:
        """Cancel everything that was made, for the engine or for the caller."""
        self.given_up()
        self._passes_response = False
        self._passing &= self._protected

    def given_up(self) -> None:
        """Cancel the contents of an engine that is gone. Speech of the voice itself continues."""
        given, self._given = self._given, []
        for content in given:
            content.cancel()
        if self._response is not None:
            self._response.content.cancel()
        self._response = None
        self._written.clear()
        self._void.extend(self._making)
        self._making.clear()
        self._began.clear()

    def _begin(self, frame: TTSStartedFrame) -> None:
        context_id = frame.context_id or ""
        if context_id in self._void:
            return
        response = self._response
        if response is not None and frame.append_to_context:
            making = response
        else:
            content = Content(
                self._rate_hz, is_aside=not frame.append_to_context, is_protected=not frame.interruptible
            )
            making = _Making(content, in_response=False)
        making.is_announced = False
        making.open_contexts += 1
        self._making[context_id] = making
        self._began[context_id] = making.content.made_samples
        if making.content not in self._given:
            self._given = [each for each in self._given if not each.is_over]
            self._given.append(making.content)
            self._give(making.content)

    def _audio(self, frame: TTSAudioRawFrame) -> None:
        making = self._making.get(frame.context_id or "")
        if making is None:
            return
        audio = pcm16_to_float(frame.audio)
        if frame.sample_rate != self._rate_hz:
            if self._resampler is None or self._heard_hz != frame.sample_rate:
                self._heard_hz = frame.sample_rate
                self._resampler = Resampler(self._heard_hz, self._rate_hz)
            audio = self._resampler.feed(audio)
        making.content.add_audio(audio)

    def _word(self, frame: TTSTextFrame) -> None:
        context_id = frame.context_id or ""
        making = self._making.get(context_id)
        if making is None:
            return
        at = SPOKEN_AT.of(frame)
        text = (frame.raw_text or frame.text).strip()
        if at is not None:
            began = self._began[context_id]
            start, end = (began + us * self._rate_hz // _US_PER_S for us in (at.start_us, at.end_us))
            making.content.add_word(text, start, end)
        elif text:
            # A voice that times by the clock, or not at all: place the word at the end of its audio so far.
            making.content.add_word(text, making.content.made_samples)

    def _text(self, frame: AggregatedTextFrame, *, captures: bool) -> bool:
        """Handle an announced text; return whether it is consumed. Text that is only shown passes."""
        if not frame.will_be_spoken or self._passes_response or not captures:
            return False
        making = self._making.get(frame.context_id or "", self._response)
        if making is not None:
            if not making.in_response:
                making.content.wrote(frame.raw_text or frame.text)
            making.is_announced = making.open_contexts == 0
        return True

    def _end(self, context_id: str) -> None:
        making = self._making.pop(context_id, None)
        self._began.pop(context_id, None)
        if making is None:
            return
        making.open_contexts -= 1
        self._end_if_made(making)

    def _end_response(self) -> bool:
        passes, self._passes_response = self._passes_response, False
        response, self._response = self._response, None
        if passes:
            return False
        if response is None:
            # The end of a response that was interrupted.
            return True
        response.may_follow = response.is_announced
        self._end_if_made(response)
        return True

    def _end_if_made(self, making: _Making) -> None:
        if not making.open_contexts and not making.may_follow:
            making.content.end()
        elif making.in_response and self._response is not making:
            # A context that was announced before the end of its response has come and gone.
            making.may_follow = False
            if not making.open_contexts:
                making.content.end()
