"""Translate the output and input of Pipecat's realtime services for the playout clock and for the session.

``TypedWords`` and ``ServiceGate`` stand before the service, ``RealtimeReplies`` after it. A service names no
replies, writes words without their places, begins and ends each in an order of its own, and continues to send
for a moment after an interruption. The replies leave here like those of a voice: a start, a stretch of audio
with an id, its end. Their text is passed to the playout clock as it comes and spread over the audio. Frames
without an id are the service's; speech of the deployment's voice passes unchanged.

A ``continuous`` service sends silence as well, and only its transcripts indicate that it speaks. There a
sound or a word begins a reply, and a silence ends it.

The processors own no task.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from loguru import logger
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    InputAudioRawFrame,
    InputTextRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    SpeechOutputAudioRawFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.audio.audible import is_loud_pcm16
from parley.core.call_events import ServiceSent, ServiceSpoke, TextTyped
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.duplex.services import TypedInput
from parley.processors.playout.assistant import HEARD_LATER
from parley.processors.playout.playout import Playout
from parley.processors.taps.response_events import ResponseEvents
from parley.processors.turns.floor import FloorHolder
from parley.runtime.event_stream import CallEvents

# Silence of a continuous service that ends its reply: Pipecat ends its turns after as much.
GAP_MS = 800
# Audio that is held back at the beginning of a reply of a continuous service, which sends no faster than it
# speaks: a piece that is late by less leaves no gap.
LEAD_MS = 120
# Frames of a service that wait for the end of an announcement: some minutes of audio, in pieces of 20 ms.
MOST_WAITING = 8_192
# Frames of a service that belong to a reply.
OUTPUT = (
    LLMFullResponseStartFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    SpeechOutputAudioRawFrame,
    TTSAudioRawFrame,
    InterruptionFrame,
)
_SENTENCE_ENDS = (".", "?", "!", "…")


class TypedWords(FrameProcessor):
    """Processor before the user aggregator that leads typed words past it.

    The aggregator would keep them for a context that a realtime service does not answer. As messages, the
    service and the assistant aggregator take the same frame, and the latter requests the answer; as text, the
    service takes it for the caller's and answers. Where the service has no input for words, they reach
    neither it nor the session; the client was notified before (``CheckedRtvi``).

    Args:
        typing: way in which the service takes them.
        hand_on: pushes a frame after the aggregator.
        events: events of the call.
    """

    def __init__(
        self,
        typing: TypedInput,
        *,
        hand_on: Callable[[Frame], Awaitable[None]],
        events: CallEvents,
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._typing = typing
        self._hand_on = hand_on
        self._events = events

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is not FrameDirection.DOWNSTREAM or not isinstance(frame, LLMMessagesAppendFrame):
            await self.push_frame(frame, direction)
            return
        typed = [
            text
            for message in frame.messages
            if isinstance(message, dict) and message.get("role") == "user"
            if (text := text_of(message.get("content")))
        ]
        if self._typing is TypedInput.NONE:
            logger.warning("the realtime service does not accept typed text; it is dropped")
            return
        for text in typed:
            self._events.publish(TextTyped(self._events.now_ms(), text))
        if self._typing is TypedInput.MESSAGES:
            await self._hand_on(frame)
        else:
            for text in typed:
                await self._hand_on(InputTextRawFrame(text))


class ServiceGate(FrameProcessor):
    """Processor before the service that stops frames that are not for it.

    Args:
        takes_contexts: True when it gets the contexts that the aggregator pushes with each turn. A service
            that was begun without one would take the first for its beginning, receive its own input again,
            and answer once more.
    """

    def __init__(self, *, takes_contexts: bool) -> None:
        super().__init__(enable_direct_mode=True)
        self._takes_contexts = takes_contexts
        self._is_shut = self._is_held = False

    def hold(self) -> None:
        """Keep the caller's audio from the service until ``release``."""
        self._is_held = True

    def release(self) -> None:
        """Let the service hear the caller from here on."""
        self._is_held = False

    def shut(self) -> None:
        """Stop audio to a service that is gone: it would report an error for every piece."""
        self._is_shut = True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame) and not self._takes_contexts:
                return
            if isinstance(frame, InputAudioRawFrame) and (self._is_shut or self._is_held):
                return
        await self.push_frame(frame, direction)


