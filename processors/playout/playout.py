"""The playout clock in a pipeline: three taps around the voice and the output, and the records between them.

    LLM -> thought -> TTS -> ... -> entry -> transport.output() -> exit -> HeardAssistantAggregator

``thought`` reads the text of the model, so that the rest of an interrupted reply is known. ``entry`` names
replies, places words on their audio and drops late frames of a cancelled reply, by comparing its id. ``exit``
sees every chunk that the output has taken, in the order of playing. ``played`` is given to the transport as
``on_packet``. The records themselves are ``processors.playout.heard``.

A reply is all that the model says in one response, including speech inserted into it; outside of one, each
``TTSSpeakFrame`` is its own. Speech that is not for the context (a filler) is a reply too, and is marked so.

Pipecat decides what was said by the time stamps of words, counted from the moment when their audio left the
voice. Here the frames that end a reply wait after the output until its last packet has left. These frames and
interruptions carry the heard text to the aggregator, which takes no other. Recording and context therefore
hold the same words.

A speaker sets ``interruptible=False`` on a ``TTSSpeakFrame`` that may not be interrupted. Pipecat keeps such
a frame through every interruption. Where another stage that recognises stop words decides about interruptions
(``guards_protected``), that stage protects the frame instead, and an interruption that does come ends it like
any other reply.

The progress of a reply is published: opened, written, announced, started, progressed, finished. The exit owns
one task, which publishes the changes that packets caused and releases waiting frames. A packet costs a few
additions and never waits.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pipecat.frames.frames import (
    AggregatedTextFrame,
    BotStoppedSpeakingFrame,
    CancelFrame,
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    OutputAudioRawFrame,
    SystemFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import (
    ClauseAnnounced,
    ClientDelayReported,
    PassagesCited,
    ReplyAnnounced,
    ReplyCorrected,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyStarted,
    ReplyWritten,
    SpeechMade,
    SpeechStarted,
    UnplayedReported,
    WordsSpoken,
)
from parley.core.clock import Clock
from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.passage_notes import CitedPassage
from parley.core.timeline import HeardMark, HeardReply
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.playout.assistant import HEARD_LATER, HeardText, heard_texts
from parley.processors.playout.heard import HeardClock, PlayoutSettings
from parley.processors.speech.spoken_at import SPOKEN_AT, BrokeOffFrame
from parley.processors.taps.response_events import ResponseEvents
from parley.processors.taps.usage_events import UsageEvents
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

_US_PER_S = 1_000_000
_NS_PER_US = 1_000
_REPLY_ID = FrameFact[str]("reply_id")
# On an interruption: the replies that it meets. A reply that begins after it may arrive before it has passed
# the output.
_INTERRUPTED_REPLY_IDS = FrameFact[frozenset[str]]("meets")
# The text type of protected speech, which the voice passes on from the ``thought`` to the ``entry``.
_PROTECTED = "protected"
# Number of contexts of cancelled replies whose late audio is recognised. A provider is late by seconds, not
# by replies.
_CANCELLED = 64
# Texts on their way to the aggregator. More than one waits only when the loop is late.
_TEXTS = 8


@dataclass(slots=True)
class _Context:
    """Audio context of the voice.

    Attributes:
        reply_id: the reply that it belongs to.
        start_us: its place in the reply's audio.
        interruptible: True when an interruption ends it.
        queued_us: length of its audio so far.
        origin_ns: the moment from which Pipecat counts its words, in the pipeline's clock.
        is_ahead: True when it has begun before the output and not yet after it.
    """

    reply_id: str
    start_us: int
    interruptible: bool
    is_ahead: bool
    queued_us: int = 0
    origin_ns: int | None = None


def _is_never_quiet() -> int:
    return 0


class Playout:
    """Playout of one call.

    Args:
        settings: conditions under which audio counts as heard.
        events: events of the call.
        follows_packets: True when ``played`` is the transport's ``on_packet``; otherwise the output is taken
            to play all audio that it has accepted.
        peer_quiet_ms: returns how long the client has given no sign of life, when it hangs up; None: not
            known.
        clock: session time.
        rate_hz: rate of the packets, where the transport has its own; 0: that of the pipeline.
    """

    def __init__(
        self,
        settings: PlayoutSettings | None = None,
        *,
        events: CallEvents,
        follows_packets: bool = True,
        peer_quiet_ms: Callable[[], int] | None = None,
        clock: Clock | None = None,
        rate_hz: int = 0,
    ) -> None:
        self.settings = settings or PlayoutSettings()
        self.heard_clock = HeardClock(self.settings)
        self.clock: Clock = clock or LoopClock()
        self.events = events
        self.follows_packets = follows_packets
        self.peer_quiet_ms = peer_quiet_ms or _is_never_quiet
        self.contexts: dict[str, _Context] = {}
        self.rate_hz = rate_hz
        self.late_frames = 0
        self._texts: dict[str, HeardText] = {}
        self._news = asyncio.Event()
        # Set with the next packet, while ``drained`` waits for it.
        self._packet: asyncio.Event | None = None
        events.subscribe(ClientDelayReported, lambda event: self.heard_clock.set_delay_ms(event.delay_ms))
        events.subscribe(UnplayedReported, lambda event: self.heard_clock.set_unplayed_ms(event.unplayed_ms))

    def taps(self, *, guards_protected: bool = False) -> tuple["ThoughtTap", "PlayoutEntry", "PlayoutExit"]:
        """Return the three processors: before the voice, before the output and after it.

        Args:
            guards_protected: True when the stage that decides about interruptions protects the speech.
        """
        return ThoughtTap(self, guards_protected), PlayoutEntry(self), PlayoutExit(self)

    def played(self, pcm: bytes) -> None:
        """Record a packet of 16-bit PCM that leaves now, on the event loop: a transport's ``on_packet``."""
        duration_us = len(pcm) // PCM_BYTES_PER_SAMPLE * _US_PER_S // self.rate_hz if self.rate_hz else 0
        if self.heard_clock.played(duration_us, self.clock.now_us()):
            self.wake()
        for reply_id in self.heard_clock.take_started():
            self.events.publish(ReplyStarted(self.events.now_ms(), reply_id))
        if self._packet is not None:
            self._packet.set()

    def mark(self, reply_id: str) -> HeardMark | None:
        """Return how much of a reply has been heard by now; for one that is over, how much was heard."""
        return self.heard_clock.mark(reply_id, self.clock.now_us())

    def name_reply(self, frame: LLMFullResponseStartFrame) -> str:
        """Name the reply that begins with this frame; return its id, which the records use from here on."""
        reply_id = _named(frame)
        self.heard_clock.open(reply_id)
        return reply_id

    def open_reply(self, frame: LLMFullResponseStartFrame) -> str:
        """Name the reply that the model begins to write with this frame, and publish it."""
        reply_id = self.name_reply(frame)
        self.events.publish(ReplyOpened(self.events.now_ms(), reply_id))
        return reply_id

    def cite(self, reply_id: str, passages: tuple[CitedPassage, ...]) -> None:
        """Publish the passages that a reply rests on."""
        self.events.publish(PassagesCited(self.events.now_ms(), reply_id, passages))

    def close_text(self, reply_id: str) -> None:
        """Publish that the model has written all of a reply."""
        self.events.publish(ReplyWritten(self.events.now_ms(), reply_id))

    def written(self, reply_id: str, text: str) -> None:
        """Add the next piece of a reply, as its model writes it, from which the unheard rest is known."""
        self.heard_clock.written_by_model(reply_id, text)

    def saying(self, reply_id: str, text: str) -> None:
        """Add the next piece of a reply whose model speaks as it writes: see ``HeardClock.goes_on``."""
        self.heard_clock.written_by_model(reply_id, text)
        self.heard_clock.goes_on(reply_id, text)

    def reply_of(self, context_id: str) -> str | None:
        """Return the reply that a context of the voice belongs to; None for an unknown context."""
        context = self.contexts.get(context_id)
        return context.reply_id if context is not None else None

    def claim(self, reply_id: str, audio_ms: int) -> bool:
        """Register the client's claim of how much of a reply it played: see ``HeardClock.claim``.

        Returns:
            True when the reply is still known.
        """
        if self.mark(reply_id) is None:
            return False
        reply = self.heard_clock.claim(reply_id, audio_ms * 1000, self.clock.now_us())
        if reply is not None:
            self.events.publish(ReplyCorrected(self.events.now_ms(), reply))
        return True

    def heard_text(self, reply_id: str) -> str | None:
        """Return the words of a reply that were heard, as recorded; None for one that is not over."""
        return self.heard_clock.heard_text(reply_id)

    def wake(self) -> None:
        """Wake the task: there may be progress to publish."""
        self._news.set()

    async def news(self) -> None:
        """Return when a packet caused a change that may be published."""
        await self._news.wait()
        self._news.clear()

    async def drained(self) -> None:
        """Return when all audio that the output has taken has left, or after ``drain_ms``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_ms / 1000):
                while not self.heard_clock.is_drained:
                    self._packet = asyncio.Event()
                    await self._packet.wait()
        self._packet = None

    def publish_finished(self, replies: list[HeardReply]) -> None:
        """Publish replies that are over, and keep their text for the aggregator."""
        for reply in replies:
            if reply.in_context:
                self._texts[reply.reply_id] = HeardText(reply.text)
                self._texts = {key: text for key, text in self._texts.items() if not text.taken}
                while len(self._texts) > _TEXTS:
                    del self._texts[next(iter(self._texts))]
            self.events.publish(ReplyFinished(self.events.now_ms(), reply))

    def text_of(self, frame: Frame) -> list[HeardText]:
        """Return the text of the reply that a frame ends; empty without one."""
        text = self._texts.get(_REPLY_ID.of(frame) or "")
        return [text] if text is not None else []

    def texts_not_taken(self) -> list[HeardText]:
        """Return the texts that the aggregator does not have yet."""
        return [text for text in self._texts.values() if not text.taken]


def guard_protected(frame: TTSSpeakFrame) -> None:
    """Make protected speech interruptible for Pipecat.

    Another stage guards it, and an interruption that arrives nevertheless takes effect.
    """
    if not frame.interruptible:
        frame.interruptible, frame.text_type = True, _PROTECTED


def reply_named(frame: Frame) -> str | None:
    """Return the reply that a frame of the model's begins or ends, after the entry."""
    return _REPLY_ID.of(frame)


