"""Run an engine once per unit, in a thread of its own, and pass its results on.

Inputs: the caller's audio and frames as they come (``unit_intake``), and whether the bot has to listen.
Output: one ``UnitResult`` for each unit that was taken, and one ``Tick`` with its outcome and its cost.
Pipecat is not used here: ``omni`` handles the frames.

The steps of a unit are: wait for its time; wait for the unit before to be finalized; take the audio; prefill
and generate in the engine's thread (``engine_calls``); pass the result on; finalize. The last step is
deferred by default: the result has left when it begins, and the next unit waits for its end. So its cost does
not delay the audio to the caller.

When the engine is slow, missed units are left out (``schedule``), and the audio of the time is shortened to
one unit (``audio.unit_buffer``). So the ticker is never more than one unit late. An engine that fails or
hangs ends ``run`` with ``EngineError``.

When the context is nearly full, the engine is prepared anew in a moment of mutual silence, or at the latest
when it is full. Audio meanwhile waits, as far as the buffer goes. While paused, no unit is taken and audio is
dropped. Units of mutual silence may be left out (``gate``).

With ``by_arrival`` a client that sends whole units gets an answer for each of them. A unit is due when its
audio has arrived; nothing is gated; units that a slow engine never takes are counted in the tick of the next
one.

``run`` is the only task. When it is cancelled in any phase, it stops the engine and gives it back.
"""

import asyncio
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from enum import Enum

import numpy as np

from parley.audio.unit_buffer import UnitBuffer
from parley.core.clock import Clock
from parley.core.errors import IllegalTransition
from parley.core.units import Tick
from parley.models.omni import OmniEngine, Preparation
from parley.processors.duplex.engine_calls import EngineCalls
from parley.processors.duplex.gate import UnitGate
from parley.processors.duplex.schedule import Due, UnitSchedule
from parley.processors.duplex.tick import TickedCall, TickSettings
from parley.processors.duplex.unit_intake import UnitIntake
from parley.runtime.loop_clock import LoopClock


class Ticking(Enum):
    """States of a ticker."""

    TAKING = "taking"
    GATED = "gated"
    PAUSED = "paused"


class TickEvent(Enum):
    """Events that change the state of a ticker."""

    UNIT_BEGUN = "unit begun"
    GATE_CLOSED = "gate closed"
    PAUSED = "paused"
    RESUMED = "resumed"


TRANSITIONS: dict[tuple[Ticking, TickEvent], Ticking] = {
    (Ticking.TAKING, TickEvent.UNIT_BEGUN): Ticking.TAKING,
    (Ticking.TAKING, TickEvent.GATE_CLOSED): Ticking.GATED,
    (Ticking.TAKING, TickEvent.PAUSED): Ticking.PAUSED,
    (Ticking.TAKING, TickEvent.RESUMED): Ticking.TAKING,
    (Ticking.GATED, TickEvent.UNIT_BEGUN): Ticking.TAKING,
    (Ticking.GATED, TickEvent.GATE_CLOSED): Ticking.GATED,
    (Ticking.GATED, TickEvent.PAUSED): Ticking.PAUSED,
    (Ticking.GATED, TickEvent.RESUMED): Ticking.GATED,
    (Ticking.PAUSED, TickEvent.PAUSED): Ticking.PAUSED,
    (Ticking.PAUSED, TickEvent.RESUMED): Ticking.TAKING,
}


