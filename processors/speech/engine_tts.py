"""Shell between ``models.tts`` and the pipeline: text frames in, audio and timed words out.

Decides when a clause goes to the engine and when its words are due. The first clause goes as soon as
``models.tts.clauses`` releases it, the next ones while the previous are still playing, up to a lead.
Synthesis runs in the executor that the process shares; the audio crosses to the loop through a bounded
buffer.

An interruption makes the engine's sink return False, so the engine stops within a piece. An engine
that fails or stays silent past its deadline is reported by ``push_error``, and the reply continues with the
next clause. Text that an engine did not speak is not reported as spoken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    AggregatedTextFrame,
    CancelFrame,
    ControlFrame,
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.utils.text.base_text_aggregator import Aggregation, BaseTextAggregator, TextType
from pydantic import Field

from parley.core.errors import EngineError
from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.models.tts.clauses import ClauseSettings, ClauseSplitter, split_clauses
from parley.processors.pipecat_internals import (
    AnnouncedText,
    end_context_with_turn,
    forget_untimed_words,
    hold_word_clock,
    keep_context,
    protected_contexts,
    set_text_aggregator,
)
from parley.processors.speech.crossing import ClauseSpeech, Crossing
from parley.processors.speech.spoken_at import SPOKEN_AT, BrokeOffFrame, SpokenAt

_NS_PER_MS = 1_000_000
_US_PER_MS = 1_000
_US_PER_S = 1_000_000
_NS_PER_S = 1_000_000_000
# Pipecat ends an audio context after this much quiet and starts its word clock anew. A model may think this
# long in the middle of a reply, and a clause may wait this long for its turn.
_CONTEXT_QUIET_S = 60.0
# While a clause waits for its turn the context is touched this often.
_KEEPALIVE_S = 10.0
# The marker of a failed clause is handled at once unless its context waits for another one.
_MARKER_DEADLINE_S = 1.0
# A text that must be said as it stands is followed as one piece up to this length.
FOLLOWED_CHARS = 200
# On a clause of a longer text: that text, if this is its first clause, else None.
_ANNOUNCED = FrameFact[AggregatedTextFrame | None]("announced")
# Number of short frames of a clause: the track needs them to begin on a busy loop.
SHORT_FRAMES = 2


class EngineTtsSettings(StrictModel):
    """Settings of an engine's speech in a pipeline.

    Attributes:
        frame_ms: length of a clause's first audio frames; 40 is one chunk of Pipecat's output transports.
        longest_frame_ms: length of the later ones, where the engine is as far ahead: each costs the loop the
            same, whatever its length, and a clause that is ready comes in one go.
        max_lead_ms: a further clause is synthesised when less than this is left to play.
        buffer_ms: audio of one clause between the synthesis thread and the loop.
        stall_timeout_ms: the thread waits this long for room in the buffer.
        engine_timeout_ms: the loop waits this long for the next piece of a clause.
        word_due_percent: the share of a word that is played when it counts as heard.
        clauses: rules for the ends of clauses.
    """

    frame_ms: int = Field(default=40, ge=10, le=40)
    longest_frame_ms: int = Field(default=120, ge=10, le=1_000)
    max_lead_ms: int = Field(default=4_000, ge=100, le=60_000)
    buffer_ms: int = Field(default=30_000, ge=100, le=120_000)
    stall_timeout_ms: int = Field(default=2_000, ge=10, le=60_000)
    engine_timeout_ms: int = Field(default=5_000, ge=10, le=60_000)
    word_due_percent: int = Field(default=50, ge=0, le=100)
    clauses: ClauseSettings = ClauseSettings()


class ClauseAggregator(BaseTextAggregator):
    """Pipecat's text aggregator on ``ClauseSplitter``: a clause leaves when its own marks end it.

    Args:
        settings: rules for the ends of clauses.
    """

    def __init__(self, settings: ClauseSettings | None = None) -> None:
        super().__init__(aggregation_type=TextType.SENTENCE)
        self._splitter = ClauseSplitter(settings)

    @property
    def text(self) -> Aggregation:
        return Aggregation(self._splitter.pending.strip(), TextType.SENTENCE)

    async def aggregate(self, text: str) -> AsyncIterator[Aggregation]:
        for clause in self._splitter.push(text):
            yield Aggregation(clause.strip(), TextType.SENTENCE)

    async def flush(self) -> Aggregation | None:
        rest = self._splitter.flush().strip()
        return Aggregation(rest, TextType.SENTENCE) if rest else None

    async def handle_interruption(self) -> None:
        self._splitter.flush()

    async def reset(self) -> None:
        self._splitter.flush()


@dataclass
class _ClauseFailed(ControlFrame):
    """Marker after the words of a clause that broke off; the service consumes it.

    Attributes:
        context_id: the audio context of the clause.
        handled: set when the marker came through.
    """

    context_id: str = ""
    handled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _TextDue(ControlFrame):
    """Marker after the audio of a clause without words; the service consumes it.

    Attributes:
        due_ns: when the text of the clause counts as said, in the pipeline's clock.
    """

    due_ns: int = 0


class _PlayoutClock:
    """Times at which audio that left is heard, in nanoseconds of the pipeline's clock.

    Pipecat times words from the moment that the first audio of their context left the service, or from the
    last word before it, if that is later. Audio plays after all audio before it. This class keeps both
    accounts and converts a position in a clause into the seconds that Pipecat expects. So words stay accurate
    when a reply follows a filler, and after a pause of the language model.
    """

    def __init__(self) -> None:
        self._audio_end_ns = 0
        self._last_word_ns = 0
        self._origins_ns: dict[str, int] = {}

    def lead_ms(self, now_ns: int) -> int:
        """Return how much audio is left to play."""
        return max(0, self._audio_end_ns - now_ns) // _NS_PER_MS

    def clause_start_ns(self, context_id: str, now_ns: int) -> int:
        """Return when the first audio of a clause that leaves now will be heard."""
        self._origins_ns.setdefault(context_id, max(self._last_word_ns, now_ns))
        self._audio_end_ns = max(self._audio_end_ns, now_ns)
        return self._audio_end_ns

    def gap_ns(self, now_ns: int) -> int:
        """Return for how long nothing was left to play before a frame that leaves now, and skip it."""
        gap_ns = max(0, now_ns - self._audio_end_ns)
        self._audio_end_ns += gap_ns
        return gap_ns

    def audio_left(self, duration_ns: int) -> None:
        """Record a frame that left."""
        self._audio_end_ns += duration_ns

    def word_due_s(self, context_id: str, due_ns: int) -> float:
        """Return Pipecat's seconds for a word that is heard at ``due_ns``."""
        origin_ns = self._origins_ns.get(context_id, due_ns)
        self._last_word_ns = max(self._last_word_ns, origin_ns, due_ns)
        return max(0, due_ns - origin_ns) / _NS_PER_S

    def context_over(self, context_id: str) -> None:
        """Forget a context whose audio has left; if it ever comes back, its words are timed anew."""
        self._origins_ns.pop(context_id, None)

    def interrupted(self) -> None:
        """Discard the audio that was waiting to play."""
        self._audio_end_ns = self._last_word_ns = 0
        self._origins_ns.clear()