def _named(frame: LLMFullResponseStartFrame) -> str:
    """Return the id of the reply that begins with a frame, and give it one if it has none."""
    reply_id = _REPLY_ID.of(frame) or uuid.uuid4().hex
    _REPLY_ID.put(frame, reply_id)
    return reply_id


class ThoughtTap(FrameProcessor):
    """Tap before the voice: names the model's replies and reads their text."""

    def __init__(self, playout: Playout, guards_protected: bool) -> None:
        super().__init__(enable_direct_mode=True)
        self._playout, self._guards_protected = playout, guards_protected
        self._responses = ResponseEvents(playout.events)
        self._reply_id: str | None = None
        # Passages of a reply that has not begun.
        self._cited: tuple[CitedPassage, ...] = ()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, PassagesCitedFrame):
            self._take_passages(frame.passages)
            return
        self._responses.publish(frame)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMTextFrame):
                if self._reply_id is not None and not frame.skip_tts:
                    self._playout.written(self._reply_id, frame.text)
            elif isinstance(frame, LLMFullResponseStartFrame):
                self._reply_id = None
                if not frame.skip_tts:
                    self._reply_id = self._playout.open_reply(frame)
                    if self._cited:
                        self._playout.cite(self._reply_id, self._cited)
            elif isinstance(frame, TTSSpeakFrame) and self._guards_protected:
                guard_protected(frame)
            elif isinstance(frame, (LLMFullResponseEndFrame, InterruptionFrame)):
                if isinstance(frame, LLMFullResponseEndFrame) and self._reply_id is not None:
                    self._playout.close_text(self._reply_id)
                self._reply_id = None
                self._cited = ()
                if isinstance(frame, InterruptionFrame):
                    _INTERRUPTED_REPLY_IDS.put(frame, self._playout.heard_clock.open_ids)
        await self.push_frame(frame, direction)

    def _take_passages(self, passages: tuple[CitedPassage, ...]) -> None:
        """Cite passages in the open reply, or in the next one."""
        if passages != self._cited and self._reply_id is not None:
            self._playout.cite(self._reply_id, passages)
        self._cited = passages


