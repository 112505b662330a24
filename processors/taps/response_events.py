"""Publish the output of the model, the frames between it and the voice, as events.

Existing processors in that place call ``publish`` with each frame: a separate processor would cost every
frame another hop.
"""

from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)

from parley.core.call_events import PhraseInserted, ResponseEnded, ResponseStarted, ResponseText, ToolsCalled
from parley.core.frame_facts import AUTHOR, PROMPT
from parley.runtime.event_stream import CallEvents


class ResponseEvents:
    """Translator of frames into events.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events

    def publish(self, frame: Frame) -> None:
        """Publish the event for a frame, in either direction; other frames are ignored."""
        events, now_ms = self._events, self._events.now_ms()
        if isinstance(frame, LLMTextFrame):
            events.publish(ResponseText(now_ms, frame.text, AUTHOR.of(frame) or ""))
        elif isinstance(frame, LLMFullResponseStartFrame):
            events.publish(ResponseStarted(now_ms, PROMPT.of(frame)))
        elif isinstance(frame, LLMFullResponseEndFrame):
            events.publish(ResponseEnded(now_ms))
        elif isinstance(frame, FunctionCallsStartedFrame):
            events.publish(ToolsCalled(now_ms))
        elif isinstance(frame, TTSSpeakFrame):
            events.publish(PhraseInserted(now_ms))
