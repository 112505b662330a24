"""Clips through an engine: the caller's audio in, the bot's audible output out, on one clock.

``play`` is a call at the pace of the clock, by the product's own ``Ticker``. The engine runs in a thread, its
content in others, and a recogniser in parallel (``listening``). The caller sends 20 ms every 20 ms. Several
clips run in parallel; their effect on the ticks is measured and reported. ``step`` is for engines that have
no clock and no thread (the baselines): the same units, each with its result at the moment that it is due.
Either gives ``Take``s whose audio begins with the first sample of the clip and is as long as it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import soxr

from parley.core.errors import EngineError
from parley.core.units import Tick
from parley.evals.duplex_bench.clips import Clip
from parley.evals.duplex_bench.listening import ParallelRecogniser
from parley.evals.duplex_bench.mouth import Mouth
from parley.evals.duplex_bench.spoken import RATE_HZ, Segmenter, Spoken, Word
from parley.models.omni import OmniEngine, OmniHost, Preparation, UnitResult
from parley.models.stt import Transcript
from parley.models.vad import VoiceActivityDetector
from parley.processors.duplex.tick import TickedCall
from parley.processors.duplex.ticker import Ticker
from parley.runtime.engine_thread import EngineThread
from parley.runtime.loop_clock import LoopClock
from parley.runtime.utterances import UtteranceEngine

PIECE_MS = 20
# A piece of the caller's audio comes this long before the unit that it belongs to. A network's pieces are not
# in step with units, and one that came together with its unit would belong to it or not by chance.
AHEAD_MS = 10
# Delay from one parallel clip to the next, so that not all of them make requests at once.
STAGGER_MS = 37
BEGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Take:
    """A clip as it was played.

    Attributes:
        clip: the clip.
        caller: float32, (samples,), 16 kHz.
        bot: float32, (samples,), 16 kHz, as long.
        words: of the bot, at the times at which they are audible.
        understood: texts of the caller, by the parallel recogniser.
        words_late_ms: of each of these, from the end of the voice until its arrival.
        lost_words: number of failures of the recogniser.
        late_us: of each unit, lateness of its beginning.
        took_us: of each unit, time until its result.
        missed: number of units that were not taken.
        holes: number of holes in the bot's voice.
    """

    clip: Clip
    caller: np.ndarray
    bot: np.ndarray
    words: tuple[Word, ...]
    understood: tuple[str, ...] = ()
    words_late_ms: tuple[int, ...] = ()
    lost_words: int = 0
    late_us: tuple[int, ...] = ()
    took_us: tuple[int, ...] = ()
    missed: int = 0
    holes: int = 0

    def spoken(self, segments: Segmenter, *, has_words: bool) -> Spoken:
        """Return the bot's output as segments and words."""
        length_ms = len(self.caller) * 1000 // RATE_HZ
        return Spoken(length_ms, segments(self.bot), self.words if has_words else None)

    def stereo(self) -> np.ndarray:
        """Return both sides as float32, (samples, 2): the caller left, the bot right."""
        return np.stack((self.caller, self.bot), axis=1)