class PlayoutEntry(FrameProcessor):
    """Tap before the output: records words and audio, and drops late audio of a cancelled reply."""

    def __init__(self, playout: Playout) -> None:
        super().__init__(enable_direct_mode=True)
        self._playout = playout
        self._heard_clock = playout.heard_clock
        self._contexts = playout.contexts
        self._usage = UsageEvents(playout.events)
        # In the order of their cancellation; a dict for its quick look-up.
        self._cancelled: BoundedDict[str, None] = BoundedDict(_CANCELLED)
        self._reply_id: str | None = None
        self._last: _Context | None = None
        self._last_pts = 0
        # Texts that the voice announced before their context began, and contexts of speech that may not be
        # interrupted.
        self._announced: list[tuple[str | None, str]] = []
        self._protected: set[str] = set()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self._publish_speech(frame)
        if direction is FrameDirection.DOWNSTREAM:
            if self._is_late(frame):
                self._playout.late_frames += 1
                return
            self._note(frame)
        await self.push_frame(frame, direction)

    def _publish_speech(self, frame: Frame) -> None:
        events = self._playout.events
        if isinstance(frame, TTSStartedFrame):
            events.publish(SpeechStarted(events.now_ms()))
        elif isinstance(frame, TTSAudioRawFrame):
            audio_ms = 1000 * frame.num_frames / frame.sample_rate
            events.publish(SpeechMade(events.now_ms(), audio_ms))
        elif isinstance(frame, MetricsFrame):
            self._usage.publish(frame)

    def _is_late(self, frame: Frame) -> bool:
        """Return whether the frame belongs to a reply that was cancelled."""
        if not self._cancelled or isinstance(frame, SystemFrame):
            return False
        context_id = getattr(frame, "context_id", None)
        return context_id is not None and context_id in self._cancelled

    def _note(self, frame: Frame) -> None:
        if isinstance(frame, TTSAudioRawFrame):
            self._audio(frame)
        elif isinstance(frame, TTSTextFrame):
            self._words(frame)
        elif isinstance(frame, AggregatedTextFrame):
            self._text(frame)
        elif isinstance(frame, TTSStartedFrame):
            self._begin(frame.context_id, frame.append_to_context, frame.interruptible)
        elif isinstance(frame, TTSStoppedFrame):
            self._end(frame)
        elif isinstance(frame, BrokeOffFrame):
            context = self._contexts.get(frame.context_id)
            if context is not None:
                self._heard_clock.broke_off(context.reply_id)
        elif isinstance(frame, LLMFullResponseStartFrame):
            self._response_begins(frame)
        elif isinstance(frame, LLMFullResponseEndFrame):
            self._response_ends(frame)
        elif isinstance(frame, LLMAssistantPushAggregationFrame) and self._last is not None:
            _REPLY_ID.put(frame, self._last.reply_id)
        elif isinstance(frame, InterruptionFrame):
            met = _INTERRUPTED_REPLY_IDS.of(frame)
            if met is not None:
                # Including replies that began to sound since.
                _INTERRUPTED_REPLY_IDS.put(
                    frame, met | {context.reply_id for context in self._contexts.values()}
                )
            self._cancel()

    def _response_begins(self, frame: LLMFullResponseStartFrame) -> None:
        if frame.skip_tts:
            return
        self._reply_id = _named(frame)
        self._heard_clock.open(self._reply_id)

    def _response_ends(self, frame: LLMFullResponseEndFrame) -> None:
        reply_id, self._reply_id = self._reply_id, None
        if reply_id is not None:
            _REPLY_ID.put(frame, reply_id)
            self._heard_clock.close(reply_id)

    def _begin(self, context_id: str | None, in_context: bool, interruptible: bool) -> _Context:
        key = context_id or uuid.uuid4().hex
        reply_id = self._reply_id if self._reply_id is not None and in_context else key
        self._heard_clock.open(reply_id, in_context=in_context)
        context = _Context(
            reply_id, self._heard_clock.part_begins(reply_id), interruptible, is_ahead=context_id is not None
        )
        self._contexts[key] = self._last = context
        self._announce(context, key)
        announced, self._announced = self._announced, []
        for spoken_in, text in announced:
            if spoken_in in (None, key):
                self._say(reply_id, text)
            else:
                self._announced.append((spoken_in, text))
        return context

    def _announce(self, context: _Context, key: str) -> None:
        protected = not context.interruptible or key in self._protected
        events = self._playout.events
        events.publish(ReplyAnnounced(events.now_ms(), context.reply_id, protected))

    def _say(self, reply_id: str, text: str) -> None:
        self._heard_clock.announced(reply_id, text)
        events = self._playout.events
        events.publish(ClauseAnnounced(events.now_ms(), reply_id, text))

    def _audio(self, frame: TTSAudioRawFrame) -> None:
        context = self._context(frame.context_id)
        if context is None:
            # A service that does not report where a stretch begins: the output is not informed either.
            return
        self._time_words_of(context)
        samples = len(frame.audio) // (PCM_BYTES_PER_SAMPLE * frame.num_channels)
        duration_us = samples * _US_PER_S // frame.sample_rate
        context.queued_us += duration_us
        self._heard_clock.queued(context.reply_id, duration_us)

    def _text(self, frame: AggregatedTextFrame) -> None:
        if frame.will_be_spoken:
            context = self._contexts.get(frame.context_id or "")
            text = frame.raw_text or frame.text
            if frame.text_type == _PROTECTED and frame.context_id:
                self._protected.add(frame.context_id)
                if context is not None:
                    self._announce(context, frame.context_id)
            if context is not None:
                self._say(context.reply_id, text)
            else:
                self._announced.append((frame.context_id, text))
        elif frame.append_to_context and self._reply_id is not None and not HEARD_LATER.is_on(frame):
            self._heard_clock.silent_text(self._reply_id, frame.raw_text or frame.text)
            HEARD_LATER.put(frame, True)

    def _words(self, frame: TTSTextFrame) -> None:
        if HEARD_LATER.is_on(frame):
            # In the records already, by ``Playout.saying``.
            return
        context = self._context(frame.context_id)
        if context is None:
            return
        reply_id = context.reply_id
        text = frame.raw_text or frame.text
        joiner = "" if frame.includes_inter_frame_spaces else " "
        at = SPOKEN_AT.of(frame)
        if at is not None:
            self._heard_clock.word(
                reply_id,
                text,
                start_us=context.start_us + at.start_us,
                end_us=context.start_us + at.end_us,
                estimated=at.estimated,
                joiner=joiner,
            )
        elif frame.pts and frame.pts > self._last_pts and len(text.split()) == 1:
            origin_ns = self._time_words_of(context)
            start_us = context.start_us + max(0, frame.pts - origin_ns) // _NS_PER_US
            self._heard_clock.word(reply_id, text, start_us=start_us, end_us=None, joiner=joiner)
        else:
            # A sentence in one piece, or text without times.
            self._heard_clock.spoken(reply_id, text, joiner=joiner)
        self._last_pts = max(self._last_pts, frame.pts or 0)
        if frame.append_to_context:
            HEARD_LATER.put(frame, True)

    def _end(self, frame: TTSStoppedFrame) -> None:
        context = self._context(frame.context_id)
        self._last = None
        self._protected.discard(frame.context_id or "")
        if context is not None and context.reply_id != self._reply_id:
            self._heard_clock.close(context.reply_id)

    def _cancel(self) -> None:
        for context_id, context in list(self._contexts.items()):
            if context.interruptible:
                self._cancelled[context_id] = None
                del self._contexts[context_id]
        self._announced.clear()
        self._protected.clear()
        self._reply_id = None
        self._last_pts = 0

    def _context(self, context_id: str | None) -> _Context | None:
        return self._contexts.get(context_id) if context_id is not None else self._last

    def _time_words_of(self, context: _Context) -> int:
        """Return the moment from which Pipecat counts a context's words: its first audio or the last word."""
        if context.origin_ns is None:
            context.origin_ns = max(self._last_pts, self.get_clock().get_time())
        return context.origin_ns


