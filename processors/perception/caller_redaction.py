"""Redact the caller's words where they come into the pipeline: right after the recogniser.

Input: partial and final transcripts, and typed words and keys (``LLMMessagesAppendFrame``). Output: the same
with personal data hidden (``language.turn_redaction``). Every stage after this one, the client and the events
of the call get these words alone. ``words_of_turn`` gives the words of a turn that is over: what was hidden
only because it might have become personal data is back in them.

The processor also decides for the recorded audio. From the beginning of a voice on, what was said is held
(``SpeechHeld``). It is settled (``SpeechSettled``, with the stretches that are redacted) when its turn is
over, when its words were not meant, or when the caller has been quiet for ``QUIET_S`` and no words are owed.

In a private pause the words are replaced as a whole; see ``processors.perception.private_words``.

It reads frames in the pushing task and owns no task; one timer ends with it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputDTMFFrame,
    InterimTranscriptionFrame,
    LLMMessagesAppendFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContextMessage
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.call_events import SpeechHeld, SpeechSettled, TurnEnded, UtteranceRead, WordsDiscarded
from parley.core.media import WordTime
from parley.language.turn_redaction import LiveWords, SaidPart, Stretch, TurnRedaction
from parley.models.stt import Transcript
from parley.processors.perception.engine_stt import BEGAN_S
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.private_words import PrivateWords
from parley.runtime.event_stream import CallEvents

# A voice begins before it is detected, and a recogniser hears what came before.
BEFORE_MS = 1_000
# Around words whose times a recogniser gives exactly.
AROUND_MS = 250
# Longer than a service takes for the words of a voice that has ended.
QUIET_S = 5.0
MOST_VOICES = 64


class CallerRedaction(FrameProcessor):
    """Redaction of one caller's words.

    Args:
        words: the words of the caller; None where only private pauses hide them.
        private: private pauses of the call.
        events: events of the call.
    """

    def __init__(self, words: TurnRedaction | None, private: PrivateWords, events: CallEvents) -> None:
        super().__init__(enable_direct_mode=True)
        self._words, self._private, self._events = words, private, events
        # Beginnings and ends of the voices that are not settled; the last one may be open.
        self._voices: deque[tuple[int, int | None]] = deque(maxlen=MOST_VOICES)
        # Redacted stretches that were not published yet.
        self._stretches: list[tuple[int, int]] = []
        # First and last of the keys that were pressed since the last typed words.
        self._keys: tuple[int, int] | None = None
        self._is_owed = False
        self._quiet: asyncio.TimerHandle | None = None
        if words is not None:
            events.subscribe(TurnEnded, self._on_turn_ended)
            events.subscribe(WordsDiscarded, self._on_words_discarded)

    def words_of_turn(self, shown: str) -> str:
        """Return the words of a turn that is over, of which ``shown`` came out of this processor."""
        if self._words is None:
            return shown
        self._collect()
        said = self._words.settle(shown, self._events.now_ms())
        self._settle()
        return said

    def utterance(self, read: UtteranceRead) -> UtteranceRead:
        """Return the record of an utterance, made before its words come here, with the words as shown."""
        if self._private.is_on:
            mark = self._private.hide(read.text, is_final=False)
            return replace(read, text=mark, words=(), partials=())
        if self._words is None:
            return read
        now_ms = self._events.now_ms()
        final = self._words.preview(read.text, read.words, now_ms)
        partials = tuple((at_ms, self._words.partial(text, (), now_ms).text) for at_ms, text in read.partials)
        return replace(read, text=final.text, words=final.words, partials=partials)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self._words is not None:
            self._follow(frame)
        if isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            frame = self._redacted(frame)
        elif isinstance(frame, LLMMessagesAppendFrame):
            frame = self._typed(frame)
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        self._stop_waiting()
        await super().cleanup()

    def _follow(self, frame: Frame) -> None:
        """Follow the caller's voice."""
        now_ms = self._events.now_ms()
        if isinstance(frame, VADUserStartedSpeakingFrame):
            began_ms = now_ms - int(frame.start_secs * 1_000) - BEFORE_MS
            if not self._voices:
                self._events.publish(SpeechHeld(now_ms, began_ms))
            self._voices.append((began_ms, None))
            self._stop_waiting()
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            if self._voices and self._voices[-1][1] is None:
                self._voices[-1] = self._voices[-1][0], now_ms
            self._wait_for_quiet()
        elif isinstance(frame, InputDTMFFrame):
            # A carrier may leave the tones in the audio.
            if not self._voices:
                self._events.publish(SpeechHeld(now_ms, now_ms - BEFORE_MS))
            self._voices.append((now_ms - BEFORE_MS, now_ms))
            self._keys = now_ms if self._keys is None else self._keys[0], now_ms
            self._wait_for_quiet()
        elif isinstance(frame, EndFrame | CancelFrame):
            self._stop_waiting()
            self._settle(is_last=True)
        elif isinstance(frame, WordsOwedFrame):
            self._is_owed = frame.is_owed
            if not frame.is_owed and self._words is not None and self._words.is_empty:
                # A noise.
                self._settle()

    def _redacted(self, frame: TranscriptionFrame | InterimTranscriptionFrame) -> Frame:
        now_ms = self._events.now_ms()
        transcript = frame.result if isinstance(frame.result, Transcript) else None
        if self._private.is_on:
            hidden = self._private.hide(frame.text, is_final=isinstance(frame, TranscriptionFrame))
            return _with_words(frame, LiveWords(hidden, (), True), transcript)
        if self._words is None:
            return frame
        words: Sequence[WordTime] = () if transcript is None else transcript.words
        if isinstance(frame, InterimTranscriptionFrame):
            live = self._words.partial(frame.text, words, now_ms)
        else:
            live = self._words.final(self._part(frame, tuple(words), now_ms), now_ms)
            self._wait_for_quiet()
        return _with_words(frame, live, transcript) if live.is_changed else frame

    def _part(self, frame: TranscriptionFrame, words: tuple[WordTime, ...], now_ms: int) -> SaidPart:
        """Return final words with the utterance in which they were said."""
        began_s = BEGAN_S.of(frame)
        first_ms = self._voices[0][0] if self._voices else now_ms - BEFORE_MS
        began_ms = first_ms if began_s is None else round(began_s * 1_000)
        ends = [end for begin, end in self._voices if end is not None and end >= began_ms]
        # Of a recogniser with utterances the first end after the beginning; of a service the last one.
        ended_ms = now_ms if not ends else (ends[0] if began_s is not None else ends[-1])
        return SaidPart(frame.text, began_ms, ended_ms, words)

    def _typed(self, frame: LLMMessagesAppendFrame) -> LLMMessagesAppendFrame:
        messages = [self._message(each) for each in frame.messages]
        return LLMMessagesAppendFrame(messages, run_llm=frame.run_llm)

    def _message(self, message: LLMContextMessage) -> LLMContextMessage:
        if not isinstance(message, dict) or message.get("role") != "user":
            return message
        content: Any = message.get("content")
        if isinstance(content, str):
            content = self._typed_text(content)
        elif isinstance(content, list):
            content = [
                {**part, "text": self._typed_text(part["text"])} if "text" in part else part
                for part in content
            ]
        return cast(LLMContextMessage, {**message, "content": content})

    def _typed_text(self, text: str) -> str:
        if self._private.is_on:
            return self._private.hide(text, is_final=True)
        if self._words is None:
            return text
        shown = self._words.typed(text, self._events.now_ms())
        if shown != text and self._keys is not None:
            self._stretches.append((self._keys[0] - BEFORE_MS, self._keys[1] + AROUND_MS))
        self._keys = None
        return shown

    # The recorded audio.

    def _on_turn_ended(self, event: TurnEnded) -> None:
        if self._words is not None and not event.text:
            self._forget()
        self._settle()

    def _on_words_discarded(self, _event: WordsDiscarded) -> None:
        self._forget()
        self._settle()

    def _forget(self) -> None:
        self._collect()
        if self._words is not None:
            self._words.forget(self._events.now_ms())

    def _collect(self) -> None:
        """Note what is redacted of the words so far."""
        if self._words is not None:
            found = (_widened(each) for each in self._words.stretches(self._events.now_ms()))
            self._stretches += [each for each in found if each not in self._stretches]

    def _wait_for_quiet(self) -> None:
        self._stop_waiting()
        self._quiet = asyncio.get_running_loop().call_later(QUIET_S, self._on_quiet)

    def _stop_waiting(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _on_quiet(self) -> None:
        self._quiet = None
        if self._is_owed:
            self._wait_for_quiet()
        else:
            self._settle()

    def _settle(self, *, is_last: bool = False) -> None:
        """Publish the decision about the voices that have ended, unless words of theirs are owed."""
        if self._words is None or not self._voices or (self._is_owed and not is_last):
            return
        now_ms = self._events.now_ms()
        open_ms = next((begin for begin, end in self._voices if end is None), None)
        if is_last and (open_ms is not None or self._is_owed):
            # The words of the last voice will never be known.
            self._stretches.append((self._voices[-1][0] if open_ms is None else open_ms, now_ms))
            open_ms = None
        if open_ms is not None and self._voices[0][0] == open_ms:
            return
        until_ms = now_ms if open_ms is None else open_ms
        self._collect()
        stretches, self._stretches = tuple(self._stretches), []
        self._events.publish(SpeechSettled(now_ms, until_ms, stretches))
        left = [each for each in self._voices if each[0] == open_ms]
        self._voices = deque(left, maxlen=MOST_VOICES)
        if self._voices:
            self._events.publish(SpeechHeld(now_ms, until_ms))


def _widened(each: Stretch) -> tuple[int, int]:
    return each.start_ms - AROUND_MS, each.end_ms + AROUND_MS


def _with_words(
    frame: TranscriptionFrame | InterimTranscriptionFrame, live: LiveWords, transcript: Transcript | None
) -> Frame:
    """Return a transcript of the same kind and moment with other words."""
    result = None
    if transcript is not None:
        result = Transcript(
            live.text,
            live.words,
            transcript.confidence,
            final=transcript.final,
            floor_log_odds=transcript.floor_log_odds,
        )
    if isinstance(frame, TranscriptionFrame):
        made: TranscriptionFrame | InterimTranscriptionFrame = TranscriptionFrame(
            live.text,
            frame.user_id,
            frame.timestamp,
            frame.language,
            result=result,
            finalized=frame.finalized,
        )
    else:
        made = InterimTranscriptionFrame(
            live.text, frame.user_id, frame.timestamp, frame.language, result=result
        )
    made.metadata.update(frame.metadata)
    return made
