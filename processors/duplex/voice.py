"""Speech of a full-duplex engine as replies of a call: paced audio, words at their places, backchannels.

Inputs: the results of units as they come, drops, and yields. Outputs, through ``push``: for each reply a
start, audio with the reply's id in pieces that leave when they are due, its words as they are said, and its
end. Backchannels have none of these marks. The speech of an engine is one reply until it ends its turn or
listens. Speech that follows while the reply is still being heard is another reply if the engine reports it
so.

A client that takes whole units gets each of them, and the messages that follow it, before the pipeline
(``UnitSink``). Several frames per unit on their way down the pipeline took longer than all work on its
audio. The frames follow, for the records of playout.

``drop`` forgets everything that has not left. ``flush`` is the effect of an engine's yield: the same, and
the pipeline is interrupted when a part of the reply was heard. ``finish`` plays the held audio to its end.

A late piece leaves at once, and the next ones in their time. An engine that makes more audio than
``PacedOutput`` holds causes an error of its unit. The object owns no task: ``run`` is its caller's.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import numpy as np
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.utils.text.base_text_aggregator import TextType
from pydantic import Field

from parley.audio.paced_output import PacedOutput
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16
from parley.core.strict_model import StrictModel
from parley.core.units import Vote
from parley.models.omni import UnitResult
from parley.processors.duplex.word_aligner import EngineWordTiming, WordAligner
from parley.processors.playout.playout import Playout
from parley.processors.speech.spoken_at import SPOKEN_AT, BrokeOffFrame, SpokenAt
from parley.processors.turns.floor import FloorHolder
from parley.protocols.client_protocol import ALREADY_SENT, Happening, UnitSink
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

# Softer audio before a reply is padding of the engine's (-60 dBFS).
SILENT_PEAK = 0.001
# Audio that may wait to leave: so many units of it, and no less than that.
HELD_UNITS, HELD_MS = 4, 10_000
# A unit that leaves at once does so in as few pieces as possible: each costs its way down the pipeline.
WHOLE_PIECE_MS = 1_000


class SpeechPacing(StrictModel):
    """Pacing of an engine's speech."""

    piece_ms: int = Field(20, ge=10, le=40, description="length of the pieces in which audio is sent")
    lead_ms: int = Field(
        40,
        ge=10,
        le=500,
        description="time by which a piece is sent before it is due: speech that is still played after the "
        "bot yields",
    )


def paced_output(
    rate_hz: int, *, unit_ms: int, settings: SpeechPacing, whole_units: bool = False
) -> PacedOutput:
    """Create the buffer that holds the audio of an engine with this rate and these units until it is due.

    ``whole_units``: all of a unit leaves at once, for a client that plays it when it is due.
    """
    return PacedOutput(
        rate_hz,
        piece_ms=WHOLE_PIECE_MS if whole_units else settings.piece_ms,
        lead_ms=max(settings.lead_ms, WHOLE_PIECE_MS if whole_units else settings.piece_ms),
        at_once=whole_units,
        longest_ms=max(HELD_MS, HELD_UNITS * unit_ms),
    )


class _Reply:
    """State of one reply."""

    def __init__(self, *, is_aside: bool) -> None:
        self.reply_id = uuid.uuid4().hex
        self.is_aside = is_aside
        self.saying = WordAligner()
        # None marks words missing here that the voice could not say.
        self.words: deque[EngineWordTiming | None] = deque()
        # Announced texts, each with its number of words; for each announced word the id of its announcement.
        self.texts: deque[tuple[str, int] | None] = deque()
        self.segments: deque[int] = deque()
        # The whole text of the reply, where the engine knows it.
        self.planned = ""
        self.sent_us = 0
        self.is_begun = self.is_over = False
        self.written = 0