class PlayoutExit(FrameProcessor):
    """Tap after the output: records what was written and heard."""

    def __init__(self, playout: Playout) -> None:
        super().__init__(enable_direct_mode=True)
        self._playout = playout
        self._heard_clock = playout.heard_clock
        self._current: _Context | None = None
        self._last_chunk_interruptible = True
        # In order; the first one ends a reply that is not over yet, or begins one before the last has ended.
        self._waiting: deque[Frame] = deque()
        # The reply whose end frame has still to come.
        self._unended: str | None = None
        # Two tasks release frames, and their order is kept.
        self._releasing = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own
        await super().setup(setup)
        # A transport with a rate of its own has set it: the first packet leaves before its frame is here.
        self._playout.rate_hz = self._playout.rate_hz or setup.audio_out_sample_rate
        self._pump = self.create_task(self._publish_progress(), name=f"{self}::heard")

    async def cleanup(self) -> None:
        await super().cleanup()
        pump, self._pump = self._pump, None
        if pump is not None:
            await self.cancel_task(pump)
        self._hang_up()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, OutputAudioRawFrame):
                # No later processor reads audio, which is half of all frames.
                self._chunk(frame)
                return
            if isinstance(frame, SystemFrame):
                self._system(frame)
            elif isinstance(frame, EndFrame):
                await self._end_in_good_order(frame)
            else:
                self._ordered(frame)
                self._waiting.append(frame)
                await self._release()
                return
        await self.push_frame(frame, direction)

    def _begins_too_early(self, frame: Frame) -> bool:
        return self._unended is not None and isinstance(frame, LLMFullResponseStartFrame)

    def _chunk(self, frame: OutputAudioRawFrame) -> None:
        playout = self._playout
        playout.rate_hz = frame.sample_rate
        if not isinstance(frame, TTSAudioRawFrame) and self._current is not None:
            self._heard_clock.speaks(None)
            self._current = None
        elif self._is_cancelled(frame):
            # It was being written when the interruption came, which has counted the played part of it.
            return
        self._last_chunk_interruptible = frame.interruptible
        samples = len(frame.audio) // (PCM_BYTES_PER_SAMPLE * frame.num_channels)
        if self._heard_clock.written(samples * _US_PER_S // frame.sample_rate, playout.clock.now_us()):
            playout.wake()
        if not playout.follows_packets:
            playout.played(frame.audio)

    def _is_cancelled(self, frame: OutputAudioRawFrame) -> bool:
        current = self._current
        return current is not None and frame.interruptible and not self._heard_clock.is_open(current.reply_id)

    def _ordered(self, frame: Frame) -> None:
        if isinstance(frame, TTSStartedFrame):
            context = self._playout.contexts.get(frame.context_id or "")
            if context is not None:
                context.is_ahead = False
            self._current = context
            self._heard_clock.speaks(
                context.reply_id if context else None, context.start_us if context else 0
            )
        elif isinstance(frame, TTSStoppedFrame):
            context = self._playout.contexts.pop(frame.context_id or "", None) or self._current
            self._current = None
            self._heard_clock.speaks(None)
            if context is not None:
                self._heard_clock.part_over(context.reply_id)
                self._settle()
        elif isinstance(frame, TTSTextFrame):
            events = self._playout.events
            events.publish(WordsSpoken(events.now_ms(), frame.text))
        elif isinstance(frame, LLMFullResponseEndFrame):
            # A reply without audio, such as one that only calls a tool, is over here: no packet will report
            # it.
            self._settle()

    def _system(self, frame: Frame) -> None:
        playout = self._playout
        if isinstance(frame, InterruptionFrame):
            kept = {context.reply_id for context in playout.contexts.values() if not context.interruptible}
            met = _INTERRUPTED_REPLY_IDS.of(frame)
            kept |= self._heard_clock.open_ids - (self._heard_clock.open_ids if met is None else met)
            playout.publish_finished(
                self._heard_clock.interrupted(
                    playout.clock.now_us(), keep=kept, still_playing=not self._last_chunk_interruptible
                )
            )
            self._waiting = deque(waiting for waiting in self._waiting if not waiting.interruptible)
            self._unended = None
            if self._waiting:
                # The result of a tool stays, and the reply that it waited for is over.
                playout.wake()
            heard_texts(frame, playout.texts_not_taken())
        elif isinstance(frame, CancelFrame):
            self._hang_up()
            heard_texts(frame, playout.texts_not_taken())
        elif isinstance(frame, BotStoppedSpeakingFrame) and self._heard_clock.is_drained:
            # A stretch that follows another directly has not arrived here yet when that one stops.
            contexts = self._playout.contexts.values()
            self._heard_clock.parts_over(but={context.reply_id for context in contexts if context.is_ahead})
            self._settle()

    async def _end_in_good_order(self, frame: EndFrame) -> None:
        """End the call after the output has played all audio that it still holds."""
        await self._playout.drained()
        self._heard_clock.parts_over()
        self._settle()
        self._unended = None
        await self._release()
        self._playout.publish_finished(self._heard_clock.interrupted(self._playout.clock.now_us()))
        heard_texts(frame, self._playout.texts_not_taken())

    def _hang_up(self) -> None:
        quiet_ms = self._playout.peer_quiet_ms()
        self._playout.publish_finished(
            self._heard_clock.hung_up(self._playout.clock.now_us(), quiet_us=quiet_ms * 1000)
        )

    def _settle(self) -> None:
        self._playout.publish_finished(self._heard_clock.finished(self._playout.clock.now_us()))
        if self._waiting:
            self._playout.wake()

    def _ends_open_reply(self, frame: Frame) -> bool:
        return self._heard_clock.is_open(_REPLY_ID.of(frame) or "") and isinstance(
            frame, (LLMFullResponseEndFrame, LLMAssistantPushAggregationFrame)
        )

    def _give_text(self, frame: Frame) -> None:
        if isinstance(frame, (LLMFullResponseEndFrame, LLMAssistantPushAggregationFrame)):
            heard_texts(frame, self._playout.text_of(frame))

    async def _release(self) -> None:
        """Release frames that wait for nothing any more."""
        async with self._releasing:
            while self._waiting:
                self._put_end_in_place()
                if self._waits(self._waiting[0]):
                    return
                frame = self._waiting.popleft()
                reply_id = _REPLY_ID.of(frame)
                if isinstance(frame, LLMFullResponseStartFrame):
                    self._unended = reply_id
                elif isinstance(frame, LLMFullResponseEndFrame) and reply_id == self._unended:
                    self._unended = None
                self._give_text(frame)
                await self.push_frame(frame)

    def _put_end_in_place(self) -> None:
        """Move the frame that ends a reply before the one that begins the next.

        The output sends the end of a reply at the time of its last word, and later frames when the audio has
        been taken. Where the last word is shorter than the audio that the output holds, the next reply
        arrives first.
        """
        if not self._begins_too_early(self._waiting[0]):
            return
        other_ended = False
        for place, frame in enumerate(self._waiting):
            if isinstance(frame, LLMFullResponseEndFrame):
                if _REPLY_ID.of(frame) == self._unended:
                    del self._waiting[place]
                    self._waiting.appendleft(frame)
                    return
                other_ended = True
        if other_ended and not self._heard_clock.is_open(self._unended or ""):
            # Its end was lost: it has been heard, and the end of another is here.
            self._unended = None

    def _waits(self, frame: Frame) -> bool:
        return self._ends_open_reply(frame) or self._begins_too_early(frame)

    async def _publish_progress(self) -> None:
        playout = self._playout
        while True:
            await playout.news()
            playout.publish_finished(self._heard_clock.finished(playout.clock.now_us()))
            for heard in self._heard_clock.progress(playout.clock.now_us()):
                playout.events.publish(ReplyProgressed(playout.events.now_ms(), heard))
            await self._release()
