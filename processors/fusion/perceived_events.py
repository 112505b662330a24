"""Publish perceptions of the caller as events: voices, words, typed text.

Reads the frames that pass ``Perception``, which precedes the caller's turns, and changes none.
"""

from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMMessagesAppendFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import (
    FinalWords,
    PartialWords,
    TextTyped,
    VoiceEnded,
    VoiceStarted,
    WordsOwed,
)
from parley.models.stt import Transcript
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.runtime.event_stream import CallEvents


class PerceivedEvents:
    """Translator of frames into events.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events

    def publish(self, frame: Frame) -> None:
        """Publish the event for a frame about the caller; other frames are ignored."""
        events, now_ms = self._events, self._events.now_ms()
        if isinstance(frame, VADUserStartedSpeakingFrame):
            events.publish(VoiceStarted(now_ms, int(frame.start_secs * 1000)))
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            events.publish(VoiceEnded(now_ms, int(frame.stop_secs * 1000)))
        elif isinstance(frame, TranscriptionFrame):
            events.publish(FinalWords(now_ms, frame.text, word_confidences(frame)))
        elif isinstance(frame, InterimTranscriptionFrame):
            events.publish(PartialWords(now_ms, frame.text))
        elif isinstance(frame, WordsOwedFrame):
            events.publish(WordsOwed(now_ms, frame.is_owed))
        elif isinstance(frame, LLMMessagesAppendFrame):
            for message in frame.messages:
                if isinstance(message, dict) and message.get("role") == "user":
                    events.publish(TextTyped(now_ms, text_of(message.get("content"))))


def word_confidences(frame: TranscriptionFrame) -> tuple[float, ...] | None:
    """Return the confidence of each word; None from a recogniser that does not report it."""
    transcript = frame.result
    if not isinstance(transcript, Transcript) or len(transcript.words) != len(frame.text.split()):
        return None
    return tuple(word.confidence for word in transcript.words)