class EngineVoice:
    """Voice of one call.

    Args:
        push: takes the frames.
        events: of the call.
        settings: pacing.
        playout: records the text as it is written.
        keeps_apart: returns whether speech of an engine after the end of a reply, while that is being heard,
            is another one.
        interrupt: interrupts the pipeline, and returns when that has been sent: the engine fell silent in the
            middle of a reply that was heard.
        unit_sink: receives whole units before the pipeline.
    """

    def __init__(
        self,
        push: Callable[[Frame], Awaitable[None]],
        events: CallEvents,
        *,
        settings: SpeechPacing,
        playout: Playout | None,
        keeps_apart: Callable[[], bool],
        interrupt: Callable[[], Awaitable[None]],
        unit_sink: UnitSink | None = None,
    ) -> None:
        self._push = push
        self._clock = LoopClock()
        self._settings = settings
        self._playout = playout
        self._keeps_apart = keeps_apart
        self._interrupt = interrupt
        self._unit_sink = unit_sink
        self._open_sink: UnitSink | None = None
        self._paced: PacedOutput | None = None
        self._wake = asyncio.Event()
        self._reply: _Reply | None = None
        self._floor = FloorHolder(events)
        # Replies that are over, and whose end is pushed before the next one.
        self._over: deque[_Reply] = deque()
        # Speech after a reply that is still being heard, which is another one.
        self._behind: deque[UnitResult] = deque()
        # Set while no reply is current.
        self._silent = asyncio.Event()
        self._silent.set()
        # Set when the current reply has been said.
        self._said = asyncio.Event()
        # Backchannels that are to be said.
        self._backchannels: deque[OutputAudioRawFrame] = deque(maxlen=4)
        self._is_flushing = False
        # Messages that follow the audio that is due: see ``follow``.
        self._following: deque[Happening] = deque(maxlen=256)
        # Pieces that the unit sink has, and whose frames have not been pushed, with their replies.
        self._told: deque[tuple[_Reply, bytes]] = deque()

    @property
    def is_speaking(self) -> bool:
        """True while a reply is current."""
        return self._reply is not None

    @property
    def paced(self) -> PacedOutput | None:
        """Held audio of the current engine."""
        return self._paced

    def begin(self, rate_hz: int, *, unit_ms: int, whole_units: bool = False) -> None:
        """Begin the speech of another engine; see ``paced_output``."""
        self._paced = paced_output(rate_hz, unit_ms=unit_ms, settings=self._settings, whole_units=whole_units)
        unit_sink = self._unit_sink
        # Another rate has to be converted, which is the output's task.
        self._open_sink = (
            unit_sink if unit_sink is not None and whole_units and unit_sink.rate_hz == rate_hz else None
        )
        self._following.clear()

    def follow(self, happening: Happening) -> None:
        """Send a message to the client after all audio that is due by now."""
        self._following.append(happening)
        self._play_due()
        self._wake.set()

    def fail(self, happening: Happening) -> bool:
        """Drop the speech of an engine that is given up; return whether the client has been notified."""
        self.drop()
        self._following.clear()
        if self._open_sink is None:
            return False
        self._open_sink.report(happening)
        return True

    def say(self, result: UnitResult) -> None:
        """Handle the engine's result for a unit."""
        paced = self._paced
        if paced is None:
            return
        if result.vote is Vote.BACKCHANNEL:
            self._queue_backchannel(float_to_pcm16(result.audio), paced.rate_hz)
        elif result.vote is Vote.SPEAK:
            self._go_on(result, paced)
        elif result.vote is Vote.YIELD and self._reply is not None:
            self._is_flushing = True
        ends = result.end_of_turn or result.vote is Vote.LISTEN
        if ends and self._reply is not None and not self._behind:
            self._close(self._reply, paced)
        if self._open_sink is None:
            self._wake.set()
        # Otherwise the messages after it are sent first, and its frames take their way after that
        # (``follow``).

    def drop(self) -> None:
        """Drop everything that has not left."""
        if self._open_sink is not None:
            self._open_sink.cut()
        if self._paced is not None:
            self._paced.clear()
        self._follow_with(None)
        self._over.clear()
        self._behind.clear()
        self._told.clear()
        self._backchannels.clear()
        self._is_flushing = False
        self._said.set()
        self._wake.set()

    async def flush(self) -> None:
        """Yield: the same as an interruption."""
        spoke = self._reply is not None and (self._reply.is_begun or bool(self._told))
        self.drop()
        if spoke:
            await self._interrupt()

    async def until_silent(self) -> None:
        """Return when no reply is current."""
        await self._silent.wait()

    async def finish(self) -> None:
        """Wait until the held audio has been said; no more comes."""
        paced, reply = self._paced, self._reply
        if paced is None or reply is None:
            return
        self._close(reply, paced)
        self._said.clear()
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(paced.held_samples / paced.rate_hz + 1):
                await self._said.wait()

    async def run(self) -> None:
        """Send pieces when they are due, until cancelled."""
        while True:
            await self._until_due()
            if self._is_flushing:
                await self.flush()
            await self._send_backchannels()
            await self._send_due()
            self._play_due()
            while self._following:
                await self._push(OutputTransportMessageFrame(message=self._following.popleft()))

    def _go_on(self, result: UnitResult, paced: PacedOutput) -> None:
        audio, reply, rate_hz = result.audio, self._reply, paced.rate_hz
        if reply is not None and reply.is_over and (paced.held_samples or self._told):
            if self._keeps_apart() or reply.is_aside != result.is_aside:
                # After the reply that is still being said; no reply is longer than some units.
                self._behind.append(result)
                return
            # Between units that speak an engine may vote otherwise: they are one reply.
            reply.is_over = False
        if reply is None or reply.is_over:
            loud = np.flatnonzero(np.abs(audio) > SILENT_PEAK)
            if not loud.size and not result.text.strip():
                return
            audio = audio[loud[0] :] if loud.size else audio[:0]
            if reply is not None:
                self._over.append(reply)
            reply = _Reply(is_aside=result.is_aside)
            self._follow_with(reply)
        reply.planned = result.written or reply.planned
        words = reply.saying.add(result.text, len(audio), rate_hz)
        left_out = paced.push(audio, self._clock.now_us())
        # Words after silence that was left out are heard as much sooner.
        reply.saying.leave_out(left_out, rate_hz)
        if result.broke_off:
            words += reply.saying.end()
        self._queue_words(reply, words)
        if result.broke_off:
            reply.words.append(None)
            reply.texts.append(None)

    def _follow_with(self, reply: _Reply | None) -> None:
        self._reply = reply
        if reply is None:
            self._silent.set()
        else:
            self._silent.clear()
        self._floor.hold(reply is not None)

    def _close(self, reply: _Reply, paced: PacedOutput) -> None:
        if not reply.is_over:
            reply.is_over = True
            self._queue_words(reply, reply.saying.end())
            paced.push(np.zeros(0, np.float32), self._clock.now_us(), is_last=True)

    def _queue_words(self, reply: _Reply, words: Sequence[EngineWordTiming]) -> None:
        """Queue whole words: an engine writes pieces of them. The records have the pieces."""
        if reply.is_begun:
            self._report_written(reply)
        if words:
            reply.words.extend(words)
            reply.texts.append((" ".join(word.text for word in words), len(words)))

    def _report_written(self, reply: _Reply) -> None:
        known = reply.planned or reply.saying.text
        text, reply.written = known[reply.written :], max(reply.written, len(known))
        if self._playout is not None and text and not reply.is_aside:
            self._playout.written(reply.reply_id, text)

    async def _until_due(self) -> None:
        due_us = self._paced.next_due_us() if self._paced is not None else None
        left_us = None if due_us is None else due_us - self._clock.now_us()
        if left_us is not None and left_us <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(None if left_us is None else left_us / 1_000_000):
                await self._wake.wait()
        self._wake.clear()

    async def _send_due(self) -> None:
        paced = self._paced
        if paced is None:
            return
        await self._send_ends()
        while (sending := self._next_piece(paced)) is not None:
            await self._send(*sending, paced)
            # Another reply may have begun meanwhile, and its pieces come next.
            await self._send_ends()
        reply = self._reply
        if reply is not None and reply.is_over and not paced.held_samples and not self._is_flushing:
            self._follow_with(None)
            await self._send_end(reply)
            self._said.set()
            self._say_next(paced)

    async def _send_ends(self) -> None:
        while self._over:
            await self._send_end(self._over.popleft())

    def _next_piece(self, paced: PacedOutput) -> tuple[_Reply, bytes] | None:
        """Return the piece that leaves now, 16-bit, with its reply; None without one."""
        self._play_due()
        if self._told:
            return self._told.popleft()
        if self._reply is None or self._is_flushing:
            return None
        piece = paced.take(self._clock.now_us())
        return None if piece is None else (self._reply, float_to_pcm16(piece))

    def _play_due(self) -> None:
        """Pass all due audio to the unit sink, and the messages after it; a cut precedes those messages."""
        unit_sink, paced = self._open_sink, self._paced
        if unit_sink is None or paced is None or self._is_flushing:
            return
        while self._reply is not None and (piece := paced.take(self._clock.now_us())) is not None:
            pcm = float_to_pcm16(piece)
            unit_sink.say(pcm)
            self._told.append((self._reply, pcm))
        while self._following:
            unit_sink.report(self._following.popleft())

    def _say_next(self, paced: PacedOutput) -> None:
        waiting, self._behind = self._behind, deque()
        for result in waiting:
            self._go_on(result, paced)
            if result.end_of_turn and self._reply is not None:
                self._close(self._reply, paced)
        if waiting:
            self._wake.set()

    async def _send(self, reply: _Reply, pcm: bytes, paced: PacedOutput) -> None:
        if not reply.is_begun:
            reply.is_begun = True
            if not reply.is_aside:
                frame = LLMFullResponseStartFrame()
                if self._playout is not None:
                    reply.reply_id = self._playout.name_reply(frame)
                    self._report_written(reply)
                await self._push(frame)
            started = TTSStartedFrame(context_id=reply.reply_id, append_to_context=not reply.is_aside)
            await self._push(started)
        await self._send_texts(reply)
        rate_hz = paced.rate_hz
        reply.sent_us += len(pcm) // PCM_BYTES_PER_SAMPLE * 1_000_000 // rate_hz
        audio = TTSAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1, context_id=reply.reply_id)
        if self._open_sink is not None:
            ALREADY_SENT.put(audio, True)
        await self._push(audio)
        while reply.words and ((word := reply.words[0]) is None or word.start_us < reply.sent_us):
            await self._send_word(reply, reply.words.popleft())

    async def _send_texts(self, reply: _Reply) -> None:
        """Push the announcements: after an interruption their text is known as unheard."""
        # Text after a gap is announced after the gap: the last announcement counts as the lost one.
        while reply.texts and (announced := reply.texts[0]) is not None:
            text, words = announced
            reply.texts.popleft()
            sentence = AggregatedTextFrame(text, TextType.SENTENCE, context_id=reply.reply_id)
            sentence.will_be_spoken, sentence.append_to_context = True, False
            # A client shows it dim, and each of its words bright when it is said.
            reply.segments.extend([sentence.id] * words)
            await self._push(sentence)

    async def _send_word(self, reply: _Reply, word: EngineWordTiming | None) -> None:
        if word is None:
            await self._push(BrokeOffFrame(context_id=reply.reply_id))
            reply.texts.popleft()
            await self._send_texts(reply)
            return
        frame = TTSTextFrame(word.text, TextType.WORD, context_id=reply.reply_id)
        frame.append_to_context = not reply.is_aside
        if reply.segments:
            frame.segment_id = reply.segments.popleft()
        SPOKEN_AT.put(frame, SpokenAt(word.start_us, word.end_us, estimated=True))
        await self._push(frame)

    async def _send_end(self, reply: _Reply) -> None:
        if not reply.is_begun:
            return
        await self._send_texts(reply)
        while reply.words:
            await self._send_word(reply, reply.words.popleft())
        await self._push(TTSStoppedFrame(context_id=reply.reply_id))
        if not reply.is_aside:
            await self._push(LLMFullResponseEndFrame())

    async def _send_backchannels(self) -> None:
        while self._backchannels:
            await self._push(self._backchannels.popleft())

    def _queue_backchannel(self, pcm: bytes, rate_hz: int) -> None:
        frame = OutputAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1)
        if self._open_sink is not None:
            self._open_sink.say(pcm)
            ALREADY_SENT.put(frame, True)
        self._backchannels.append(frame)
