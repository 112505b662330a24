"""Publishes what comes out of the model: the frames between it and the voice, as events.

Processors that stand there anyway call ``publish`` with each frame: a processor of its own in that place
would cost every frame another hop.
"""

from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)

from core.call_events import PhraseInserted, ResponseEnded, ResponseStarted, ResponseText, ToolsCalled
from runtime.event_stream import CallEvents


class ResponseEvents:
    """Translates frames into events.

    Args:
        events: of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events

    def publish(self, frame: Frame) -> None:
        """Publish what a frame, in either direction, says of the answer."""
        events, now_ms = self._events, self._events.now_ms()
        if isinstance(frame, LLMTextFrame):
            events.publish(ResponseText(now_ms, frame.text))
        elif isinstance(frame, LLMFullResponseStartFrame):
            events.publish(ResponseStarted(now_ms))
        elif isinstance(frame, LLMFullResponseEndFrame):
            events.publish(ResponseEnded(now_ms))
        elif isinstance(frame, FunctionCallsStartedFrame):
            events.publish(ToolsCalled(now_ms))
        elif isinstance(frame, TTSSpeakFrame):
            events.publish(PhraseInserted(now_ms))
