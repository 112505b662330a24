"""Asks an engine once a unit, in a thread of its own, and hands on what it says.

In: the caller's audio and frames as they come (appended, nothing else), and whether the bot has to listen.
Out: one ``UnitResult`` for each unit that was taken, and one ``Tick`` that says what became of it and what it
cost. No Pipecat here: ``omni`` has the frames.

A unit: wait for its time; wait for the unit before to be finalized; take what was heard; prefill and
generate in the engine's thread; hand on the result; finalize. The last is deferred by default: the result has
left when it begins, and the next unit waits for its end, so its cost is not in the way of what the caller
hears.

Slow: units that were missed are left out (``schedule``), and the audio of the time is shortened to one unit
(``audio.unit_buffer``): there is never more than one unit behind. Dead: an engine that does not answer within
``hang_ms`` is stopped, and when it does not come back within ``grace_ms`` it is given up with its thread, in
which it is cleaned up if it ever returns. Either way ``run`` raises ``EngineError``, and whoever owns it has
another engine or an apology. Wrong: a result that is not finite, or of another shape, is an ``EngineError``.

Full: an engine whose context is nearly full is prepared anew in a moment in which nobody speaks, or at the
latest when it is full; what is heard meanwhile waits, as far as the buffer goes. Paused: no unit is taken and
nothing is heard.

Silence: units in which nobody speaks may be left out (``gate``).

By arrival: whoever sends whole units is answered for each of them. A unit is due when it has been heard;
pictures, and the wish that the bot listens, are of the unit that hears what follows them; nothing is gated;
units that a slow engine never takes are counted in the tick of the next one.

``run`` is the only task. Cancelled in any phase, it stops the engine and gives it back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from audio.unit_buffer import MOST_UNITS, Overrun, Unit, UnitBuffer
from core.clock import Clock
from core.errors import AgentError, EngineError
from models.omni import OmniEngine, Preparation, UnitResult, Vote
from processors.duplex.gate import GateSettings, Gating, UnitGate
from processors.duplex.schedule import Due, UnitSchedule
from runtime.loop_clock import LoopClock

T = TypeVar("T")

# Wishes that lie closer together than this share of a unit are one.
WISHES_PER_UNIT = 10


class TickSettings(BaseModel):
    """How an engine is ticked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: GateSettings = GateSettings()

    overrun: Overrun = Field(
        Overrun.MERGE,
        description="what becomes of more audio than a unit takes: drop leaves out the oldest, merge the "
        "quietest pieces of it",
    )
    slack_ms: int = Field(
        60, ge=0, le=1_000, description="so much more than a unit waits for the next one instead"
    )
    deferred_finalize: bool = Field(True, description="a result leaves before its unit is finalized")
    prepare_ms: int = Field(30_000, ge=100, le=600_000, description="an engine is prepared within this")
    hang_ms: int = Field(
        5_000, ge=50, le=60_000, description="a unit that takes longer has failed; at least two units"
    )
    grace_ms: int = Field(
        1_000, ge=10, le=30_000, description="an engine that was stopped comes back within this"
    )
    frames_per_unit: int = Field(1, ge=0, le=8, description="the newest so many frames of a unit are seen")
    renew_from: float = Field(
        0.85, gt=0, le=1, description="share of the context from which a quiet moment begins a new one"
    )


@dataclass(frozen=True, slots=True)
class Tick:
    """What became of a unit.

    Attributes:
        slot: its place on the grid of units.
        due_us: when it was due.
        late_us: how much later it began.
        waited_us: then, for the unit before to be finalized.
        took_us: from its beginning until its result was there, that wait included.
        missed: units before it that were not taken.
        heard_ms: audio that was heard in it; the rest was silence.
        left_out_ms: audio that was left out.
        frames: that were seen.
        forced: the bot had to listen.
        vote: what the engine decided.
        said_ms: audio of the result.
        text: its words.
        kv_tokens: length of the context.
    """

    slot: int
    due_us: int
    late_us: int
    waited_us: int
    took_us: int
    missed: int
    heard_ms: int
    left_out_ms: int
    frames: int
    forced: bool
    vote: Vote
    said_ms: int
    text: str
    kv_tokens: int


