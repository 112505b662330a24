"""An omni engine that follows a script. It passes the contract of the real engines."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.phases import EngineCall, EnginePhase, Phases, checked_audio, checked_frames

TONE_HZ = 440.0


@dataclass(frozen=True, slots=True)
class OmniScript:
    """Script of the engine's behaviour.

    Attributes:
        unit_ms: length of a unit.
        votes: vote of unit n, counted from 0.
        cost_ms: time that ``generate`` takes.
        finalize_ms: time that ``finalize`` takes.
        output_rate_hz: sample rate of its tone.
        context_units: as in ``OmniEngine``.
        fails_at: unit that raises.
        hangs_at: unit that does not return before it is stopped.
        text: text of unit n, when it speaks.
        spoils: fault in the audio of each unit: NaN, another shape.
        sessions: maximum number of concurrent sessions.
    """

    unit_ms: int = 80
    votes: Callable[[int], Vote] = lambda unit: Vote.SPEAK if unit % 4 == 3 else Vote.LISTEN
    cost_ms: float = 0.0
    finalize_ms: float = 0.0
    output_rate_hz: int = 24_000
    context_units: int | None = None
    fails_at: int | None = None
    hangs_at: int | None = None
    text: Callable[[int], str] = lambda unit: f" {unit}"
    spoils: Callable[[np.ndarray], np.ndarray] = lambda audio: audio
    sessions: int | None = None


@dataclass(slots=True)
class ScriptedOmniHost:
    """Host whose engines share one script.

    Attributes:
        script: what the engines do.
        engines: engines that were opened.
    """

    script: OmniScript = field(default_factory=OmniScript)
    engines: list["ScriptedOmni"] = field(default_factory=list)
    is_closed: bool = False
    takes_frames = True

    @property
    def sessions(self) -> int | None:
        """The number of sessions of the script; None for any number."""
        return self.script.sessions

    def open_engine(self) -> "ScriptedOmni":
        """Open an engine with the host's script, as far as the number of sessions allows."""
        busy = sum(engine.is_open for engine in self.engines)
        if self.sessions is not None and busy >= self.sessions:
            raise CapacityError(f"{busy} conversations are on", limit=self.sessions)
        self.engines.append(ScriptedOmni(self.script))
        return self.engines[-1]

    def close(self) -> None:
        """Close the host; its engines stay as they are."""
        self.is_closed = True


class ScriptedOmni:
    """Engine of one conversation, which records its calls.

    Attributes:
        heard: the audio of each unit.
        seen: how many frames each unit had.
        shown: those frames.
        forced: units that had to be silent.
        prepared: how each conversation began.
        finalized: how many units were ended.
    """

    takes_frames = True
    input_rate_hz = 16_000

    def __init__(self, script: OmniScript) -> None:
        self._script = script
        self._phases = Phases()
        self.unit_ms = self.first_unit_ms = script.unit_ms
        self.output_rate_hz = script.output_rate_hz
        self.context_units = script.context_units
        self.heard: list[np.ndarray] = []
        self.seen: list[int] = []
        self.shown: list[tuple[np.ndarray, ...]] = []
        self.forced: list[int] = []
        self.prepared: list[Preparation] = []
        self.finalized = self.units = 0
        self._speaks = False
        self._phase_s = 0.0

    @property
    def is_open(self) -> bool:
        """True while a conversation is open."""
        return self._phases.phase is not EnginePhase.NEW

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation; the only setting is ``tone_hz``."""
        if unknown := set(preparation.settings) - {"tone_hz"}:
            raise ConfigError(f"unknown settings {sorted(unknown)}", known=("tone_hz",))
        self._phases.enter(EngineCall.PREPARE)
        self._tone_hz = float(preparation.settings.get("tone_hz", TONE_HZ))
        self.prepared.append(preparation)
        self.units, self._speaks, self._phase_s = 0, False, 0.0

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Record the audio and the frames of a unit."""
        before = self._phases.phase
        active = self._phases.enter(EngineCall.PREFILL)
        try:
            seen = checked_frames(tuple(frames))
            heard = checked_audio(audio, self.unit_ms * self.input_rate_hz // 1000, frames=len(seen))
        except Exception:
            self._phases.take_back(EngineCall.PREFILL, before)
            raise
        if active:
            self.heard.append(heard)
            self.seen.append(len(seen))
            self.shown.append(seen)

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Return the scripted vote of the unit, with a tone when it speaks."""
        if not self._phases.enter(EngineCall.GENERATE):
            return UnitResult(Vote.LISTEN, end_of_turn=self._speaks)
        unit, self.units = self.units, self.units + 1
        self._wait(self._script.cost_ms if unit != self._script.hangs_at else None)
        if unit == self._script.fails_at:
            raise EngineError("the script says so", engine="scripted")
        spoke, vote = self._speaks, self._script.votes(unit)
        if force_listen:
            self.forced.append(unit)
            vote = Vote.YIELD if spoke else Vote.LISTEN
        self._speaks = vote is Vote.SPEAK
        if vote in (Vote.LISTEN, Vote.YIELD) or self._phases.is_stopped:
            return UnitResult(vote if not self._phases.is_stopped else Vote.LISTEN, end_of_turn=spoke)
        return UnitResult(
            vote, text=self._script.text(unit), audio=self._script.spoils(self._tone()), n_tokens=1
        )

    def finalize(self) -> None:
        """End the unit after its scripted time."""
        if self._phases.enter(EngineCall.FINALIZE):
            self._wait(self._script.finalize_ms)
            self.finalized += 1

    def stop(self) -> None:
        """Release a call that hangs."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """End the conversation."""
        self._phases.enter(EngineCall.CLEANUP)
        self.heard.clear()
        self.seen.clear()
        self.shown.clear()

    def _wait(self, ms: float | None) -> None:
        """Block for a time; None blocks until the engine is stopped."""
        until_s = None if ms is None else time.monotonic() + ms / 1000
        while not self._phases.is_stopped and (until_s is None or time.monotonic() < until_s):
            time.sleep(0.001)

    def _tone(self) -> np.ndarray:
        samples = self.unit_ms * self.output_rate_hz // 1000
        at_s = self._phase_s + np.arange(samples) / self.output_rate_hz
        self._phase_s += samples / self.output_rate_hz
        return (0.3 * np.sin(2 * np.pi * self._tone_hz * at_s)).astype(np.float32)