def step(host: OmniHost, clip: Clip, audio: np.ndarray | None = None) -> Take:
    """Run a clip through an engine that has no clock of its own.

    Args:
        host: of the engine.
        clip: to be played.
        audio: in place of the clip's own: float32, (samples,), 16 kHz.
    """
    caller = clip.audio(RATE_HZ) if audio is None else audio
    engine = host.open_engine()
    mouth = Mouth(engine.output_rate_hz, engine.unit_ms, len(caller) * 1000 // RATE_HZ)
    heard = _at_rate(caller, engine.input_rate_hz)
    engine.prepare(Preparation())
    try:
        at_ms, length_ms = 0, engine.first_unit_ms
        while at_ms * engine.input_rate_hz // 1000 < len(heard):
            unit = _unit(heard, engine, at_ms, length_ms)
            at_ms += length_ms
            length_ms = engine.unit_ms
            engine.prefill(unit)
            mouth.say(engine.generate(), at_ms * 1000)
            engine.finalize()
    finally:
        engine.stop()
        engine.cleanup()
    return _take(clip, caller, engine, mouth)


def _unit(heard: np.ndarray, engine: OmniEngine, at_ms: int, length_ms: int) -> np.ndarray:
    """Return a whole unit, with silence after the last sample."""
    first, last = (ms * engine.input_rate_hz // 1000 for ms in (at_ms, at_ms + length_ms))
    unit = heard[first:last]
    return np.concatenate((unit, np.zeros(last - first - len(unit), np.float32)))


@dataclass(slots=True)
class Side:
    """Recogniser for an engine that does not transcribe.

    Attributes:
        stt: the recogniser.
        vad: cuts its utterances.
    """

    stt: UtteranceEngine[Transcript]
    vad: VoiceActivityDetector


async def play_all(
    host: OmniHost,
    clips: Sequence[tuple[Clip, np.ndarray | None]],
    *,
    side: Side | None,
    at_once: int,
    on_take: Callable[[Take], None] = lambda take: None,
) -> list[Take]:
    """Play clips at the pace of the clock, ``at_once`` in parallel; return the takes in order.

    Args:
        host: of the engine.
        clips: each with audio in place of its own, or None.
        side: for an engine that wants words. None gives it none.
        at_once: number of parallel clips, limited to the sessions of the host.
        on_take: called with each clip when it is over.

    Raises:
        EngineError: the engine or the recogniser failed.
    """
    room = asyncio.Semaphore(min(at_once, host.sessions or at_once))

    async def one(place: int, clip: Clip, audio: np.ndarray | None) -> Take:
        await asyncio.sleep(place % at_once * STAGGER_MS / 1000)
        async with room:
            take = await play(host, clip, audio, side=side)
        on_take(take)
        return take

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(one(place, clip, audio), name=f"bench.{clip.name}")
            for place, (clip, audio) in enumerate(clips)
        ]
    return [task.result() for task in tasks]


async def play(
    host: OmniHost,
    clip: Clip,
    audio: np.ndarray | None = None,
    *,
    side: Side | None = None,
    executors: Callable[[], Executor] = lambda: EngineThread("bench"),
) -> Take:
    """Play one clip at the pace of the clock.

    Args:
        host: of the engine.
        clip: to be played.
        audio: in place of the clip's own: float32, (samples,), 16 kHz.
        side: see ``play_all``.
        executors: makes the thread of an engine.
    """
    caller = clip.audio(RATE_HZ) if audio is None else audio
    thread = executors()
    try:
        engine = await asyncio.wrap_future(thread.submit(host.open_engine))
        call = _Call(engine, thread, caller)
        on_words = getattr(engine, "on_words", None)
        recogniser = (
            ParallelRecogniser(side.stt, side.vad, on_words)
            if side is not None and on_words is not None
            else None
        )
        try:
            if recogniser is not None:
                await recogniser.open()
            await call.run(recogniser)
        finally:
            if recogniser is not None:
                recogniser.close()
        return _take(clip, caller, engine, call.mouth, call.ticks, recogniser)
    finally:
        thread.shutdown(wait=False)


@dataclass(slots=True)
class _Ticks:
    """Times of the units of a clip."""

    late_us: list[int] = field(default_factory=list)
    took_us: list[int] = field(default_factory=list)
    missed: int = 0


class _Call:
    """Caller that plays a clip to an engine that is ticked."""

    def __init__(self, engine: OmniEngine, thread: Executor, caller: np.ndarray) -> None:
        self._engine = engine
        self._caller, self._heard = caller, _at_rate(caller, engine.input_rate_hz)
        self._clock = LoopClock()
        self._length_ms = len(caller) * 1000 // RATE_HZ
        self.mouth = Mouth(engine.output_rate_hz, engine.unit_ms, self._length_ms)
        self.ticks = _Ticks()
        self._began = asyncio.Event()
        # Session time of the first sample; known when units are taken.
        self._zero_us = 0
        self._early: list[tuple[UnitResult, int]] = []
        self._ticker = Ticker(engine, thread, TickedCall(on_result=self._on_result, on_tick=self._on_tick))

    async def run(self, recogniser: ParallelRecogniser | None) -> None:
        """Run to the end of the clip.

        Raises:
            EngineError: the engine, or the parallel recogniser, failed.
        """
        units = asyncio.create_task(self._ticker.run(Preparation()), name="bench.units")
        caller = asyncio.create_task(self._talk(recogniser), name="bench.caller")
        try:
            done, _ = await asyncio.wait({units, caller}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (caller, units):
                task.cancel()
                with suppress(asyncio.CancelledError, EngineError):
                    await task

    async def _talk(self, recogniser: ParallelRecogniser | None) -> None:
        async with asyncio.timeout(BEGIN_S):
            await self._began.wait()
        rate_hz = self._engine.input_rate_hz
        for at_ms in range(0, self._length_ms, PIECE_MS):
            await self._until(at_ms + PIECE_MS)
            first, last = (ms * rate_hz // 1000 for ms in (at_ms, at_ms + PIECE_MS))
            self._ticker.hear(self._heard[first:last])
            if recogniser is not None:
                first, last = (ms * RATE_HZ // 1000 for ms in (at_ms, at_ms + PIECE_MS))
                recogniser.hear(self._caller[first:last])
        # Output at the very end comes with a unit that is due after it.
        await self._until(self._length_ms + self._engine.unit_ms)

    async def _until(self, at_ms: int) -> None:
        left_us = self._zero_us + at_ms * 1000 - self._clock.now_us()
        await asyncio.sleep(max(0, left_us) / 1_000_000)

    def _on_result(self, result: UnitResult) -> None:
        now_us = self._clock.now_us()
        if self._began.is_set():
            self.mouth.say(result, now_us - self._zero_us)
        else:
            self._early.append((result, now_us))

    def _on_tick(self, tick: Tick) -> None:
        if not self._began.is_set():
            # The first sample of the clip is the first of the unit after the next one: no unit has a part of
            # it.
            unit_us = self._engine.unit_ms * 1000
            ready_us = self._clock.now_us() - tick.due_us
            self._zero_us = tick.due_us + (ready_us // unit_us + 1) * unit_us - AHEAD_MS * 1000
            self._began.set()
            for result, at_us in self._early:
                self.mouth.say(result, at_us - self._zero_us)
            return
        self.ticks.late_us.append(tick.late_us)
        self.ticks.took_us.append(tick.took_us)
        self.ticks.missed += tick.missed


def _take(
    clip: Clip,
    caller: np.ndarray,
    engine: OmniEngine,
    mouth: Mouth,
    ticks: _Ticks | None = None,
    recogniser: ParallelRecogniser | None = None,
) -> Take:
    heard, words = mouth.heard()
    bot = _at_rate(heard, RATE_HZ, engine.output_rate_hz)[: len(caller)]
    bot = np.concatenate((bot, np.zeros(len(caller) - len(bot), np.float32)))
    chosen = ticks or _Ticks()
    return Take(
        clip,
        caller,
        bot,
        words,
        tuple(recogniser.understood) if recogniser is not None else (),
        tuple(recogniser.late_ms) if recogniser is not None else (),
        recogniser.failures if recogniser is not None else 0,
        tuple(chosen.late_us),
        tuple(chosen.took_us),
        chosen.missed,
        mouth.holes,
    )


def _at_rate(audio: np.ndarray, to_hz: int, from_hz: int = RATE_HZ) -> np.ndarray:
    if to_hz == from_hz:
        return audio
    return np.ascontiguousarray(soxr.resample(audio, from_hz, to_hz), dtype=np.float32)