class RealtimeReplies(FrameProcessor):
    """Processor after the service and before the ``PlayoutEntry``.

    Args:
        playout: the playout clock of the call.
        continuous: True when the service sends one stream, silence included.
        events: events of the call, as long as the service has it; None: those of ``playout``. Receive
            ``ServiceSpoke``, and ``ServiceSent`` for each frame of the service that belongs to a reply.
    """

    def __init__(
        self, playout: Playout, *, continuous: bool = False, events: CallEvents | None = None
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._playout = playout
        self._events = events or playout.events
        self._continuous = continuous
        self._responses = ResponseEvents(playout.events)
        self._floor = FloorHolder(playout.events)
        self._reply_id: str | None = None
        self._sounds = False
        self._text = ""
        self._silent_ms = 0
        # Beginning of a reply of a continuous service, until it is played.
        self._held: list[bytes] | None = []
        self._held_ms = 0
        # After an interruption nothing counts until the service begins another reply.
        self._deaf = False
        # Frames of the service that wait; None while none has to.
        self._waiting: deque[Frame] | None = None
        self.late_frames = 0

    def hold(self) -> None:
        """Keep what the service says until ``release``; the newest part of it where that is very much."""
        self._waiting = deque(maxlen=MOST_WAITING)

    async def release(self) -> None:
        """Pass on what the service has said, and everything that follows at once."""
        while self._waiting:
            await self._pass(self._waiting.popleft(), FrameDirection.DOWNSTREAM)
        self._waiting = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self._waiting is not None and _is_of_service(frame, direction):
            self._waiting.append(frame)
        else:
            await self._pass(frame, direction)

    async def _pass(self, frame: Frame, direction: FrameDirection) -> None:
        self._responses.publish(frame)
        if direction is not FrameDirection.DOWNSTREAM:
            await self.push_frame(frame, direction)
        elif isinstance(frame, InterruptionFrame):
            self._forget()
            self._deaf = not self._continuous
            await self.push_frame(frame)
        elif isinstance(frame, (LLMFullResponseStartFrame, LLMFullResponseEndFrame)):
            await self._bracket(frame)
        elif isinstance(frame, LLMTextFrame):
            await self._said(frame)
        elif isinstance(frame, SpeechOutputAudioRawFrame):
            await self._stream(frame)
        elif isinstance(frame, (TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame, AggregatedTextFrame)):
            if frame.context_id is not None:
                await self.push_frame(frame)
            elif isinstance(frame, TTSAudioRawFrame):
                await self._sound(frame.audio, frame.sample_rate)
            elif isinstance(frame, TTSTextFrame) and not self._deaf:
                # For clients; the text was recorded when it was written.
                HEARD_LATER.put(frame, True)
                await self.push_frame(frame)
        else:
            await self.push_frame(frame)
        if isinstance(frame, OUTPUT) and self._events.has_subscribers(ServiceSent):
            self._events.publish(ServiceSent(self._events.now_ms(), self._reply_id is not None))

    def abandon(self) -> None:
        """Give up the floor and the reply that is open: the service is gone."""
        self._waiting = None
        self._forget()
        self._deaf = True

    async def _bracket(self, frame: LLMFullResponseStartFrame | LLMFullResponseEndFrame) -> None:
        if self._continuous:
            # Its words come before or after its audio, so the audio decides.
            return
        if isinstance(frame, LLMFullResponseEndFrame):
            await self._end()
            return
        self._deaf = False
        # Some services send the start with the request and again when the answer begins.
        if self._reply_id is None:
            await self._begin(frame)

    async def _begin(self, frame: LLMFullResponseStartFrame | None = None) -> None:
        frame = frame or LLMFullResponseStartFrame()
        self._reply_id = self._playout.open_reply(frame)
        self._floor.hold(True)
        self._text, self._silent_ms = "", 0
        self._held, self._held_ms = [], 0
        await self.push_frame(frame)

    async def _end(self) -> None:
        reply_id = self._reply_id
        if reply_id is None:
            return
        sounds = self._sounds
        self._forget()
        self._playout.close_text(reply_id)
        if sounds:
            await self.push_frame(TTSStoppedFrame(context_id=reply_id))
        await self.push_frame(LLMFullResponseEndFrame())

    def _forget(self) -> None:
        self._reply_id, self._sounds = None, False
        self._floor.hold(False)

    async def _said(self, frame: LLMTextFrame) -> None:
        if self._deaf:
            self.late_frames += 1
            return
        if self._reply_id is None and self._continuous:
            await self._begin()
        if self._reply_id is not None and frame.text:
            text = frame.text
            if self._text.endswith(_SENTENCE_ENDS) and text[0].isupper():
                # A service that gives whole sentences leaves out the space between them.
                text = " " + text
            self._text = text
            self._playout.saying(self._reply_id, text)
        # Not for the context: only the heard part is, which the playout clock supplies.
        frame.append_to_context = False
        await self.push_frame(frame)

    async def _sound(self, pcm: bytes, rate_hz: int) -> None:
        reply_id = self._reply_id
        if self._deaf or reply_id is None:
            self.late_frames += 1
            return
        if not self._sounds:
            self._sounds = True
            self._events.publish(ServiceSpoke(self._events.now_ms()))
            await self.push_frame(TTSStartedFrame(context_id=reply_id))
        await self.push_frame(
            TTSAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1, context_id=reply_id)
        )

    async def _stream(self, frame: SpeechOutputAudioRawFrame) -> None:
        """Handle a piece of a stream without marks for the beginnings and ends of replies."""
        is_loud = is_loud_pcm16(frame.audio)
        if self._reply_id is None:
            if not is_loud:
                return
            await self._begin()
        duration_ms = len(frame.audio) // PCM_BYTES_PER_SAMPLE * 1000 // frame.sample_rate
        if self._held is None:
            await self._sound(frame.audio, frame.sample_rate)
        else:
            self._held.append(frame.audio)
            self._held_ms += duration_ms
            if self._held_ms >= LEAD_MS:
                held, self._held = self._held, None
                await self._sound(b"".join(held), frame.sample_rate)
        self._silent_ms = 0 if is_loud else self._silent_ms + duration_ms
        if self._silent_ms >= GAP_MS:
            await self._end()


def _is_of_service(frame: Frame, direction: FrameDirection) -> bool:
    """Return whether a frame is a part of what a service says."""
    if direction is not FrameDirection.DOWNSTREAM or isinstance(frame, InterruptionFrame):
        return False
    if isinstance(frame, TTSStartedFrame | TTSStoppedFrame | AggregatedTextFrame | TTSAudioRawFrame):
        return frame.context_id is None
    return isinstance(frame, OUTPUT)
