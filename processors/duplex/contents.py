"""What the voice in front of a full-duplex engine makes, as contents for the engine to say.

Stands where the voice's frames come in. In: the frames of a reply (a response of the model, or a phrase of
its own), as any voice of the registry pushes them. Out: one ``Content`` for each, given to ``give`` as soon
as it begins and filled as the frames come; the frames go no further. What is in it is what the voice said:
audio at the engine's rate, words at their places (of a voice without word times: where its audio stood when
they came).

While the engine that is on finds its own words, a reply passes as it is, from its first frame to its last,
whatever engine is on by then.

An interruption that comes down the pipeline takes back everything that was made and not said, and what comes
late of it is dropped by the id of its context. Pure work of microseconds; the contents of a call that nobody
takes from are bounded by the model's answer.
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

from audio.resample import Resampler
from core.media import pcm16_to_float
from models.omni.two_tier.content import Content
from processors.speech.spoken_at import SPOKEN_AT, BrokeOffFrame

_US_PER_S = 1_000_000
# Contexts whose late frames are known.
_VOID = 64
# More responses than that are never on their way to the voice.
_WRITTEN = 8


class _Written:
    """What the model writes of a response, before the voice and while it speaks."""

    def __init__(self) -> None:
        self.text = ""
        self.content: Content | None = None


class _Making:
    """A content and the contexts that it is made in."""

    def __init__(self, content: Content, *, in_response: bool) -> None:
        self.content = content
        self.in_response = in_response
        # Whether more contexts may follow, and how many are open.
        self.may_follow = in_response
        self.open_contexts = 0
        # Words that were announced and have no context yet.
        self.is_announced = False


class Contents:
    """Of one call.

    Args:
        rate_hz: of the engine's output.
        give: takes a content that begins.
    """

    def __init__(self, rate_hz: int, give: Callable[[Content], None]) -> None:
        self._rate_hz = rate_hz
        self._give = give
        self._response: _Making | None = None
        # A response, and contexts, that pass as they are.
        self._passes_response = False
        self._passing: set[str] = set()
        self._making: dict[str, _Making] = {}
        # Where each context begins in its content, in samples.
        self._began: dict[str, int] = {}
        self._void: deque[str] = deque(maxlen=_VOID)
        self._given: list[Content] = []
        # Responses that the model has begun and the voice has not.
        self._written: deque[_Written] = deque(maxlen=_WRITTEN)
        self._writing: _Written | None = None
        self._resampler: Resampler | None = None
        self._heard_hz = rate_hz

    def thought(self, frame: Frame) -> None:
        """A frame in front of the voice: what is not heard of an answer is known by what was written."""
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
        """Whether something was made, or is being made, that was not said."""
        return any(not content.is_over for content in self._given)

    @property
    def is_passing(self) -> bool:
        """Whether the voice says something by itself."""
        return bool(self._passing)

    def take(self, frame: Frame, *, captures: bool) -> bool:
        """Whether the frame is a part of a content, and goes no further.

        Args:
            frame: of the voice.
            captures: whether a reply that begins with it is for the engine.
        """
        context_id = getattr(frame, "context_id", None) or ""
        if isinstance(frame, TTSStartedFrame):
            if not captures:
                self._passing.add(context_id)
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
            # A voice says so behind a phrase; the end of the engine's own reply does it.
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
        """Nothing of what was made is wanted any more, whoever was to say it."""
        self.given_up()
        self._passes_response = False
        self._passing.clear()

    def given_up(self) -> None:
        """The engine is gone: what was made for it is nobody's. What the voice says by itself goes on."""
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
            # A voice that times by the clock, or not at all: no later than what is there of its audio.
            making.content.add_word(text, making.content.made_samples)

    def _text(self, frame: AggregatedTextFrame, *, captures: bool) -> bool:
        """What is about to be said. What is only shown passes."""
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
            # The end of one that was interrupted.
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