class _Places:
    """Places of the words of each audio context in its audio.

    Pipecat's word frames contain when a word is due. The place is kept here until the frame of its word
    passes.
    """

    def __init__(self) -> None:
        self._sent_us: dict[str, int] = {}
        self._words: dict[str, deque[tuple[str, SpokenAt]]] = {}

    def end_us(self, context_id: str) -> int:
        """Return the length of the context's audio so far."""
        return self._sent_us.get(context_id, 0)

    def audio_left(self, context_id: str, duration_us: int) -> None:
        """Record a frame that left."""
        self._sent_us[context_id] = self.end_us(context_id) + duration_us

    def add(self, context_id: str, word: WordTime, clause_us: int) -> None:
        """Add a word of a clause that begins at ``clause_us``."""
        at = SpokenAt(
            clause_us + word.start_ms * _US_PER_MS, clause_us + word.end_ms * _US_PER_MS, word.estimated
        )
        self._words.setdefault(context_id, deque()).append((word.text, at))

    def stamp(self, frame: TTSTextFrame) -> None:
        """Attach the place of its word to a frame."""
        words = self._words.get(frame.context_id or "", deque())
        # A word for which Pipecat made no frame is skipped.
        for position, (text, at) in enumerate(words):
            if text == frame.text:
                for _ in range(position + 1):
                    words.popleft()
                SPOKEN_AT.put(frame, at)
                return

    def context_over(self, context_id: str) -> None:
        """Forget a context that has ended."""
        self._sent_us.pop(context_id, None)
        self._words.pop(context_id, None)