class Ticker:
    """Ticker of one conversation with one engine.

    Args:
        engine: not prepared yet; given back when ``run`` ends.
        executor: has one thread, for this conversation alone.
        call: callbacks of the call.
        settings: None for the defaults.
        clock: clock of the units; None for that of the loop.
        by_arrival: a unit is due when its audio has arrived, and not by the clock; see the module.

    Attributes:
        by_arrival: as given.
        units: number of units that were taken.
        missed: number of units that were not taken in time.
        gated: number of units that were left out in mutual silence.
        renewals: number of contexts that were begun anew.
    """

    def __init__(
        self,
        engine: OmniEngine,
        executor: Executor,
        call: TickedCall,
        *,
        settings: TickSettings | None = None,
        clock: Clock | None = None,
        by_arrival: bool = False,
    ) -> None:
        self._engine, self._call = engine, call
        self._settings = settings or TickSettings()
        self._clock: Clock = clock or LoopClock()
        self.by_arrival = by_arrival
        self._calls = EngineCalls(engine, executor, self._settings)
        self._intake = UnitIntake(engine, self._settings, by_arrival=by_arrival)
        self._state = Ticking.TAKING
        self._heard, self._resumed = asyncio.Event(), asyncio.Event()
        self._schedule: UnitSchedule | None = None
        self._gate: UnitGate | None = None
        self._units_of_context = 0
        self._speaks = False
        self.units = self.missed = self.gated = self.renewals = 0

    @property
    def buffer(self) -> UnitBuffer:
        """Audio that has arrived and was not taken."""
        return self._intake.buffer

    @property
    def sees(self) -> bool:
        """Return whether a picture would be used."""
        return self._engine.takes_frames and self._settings.frames_per_unit > 0 and not self.is_paused

    @property
    def picture_ms(self) -> float:
        """Time between two pictures that are used."""
        return self._engine.unit_ms / max(1, self._settings.frames_per_unit)

    @property
    def is_paused(self) -> bool:
        """Return whether no unit is taken."""
        return self._state is Ticking.PAUSED

    def hear(self, audio: np.ndarray) -> None:
        """Append audio of the caller; see ``UnitIntake``."""
        if not self.is_paused:
            self._intake.hear(audio)
            self._heard.set()

    def see(self, frame: np.ndarray) -> None:
        """Append a picture of the camera; see ``UnitIntake``."""
        if self.sees:
            self._intake.see(frame)

    def listen_next(self) -> None:
        """Silence the bot in the unit that contains the next audio; used with ``by_arrival``."""
        if not self.is_paused:
            self._intake.request_listening()

    async def unit_begun(self, *, within_ms: int) -> None:
        """By arrival: return when the engine has begun the unit that is whole by now, or after a time."""
        if not self.by_arrival or self.is_paused or not self._intake.has_unit:
            return
        self._calls.begun.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await self._calls.begun.wait()

    def pause(self) -> None:
        """Take no unit from here on; the current one is finished."""
        self._enter(TickEvent.PAUSED)
        self._resumed.clear()
        self._intake.clear()
        self._heard.set()

    def resume(self) -> None:
        """Continue after a pause."""
        self._enter(TickEvent.RESUMED)
        self._resumed.set()

    async def run(self, preparation: Preparation) -> None:
        """Tick until cancelled. The engine is given back in any case.

        Raises:
            EngineError: the engine failed, hangs, or gave an invalid result.
            AgentError: another refusal of the engine.
        """
        try:
            await self._calls.prepare(preparation)
            self._intake.clear()
            self._begin()
            self._call.on_prepared()
            while True:
                if self.is_paused:
                    await self._resumed.wait()
                    self._begin()
                if self._is_full():
                    await self._renew(preparation)
                due = await self._next_due()
                if not self.is_paused and self._is_wanted(due):
                    await self._unit(due)
        finally:
            await self._calls.give_back()

    def _enter(self, event: TickEvent) -> Ticking:
        """Change the state and return the one before.

        Raises:
            IllegalTransition: the event cannot happen in this state.
        """
        before = self._state
        if (before, event) not in TRANSITIONS:
            raise IllegalTransition(before.value, event.value)
        self._state = TRANSITIONS[before, event]
        return before

    def _begin(self) -> None:
        engine = self._engine
        first_ms = engine.first_unit_ms if not self.units else engine.unit_ms
        self._schedule = UnitSchedule(engine.unit_ms, first_ms, self._clock.now_us())
        self._gate = UnitGate(self._settings.gate, self._clock.now_ms())

    async def _next_due(self) -> Due:
        """Wait until a unit is due and return it."""
        assert self._schedule is not None
        if self.by_arrival:
            while not self._intake.has_unit and not self.is_paused:
                self._heard.clear()
                await self._heard.wait()
            return Due(self.units, self._clock.now_us(), 0)
        now_us = self._clock.now_us()
        left_us = self._schedule.due(now_us).at_us - now_us
        if left_us > 0:
            await asyncio.sleep(left_us / 1_000_000)
        due = self._schedule.due(self._clock.now_us())
        self._schedule.taken(due)
        return due

    def _is_wanted(self, due: Due) -> bool:
        """Return whether the gate is open; a closed one keeps the audio in which a voice may begin."""
        assert self._gate is not None
        is_active = self._speaks or self._call.has_voice()
        if self.by_arrival or self._gate.is_open(due.at_us // 1000, is_active=is_active):
            return True
        self.gated += 1 + due.missed
        self._intake.keep_before_voice()
        self._enter(TickEvent.GATE_CLOSED)
        return False

    async def _unit(self, due: Due) -> None:
        # While the gate was closed the beginning of a voice has waited: it is processed at once, unit by
        # unit.
        was_gated = self._enter(TickEvent.UNIT_BEGUN) is Ticking.GATED
        units_late = self.buffer.held_samples // self._intake.unit_samples - 1 if was_gated else 0
        for _ in range(units_late):
            await self._one(due, shortens=False)
            # Units missed before are counted once.
            due = replace(due, missed=0)
            if self.is_paused:
                return
        await self._one(due, shortens=not self.by_arrival)

    async def _one(self, due: Due, *, shortens: bool) -> None:
        began_us = self._clock.now_us()
        await self._calls.finalized()
        ready_us = self._clock.now_us()
        taken = self._intake.take(is_first=not self.units, shortens=shortens)
        forced = self._call.must_listen() or taken.must_listen
        result = await self._calls.unit(taken.heard.audio, taken.frames, must_listen=forced)
        took_us = self._clock.now_us() - began_us
        self.units += 1
        self.missed += due.missed
        self._units_of_context += 1
        self._speaks = not result.is_listen
        if not self._settings.deferred_finalize:
            self._calls.finalize()
            await self._calls.finalized()
            took_us = self._clock.now_us() - began_us
        self._call.on_result(result)
        in_ms, out_ms = self._engine.input_rate_hz / 1000, self._engine.output_rate_hz / 1000
        tick = Tick(
            slot=due.slot,
            due_us=due.at_us,
            late_us=began_us - due.at_us,
            waited_us=ready_us - began_us,
            took_us=took_us,
            missed=due.missed,
            heard_ms=round(taken.heard.heard_samples / in_ms),
            left_out_ms=round(taken.heard.left_out_samples / in_ms),
            frames=len(taken.frames),
            forced=forced,
            vote=result.vote,
            said_ms=round(len(result.audio) / out_ms),
            text=result.text,
            kv_tokens=result.kv_tokens,
        )
        self._call.on_tick(tick)
        if self._settings.deferred_finalize:
            # After the result is processed: a thread that wakes now would take the interpreter from that
            # work.
            self._calls.finalize()

    def _is_full(self) -> bool:
        most = self._engine.context_units
        if most is None or self._units_of_context < self._settings.renew_from * most:
            return False
        return self._units_of_context >= most or (not self._speaks and self._call.is_quiet())

    async def _renew(self, preparation: Preparation) -> None:
        """Begin another context with the conversation so far. The grid of units stays."""
        renewed = self._call.renewed
        await self._calls.renew(await renewed() if renewed is not None else preparation)
        self._units_of_context = 0
        self.renewals += 1