class Ticker:
    """One conversation with one engine.

    Args:
        engine: not prepared yet; given back when ``run`` ends.
        executor: of one thread, of this conversation alone.
        settings: see the model.
        clock: of the units.
        must_listen: whether the bot has to be silent in the unit that begins, whichever that is.
        is_quiet: whether nobody speaks: a context that is nearly full may be begun anew.
        hears_voice: whether the caller speaks: silence may be left out (``gate``).
        renewed: how a new context begins; None keeps the first preparation.
        on_result: told each result on the loop; must not block.
        on_tick: told what became of each unit, behind its result; must not block.
        by_arrival: a unit is due when it has been heard, and not when the clock says so; see the module.
        on_prepared: told that the engine has been prepared; must not block.

    Attributes:
        by_arrival: as given.
        units: that were taken.
        missed: that were not.
        gated: that were left out because nobody spoke.
        renewals: contexts that were begun anew.
    """

    def __init__(
        self,
        engine: OmniEngine,
        *,
        executor: Executor,
        settings: TickSettings | None = None,
        clock: Clock | None = None,
        must_listen: Callable[[], bool] = lambda: False,
        is_quiet: Callable[[], bool] = lambda: True,
        hears_voice: Callable[[], bool] = lambda: True,
        renewed: Callable[[], Awaitable[Preparation]] | None = None,
        on_result: Callable[[UnitResult], None],
        on_tick: Callable[[Tick], None] | None = None,
        by_arrival: bool = False,
        on_prepared: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._settings = settings or TickSettings()
        self._clock: Clock = clock or LoopClock()
        self._must_listen = must_listen
        self._is_quiet = is_quiet
        self._hears_voice = hears_voice
        self._gate: UnitGate | None = None
        self._was_gated = False
        self._renewed = renewed
        self._on_result = on_result
        self._on_tick = on_tick
        self.by_arrival = by_arrival
        self._on_prepared = on_prepared
        self._heard = asyncio.Event()
        rate_hz = engine.input_rate_hz
        gate = self._settings.gate
        before_ms = 0 if gate.gating is Gating.NONE else gate.before_ms
        self._before_samples = rate_hz * before_ms // 1000
        self._unit_samples = rate_hz * engine.unit_ms // 1000
        self._buffer = UnitBuffer(
            self._unit_samples,
            rate_hz=rate_hz,
            # By arrival a client may be two units ahead, and a little, before one is taken.
            most_units=MOST_UNITS + 1 if by_arrival else max(MOST_UNITS, -(-before_ms // engine.unit_ms) + 1),
            whole_units=by_arrival,
            overrun=self._settings.overrun,
            slack_samples=0 if by_arrival else rate_hz * min(self._settings.slack_ms, engine.unit_ms) // 1000,
        )
        # Each with what had been heard when it was seen; the same of wishes that the bot listens.
        self._frames: list[tuple[int, np.ndarray]] = []
        self._wishes: list[int] = []
        self._heard_samples = 0
        self._finalizing: asyncio.Future[None] | None = None
        # Calls that the thread has not come back from.
        self._running: set[asyncio.Future[Any]] = set()
        self._is_paused = False
        self._resumed = asyncio.Event()
        # The engine's thread has begun a unit.
        self._begun = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._schedule: UnitSchedule | None = None
        self._units_of_context = 0
        self._speaks = False
        self.units = self.missed = self.gated = self.renewals = 0

    @property
    def buffer(self) -> UnitBuffer:
        """What was heard and not taken."""
        return self._buffer

    def hear(self, audio: np.ndarray) -> None:
        """What the caller says: float32, (samples,), at the engine's input rate. Appends, nothing else."""
        if not self._is_paused:
            self._buffer.append(audio)
            self._heard_samples += len(audio)
            self._heard.set()

    def see(self, frame: np.ndarray) -> None:
        """What the camera shows: uint8, (height, width, 3).

        Twice as many as are looked at are kept for each unit: whoever shows so many leaves no unit without
        one, and what is looked at is of the whole unit.
        """
        if not self.sees:
            return
        self._frames.append((self._heard_samples, frame))
        units = MOST_UNITS + 2 if self.by_arrival else 1
        del self._frames[: -2 * units * self._settings.frames_per_unit]

    def listen_behind(self) -> None:
        """By arrival: the bot has to be silent in the unit that hears what comes next."""
        near = self._unit_samples // WISHES_PER_UNIT
        if not self._is_paused and (not self._wishes or self._heard_samples - self._wishes[-1] >= near):
            self._wishes.append(self._heard_samples)

    async def unit_begun(self, *, within_ms: int) -> None:
        """By arrival: return when the engine has begun the unit that is whole by now, or after a time."""
        if not self.by_arrival or self._is_paused or self._buffer.held_samples < self._unit_samples:
            return
        self._begun.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await self._begun.wait()

    @property
    def sees(self) -> bool:
        """Whether a picture would be looked at."""
        return self._engine.takes_frames and self._settings.frames_per_unit > 0 and not self._is_paused

    @property
    def picture_ms(self) -> float:
        """Between two pictures that are looked at."""
        return self._engine.unit_ms / max(1, self._settings.frames_per_unit)

    @property
    def is_paused(self) -> bool:
        """Whether no unit is taken."""
        return self._is_paused

    def pause(self) -> None:
        """No unit is taken from here on; one that is on is finished."""
        self._is_paused = True
        self._resumed.clear()
        self._forget_heard()
        self._heard.set()

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False
        self._resumed.set()

    async def run(self, preparation: Preparation) -> None:
        """Tick until cancelled. The engine is given back in any case.

        Raises:
            EngineError: the engine failed, hangs, or gave something that is no result.
            AgentError: another refusal of the engine.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._prepare(preparation)
            if self._on_prepared is not None:
                self._on_prepared()
            while True:
                if self._is_paused:
                    await self._resumed.wait()
                    self._begin()
                if self._is_full():
                    await self._renew(preparation)
                due = await self._next_due()
                if not self._is_paused and self._is_wanted(due):
                    await self._unit(due)
        finally:
            await self._give_back()

    async def _prepare(self, preparation: Preparation) -> None:
        await self._call(self._engine.prepare, preparation, within_ms=self._settings.prepare_ms)
        self._units_of_context = 0
        self._speaks = False
        self._forget_heard()
        self._begin()

    def _begin(self) -> None:
        engine = self._engine
        first_ms = engine.first_unit_ms if not self.units else engine.unit_ms
        self._schedule = UnitSchedule(engine.unit_ms, first_ms, self._clock.now_us())
        self._gate = UnitGate(self._settings.gate, self._clock.now_ms())

    def _forget_heard(self) -> None:
        self._buffer.clear()
        self._frames.clear()
        self._wishes.clear()

    async def _next_due(self) -> Due:
        """Return when a unit is due; which one, is known then."""
        assert self._schedule is not None
        if self.by_arrival:
            return await self._next_heard()
        now_us = self._clock.now_us()
        left_us = self._schedule.due(now_us).at_us - now_us
        if left_us > 0:
            await asyncio.sleep(left_us / 1_000_000)
        due = self._schedule.due(self._clock.now_us())
        self._schedule.taken(due)
        return due

    async def _next_heard(self) -> Due:
        """Return when a unit has been heard, or somebody pauses."""
        while self._buffer.held_samples < self._unit_samples and not self._is_paused:
            self._heard.clear()
            await self._heard.wait()
        return Due(self.units, self._clock.now_us(), 0)

    def _is_wanted(self, due: Due) -> bool:
        """Whether the gate is open; a closed one keeps what a voice may begin in."""
        assert self._gate is not None
        if self.by_arrival:
            return True
        is_active = self._speaks or self._hears_voice()
        if not self._gate.is_open(due.at_us // 1000, is_active=is_active):
            self.gated += 1 + due.missed
            self._buffer.keep(self._before_samples)
            self._was_gated = True
            return False
        return True

    async def _unit(self, due: Due) -> None:
        # Behind a closed gate the beginning of a voice has waited: it is heard at once, unit by unit.
        was_gated, self._was_gated = self._was_gated, False
        behind = self._buffer.held_samples // self._unit_samples - 1 if was_gated else 0
        for _ in range(behind):
            await self._one(due, shortens=False)
            # What was missed before is counted once.
            due = replace(due, missed=0)
            if self._is_paused:
                return
        await self._one(due, shortens=not self.by_arrival)

    async def _one(self, due: Due, *, shortens: bool = True) -> None:
        began_us = self._clock.now_us()
        await self._barrier()
        ready_us = self._clock.now_us()
        unit, frames, wished = self._take(shortens=shortens)
        forced = self._must_listen() or wished
        result = await self._call(
            self._hear_and_say, unit.audio, frames, forced, within_ms=self._longest_unit_ms()
        )
        result = self._checked(result)
        took_us = self._clock.now_us() - began_us
        self.units += 1
        self.missed += due.missed
        self._units_of_context += 1
        self._speaks = not result.is_listen
        if not self._settings.deferred_finalize:
            self._finalizing = self._submit(self._engine.finalize)
            await self._barrier()
            took_us = self._clock.now_us() - began_us
        self._on_result(result)
        if self._on_tick is not None:
            in_ms, out_ms = self._engine.input_rate_hz / 1000, self._engine.output_rate_hz / 1000
            tick = Tick(
                slot=due.slot,
                due_us=due.at_us,
                late_us=began_us - due.at_us,
                waited_us=ready_us - began_us,
                took_us=took_us,
                missed=due.missed,
                heard_ms=round(unit.heard_samples / in_ms),
                left_out_ms=round(unit.left_out_samples / in_ms),
                frames=len(frames),
                forced=forced,
                vote=result.vote,
                said_ms=round(len(result.audio) / out_ms),
                text=result.text,
                kv_tokens=result.kv_tokens,
            )
            self._on_tick(tick)
        if self._settings.deferred_finalize:
            # Behind what the result is made into: a thread that wakes now takes the interpreter from that.
            self._finalizing = self._submit(self._engine.finalize)

    def _take(self, *, shortens: bool) -> tuple[Unit, tuple[np.ndarray, ...], bool]:
        """What is heard and seen in the unit that begins, and whether it was wished that the bot listens."""
        first_samples = self._engine.input_rate_hz * self._engine.first_unit_ms // 1000
        unit = self._buffer.take(first_samples if not self.units else None, shortens=shortens)
        # What was seen behind its last sample is of the next one.
        ends = self._heard_samples - self._buffer.held_samples if self.by_arrival else self._heard_samples + 1
        frames = [frame for place, frame in self._frames if place < ends]
        self._frames = [each for each in self._frames if each[0] >= ends]
        wished = any(place < ends for place in self._wishes)
        self._wishes = [place for place in self._wishes if place >= ends]
        # The newest, and then every other one where there are more than are looked at.
        step = 2 if len(frames) > self._settings.frames_per_unit else 1
        return unit, tuple(frames[::-step][: self._settings.frames_per_unit][::-1]), wished

    def _hear_and_say(self, audio: np.ndarray, frames: tuple[np.ndarray, ...], forced: bool) -> UnitResult:
        """In the engine's thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begun.set)
        self._engine.prefill(audio, frames)
        return self._engine.generate(force_listen=forced)

    def _longest_unit_ms(self) -> int:
        return max(self._settings.hang_ms, 2 * self._engine.unit_ms)

    def _checked(self, result: UnitResult) -> UnitResult:
        name = type(self._engine).__name__
        audio = result.audio if isinstance(result, UnitResult) else None
        if not isinstance(audio, np.ndarray):
            raise EngineError("a result without audio", engine=name)
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise EngineError(f"a result of {audio.dtype}, {audio.shape} is no audio", engine=name)
        if not np.isfinite(audio).all():
            raise EngineError("a result has values that are not finite", engine=name)
        # Twice a unit is a wrong rate, or speech that nobody can say in time.
        if len(audio) > 2 * self._engine.unit_ms * self._engine.output_rate_hz // 1000:
            raise EngineError(f"a result of {len(audio)} samples is longer than its unit", engine=name)
        if not result.is_listen and not len(audio) and result.text:
            logger.debug(f"{name}: words without a sound")
        return result

    def _is_full(self) -> bool:
        most = self._engine.context_units
        if most is None or self._units_of_context < self._settings.renew_from * most:
            return False
        return self._units_of_context >= most or (not self._speaks and self._is_quiet())

    async def _renew(self, preparation: Preparation) -> None:
        """The context is full: begin another with what was said so far. The grid of units stays."""
        following = await self._renewed() if self._renewed is not None else preparation
        await self._barrier()
        await self._call(self._engine.cleanup, within_ms=self._settings.prepare_ms)
        await self._call(self._engine.prepare, following, within_ms=self._settings.prepare_ms)
        self._units_of_context = 0
        self.renewals += 1

    async def _barrier(self) -> None:
        """The unit before is finalized."""
        finalizing, self._finalizing = self._finalizing, None
        if finalizing is not None:
            await self._answer(finalizing, "finalize", self._longest_unit_ms())

    async def _call(self, work: Callable[..., T], *arguments: Any, within_ms: int) -> T:
        return await self._answer(self._submit(work, *arguments), work.__name__, within_ms)

    def _submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        future = asyncio.wrap_future(self._executor.submit(work, *arguments))
        self._running.add(future)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            # Whoever waits for it takes the error; nobody may any more.
            future.exception()

    async def _answer(self, future: asyncio.Future[T], what: str, within_ms: int) -> T:
        done, _ = await asyncio.wait({future}, timeout=within_ms / 1000)
        name = type(self._engine).__name__
        if done:
            try:
                return future.result()
            except AgentError:
                raise
            except Exception as error:  # an engine of somebody else's raises what it likes
                raise EngineError(f"{what.strip('_')} failed: {type(error).__name__}", engine=name) from error
        self._engine.stop()
        await asyncio.wait({future}, timeout=self._settings.grace_ms / 1000)
        state = "and was stopped" if future.done() else "and does not stop"
        raise EngineError(f"{what.strip('_')} gave nothing within {within_ms} ms {state}", engine=name)

    async def _give_back(self) -> None:
        """Stop the engine and clean it up, in its thread and behind whatever runs there."""
        self._engine.stop()
        try:
            future = self._submit(self._engine.cleanup)
        except RuntimeError:
            # The executor is shut down: the process is ending.
            return
        done, _ = await asyncio.wait({future}, timeout=self._settings.grace_ms / 1000)
        if not done:
            logger.warning(f"{type(self._engine).__name__} does not come back: it is given up")
        elif isinstance(error := future.exception(), AgentError):
            logger.warning(f"{type(self._engine).__name__} was not given back in order: {error}")
        elif error is not None:
            logger.opt(exception=error).error("an engine failed when it was given back")