class EngineTtsService(AnnouncedText, TTSService):
    """Pipecat service that speaks the reply with an engine of ``models.tts``.

    Args:
        engine: the shared voice; its rate is the rate of the audio frames.
        executor: threads for synthesis, shared by all calls and owned by the process.
        options: settings of the speech in the pipeline.
        **kwargs: passed to Pipecat's TTSService.
    """

    def __init__(
        self,
        engine: TextToSpeech,
        *,
        executor: Executor,
        options: EngineTtsSettings | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=True,
            stop_frame_timeout_s=_CONTEXT_QUIET_S,
            sample_rate=engine.rate_hz,
            settings=TTSSettings(model=None, voice=None, language=None),
            **kwargs,
        )
        # Of the present reply, and of the next one.
        self._engine = self._chosen = engine
        self._context_id = ""
        self._executor = executor
        self._options = options or EngineTtsSettings()
        # Pipecat's own waits for the first character of the next sentence.
        set_text_aggregator(self, ClauseAggregator(self._options.clauses))
        self._skipped_kinds = frozenset(kwargs.get("skip_text_types") or ())
        self._playout = _PlayoutClock()
        self._places = _Places()
        self._crossings: dict[ClauseSpeech, str] = {}
        # A clause that will probably be the next one, and its synthesis.
        self._prepared: tuple[str, Crossing] | None = None

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, (InterruptionFrame, CancelFrame)):
            self._drop_pending(everything=isinstance(frame, CancelFrame))
        await super().process_frame(frame, direction)

    async def take_text(self, frame: AggregatedTextFrame, context_id: str | None = None) -> None:
        # A text that must be said as it stands comes in one piece of any length, and Pipecat searches all of
        # it for each of its words: milliseconds of the loop for each word of some pages. A long one is
        # announced as it stands, and followed by its clauses.
        is_short = len(frame.text) <= FOLLOWED_CHARS
        if is_short or frame.text_type in self._skipped_kinds:
            await super().take_text(frame, context_id)
            return
        context_id = context_id or self.create_context_id()
        whole: AggregatedTextFrame | None = frame
        for clause in split_clauses(frame.text, self._options.clauses):
            part = AggregatedTextFrame(clause.strip(), frame.text_type, raw_text=clause.strip())
            # Its words are shown as the words of the announced text.
            part.id = frame.id
            part.interruptible = frame.interruptible
            _ANNOUNCED.put(part, whole)
            await super().take_text(part, context_id)
            whole = _ANNOUNCED.of(part)
            if not self.is_usable:
                # The rest is not spoken, and would count as said.
                return

    async def announce(self, frame: AggregatedTextFrame, context_id: str) -> None:
        if not _ANNOUNCED.is_on(frame):
            await super().announce(frame, context_id)
            return
        frame.append_to_context = False
        frame.context_id = context_id
        frame.will_be_spoken = True
        whole = _ANNOUNCED.take(frame)
        if whole is not None:
            await super().announce(whole, context_id)

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        if isinstance(frame, _ClauseFailed):
            # Pipecat reports the words without times as spoken when the context ends: forget them instead.
            others = set(self.get_audio_contexts()) - {frame.context_id}
            forget_untimed_words(self, keep=others)
            await super().push_frame(BrokeOffFrame(context_id=frame.context_id), direction)
            frame.handled.set()
            return
        if isinstance(frame, _TextDue):
            # Pipecat gives text without times the time of the last word, however long ago that was, or none:
            # replies that are queued at once would overtake each other.
            hold_word_clock(self, frame.due_ns)
            return
        if isinstance(frame, TTSTextFrame):
            self._places.stamp(frame)
        await super().push_frame(frame, direction)

    async def cleanup(self) -> None:
        self._drop_pending(everything=True)
        await super().cleanup()

    async def on_turn_context_completed(self) -> None:
        # Its last clause may have had no audio.
        end_context_with_turn(self)
        await super().on_turn_context_completed()

    async def on_audio_context_completed(self, context_id: str) -> None:
        self._playout.context_over(context_id)
        self._places.context_over(context_id)
        await super().on_audio_context_completed(context_id)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        self._places.context_over(context_id)
        await super().on_audio_context_interrupted(context_id)

    def choose(self, engine: TextToSpeech) -> None:
        """Speak with another voice of the same rate from the next reply on."""
        self._chosen = engine
        # In the former voice.
        self.forget_prepared()

    def prepare(self, clause: str) -> None:
        """Synthesise a clause that will probably be the next one; one is kept. See ``PreparesSpeech``."""
        self.forget_prepared()
        crossing = self.new_crossing(self._chosen)
        crossing.start(self._executor, clause)
        self._prepared = clause, crossing

    def forget_prepared(self) -> None:
        """Stop the prepared clause: it will not be said."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared[1].stop()

    def new_crossing(self, engine: TextToSpeech | None = None) -> Crossing:
        """Return a synthesis by an engine, not started; None: that of the present reply."""
        return Crossing(
            engine or self._engine,
            limit_bytes=ms_to_samples(self._options.buffer_ms, self._engine.rate_hz) * PCM_BYTES_PER_SAMPLE,
            stall_s=self._options.stall_timeout_ms / 1000,
        )

    def begin_clause(self, clause: str, context_id: str) -> ClauseSpeech:
        """Return the synthesis of a clause that is to be said now: prepared, or started here."""
        if context_id != self._context_id:
            # A reply has one voice.
            self._context_id, self._engine = context_id, self._chosen
        if self._prepared is not None and self._prepared[0] == clause:
            (_, crossing), self._prepared = self._prepared, None
            # A prepared clause that waited longer for the end of the turn than for room has lost its end.
            if not crossing.is_stalled:
                return crossing
        crossing = self.new_crossing()
        crossing.start(self._executor, clause)
        return crossing

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Synthesise one clause, or a longer text that did not come through the aggregator.

        Yields:
            Audio frames of at most ``longest_frame_ms`` at the engine's rate.
        """
        await self.start_tts_usage_metrics(text)
        whole = len(text) <= self._options.clauses.max_chars
        for clause in [text] if whole else split_clauses(text, self._options.clauses):
            await self._wait_for_turn(context_id)
            async with aclosing(self._speak(clause, context_id)) as frames:
                async for frame in frames:
                    yield frame

    async def _speak(self, clause: str, context_id: str) -> AsyncGenerator[Frame, None]:
        crossing = self.begin_clause(clause, context_id)
        self._crossings[crossing] = context_id
        cutter = _FrameCutter(
            self._options.frame_ms, self._engine.rate_hz, longest_frame_ms=self._options.longest_frame_ms
        )
        try:
            while isinstance(
                item := await crossing.take(self._options.engine_timeout_ms / 1000), SpeechPiece
            ):
                for pcm, words in cutter.feed(item):
                    yield await self._timed_frame(pcm, words, cutter, context_id)
            for pcm, words in cutter.finish():
                yield await self._timed_frame(pcm, words, cutter, context_id)
        finally:
            crossing.stop()
            self._crossings.pop(crossing, None)
        if item.error is not None:
            await self._report(item.error, context_id)
        elif cutter.sent_samples:
            await self._add_words(cutter.late_words(), cutter, context_id)
        else:
            # Nothing to pronounce. A breath of silence, or Pipecat takes the context for a dead engine.
            due_ns = self._playout.clause_start_ns(context_id, self.get_clock().get_time())
            due_ns += self._options.frame_ms * self._options.word_due_percent * _NS_PER_MS // 100
            yield self._frame(bytes(cutter.frame_bytes), context_id)
            self._playout.word_due_s(context_id, due_ns)
            await self.append_to_audio_context(context_id, _TextDue(due_ns=due_ns))

    async def _timed_frame(
        self, pcm: bytes, words: list[WordTime], cutter: "_FrameCutter", context_id: str
    ) -> TTSAudioRawFrame:
        """Return the frame; its words are queued before it and its duration is recorded."""
        if cutter.start_ns is None:
            cutter.start_ns = self._playout.clause_start_ns(context_id, self.get_clock().get_time())
            cutter.start_us = self._places.end_us(context_id)
        else:
            # A voice that stalled, or another one that goes on for it: the rest is heard that much later.
            cutter.start_ns += self._playout.gap_ns(self.get_clock().get_time())
        await self._add_words(words, cutter, context_id)
        return self._frame(pcm, context_id)

    async def _add_words(self, words: list[WordTime], cutter: "_FrameCutter", context_id: str) -> None:
        if words and cutter.start_ns is not None:
            share = self._options.word_due_percent
            timed = [
                (
                    word.text,
                    self._playout.word_due_s(
                        context_id,
                        cutter.start_ns
                        + (word.start_ms * 100 + (word.end_ms - word.start_ms) * share) * _NS_PER_MS // 100,
                    ),
                )
                for word in words
            ]
            if self.audio_context_available(context_id):
                for word in words:
                    self._places.add(context_id, word, cutter.start_us)
            await self.add_word_timestamps(timed, context_id)

    def _frame(self, pcm: bytes, context_id: str) -> TTSAudioRawFrame:
        samples = len(pcm) // PCM_BYTES_PER_SAMPLE
        self._playout.audio_left(samples * _NS_PER_S // self._engine.rate_hz)
        self._places.audio_left(context_id, samples * _US_PER_S // self._engine.rate_hz)
        return TTSAudioRawFrame(pcm, self._engine.rate_hz, 1, context_id=context_id)

    async def _wait_for_turn(self, context_id: str) -> None:
        """Stay at most ``max_lead_ms`` ahead of the heard audio: an interruption discards the lead."""
        left_s = (self._playout.lead_ms(self.get_clock().get_time()) - self._options.max_lead_ms) / 1000
        while left_s > 0:
            step_s = min(left_s, _KEEPALIVE_S)
            await asyncio.sleep(step_s)
            left_s -= step_s
            keep_context(self, context_id)

    async def _report(self, error: Exception, context_id: str) -> None:
        """Take back the text that was announced and not spoken, then push the error."""
        marker = _ClauseFailed(context_id=context_id)
        await self.append_to_audio_context(context_id, marker)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MARKER_DEADLINE_S):
                await marker.handled.wait()
        await self.push_error(
            f"{type(self._engine).__name__} could not speak: {error}",
            exception=error,
            force_treat_as_permanent=isinstance(error, EngineError) and not error.retryable,
        )

    def _drop_pending(self, *, everything: bool) -> None:
        """Stop the engine for text that an interruption drops; speech marked uninterruptible continues."""
        self.forget_prepared()
        kept = set() if everything else protected_contexts(self)
        for crossing, context_id in self._crossings.items():
            if context_id not in kept:
                crossing.stop()
        if not kept:
            self._playout.interrupted()


class _FrameCutter:
    """Cutter of pieces of any length into frames, each with the words that begin in it.

    A word is released with the frame in which it begins, so a clause that breaks off has reported no later
    word. No frame waits for more audio than the shortest.

    Args:
        frame_ms: length of the shortest frame, and of the first ``SHORT_FRAMES``.
        rate_hz: samples per second.
        longest_frame_ms: length of the others, as far as there is audio.
    """

    def __init__(self, frame_ms: int, rate_hz: int, *, longest_frame_ms: int) -> None:
        self.frame_bytes = ms_to_samples(frame_ms, rate_hz) * PCM_BYTES_PER_SAMPLE
        self._longest_frames = max(1, longest_frame_ms // frame_ms)
        self._short_frames_left = SHORT_FRAMES
        # Time at which the clause is heard, and its place in the audio of its context.
        self.start_ns: int | None = None
        self.start_us = 0
        self.sent_samples = 0
        self._rate_hz = rate_hz
        self._pcm = bytearray()
        self._words: deque[WordTime] = deque()

    def feed(self, piece: SpeechPiece) -> list[tuple[bytes, list[WordTime]]]:
        """Add a piece and return the full frames."""
        self._words.extend(piece.words)
        self._pcm += piece.pcm
        frames = []
        start = 0
        while whole := (len(self._pcm) - start) // self.frame_bytes:
            end = start + self._frames_in_one(whole) * self.frame_bytes
            frames.append(self._cut(bytes(self._pcm[start:end])))
            start = end
        del self._pcm[:start]
        return frames

    def _frames_in_one(self, whole: int) -> int:
        if self._short_frames_left:
            self._short_frames_left -= 1
            return 1
        return min(whole, self._longest_frames)

    def finish(self) -> list[tuple[bytes, list[WordTime]]]:
        """Return the short last frame, if any."""
        rest, self._pcm = bytes(self._pcm), bytearray()
        return [self._cut(rest)] if rest else []

    def late_words(self) -> list[WordTime]:
        """Return words that begin after the last sample, by rounding."""
        late = list(self._words)
        self._words.clear()
        return late

    def _cut(self, pcm: bytes) -> tuple[bytes, list[WordTime]]:
        self.sent_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        until_ms = samples_to_ms(self.sent_samples, self._rate_hz)
        words = []
        while self._words and self._words[0].start_ms < until_ms:
            words.append(self._words.popleft())
        return pcm, words
