"""Full-duplex engine that repeats what the caller said, once the caller has been silent for a while.

It decides in every unit of 80 ms whether to listen or to speak, and falls silent when the caller speaks.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from parley.core.errors import ConfigError
from parley.core.units import Vote
from parley.models.omni import OmniEngine, Preparation, UnitResult
from parley.models.omni.phases import EngineCall, Phases

RATE_HZ = 16_000
UNIT_MS = 80
UNIT_SAMPLES = RATE_HZ * UNIT_MS // 1000
# Root mean square from which a unit holds a voice, 0..1.
LOUD = 0.02
# The longest reply.
MOST_UNITS = 250


class ParrotDuplexSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the engine."""

    silence_ms: int = Field(640, ge=UNIT_MS, le=10_000, description="silence after which it repeats")


class ParrotEngine:
    """Engine of one conversation."""

    unit_ms = first_unit_ms = UNIT_MS
    input_rate_hz = output_rate_hz = RATE_HZ
    context_units: int | None = None
    takes_frames = False

    def __init__(self, settings: ParrotDuplexSettings) -> None:
        self._silent_units = settings.silence_ms // UNIT_MS
        # Enters every call first: refuses a call out of order, and makes the rest silent after ``stop``.
        self._phases = Phases()
        self._reset()

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation; a parrot has no instructions and no settings."""
        if preparation.settings:
            raise ConfigError(f"unknown settings {sorted(preparation.settings)}")
        self._phases.enter(EngineCall.PREPARE)
        self._reset()

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Hear a unit."""
        unit = self._phases.enter_prefill(audio, frames, UNIT_SAMPLES, engine="parrot_duplex")
        if unit is None:
            return
        heard, _ = unit
        self._is_voiced = bool(np.sqrt(np.mean(heard**2)) >= LOUD)
        if self._is_voiced:
            self._heard = [*self._heard[1 - MOST_UNITS :], heard.copy()]
            self._quiet = 0
        else:
            self._quiet += 1

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Repeat the next unit, or listen."""
        if not self._phases.enter(EngineCall.GENERATE):
            return UnitResult(Vote.LISTEN)
        speaks = bool(self._reply)
        if force_listen or self._is_voiced:
            self._reply = []
            return UnitResult(Vote.YIELD if speaks else Vote.LISTEN, end_of_turn=speaks)
        if not speaks and self._heard and self._quiet >= self._silent_units:
            self._reply, self._heard = self._heard, []
        if not self._reply:
            return UnitResult(Vote.LISTEN)
        audio, *self._reply = self._reply
        text = "" if speaks else "Squawk."
        return UnitResult(Vote.SPEAK, text, audio.clip(-1, 1), end_of_turn=not self._reply)

    def finalize(self) -> None:
        """End the unit."""
        self._phases.enter(EngineCall.FINALIZE)

    def stop(self) -> None:
        """Be silent until ``cleanup``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """End the conversation."""
        self._phases.enter(EngineCall.CLEANUP)
        self._reset()

    def _reset(self) -> None:
        self._heard: list[np.ndarray] = []
        self._reply: list[np.ndarray] = []
        self._quiet = 0
        self._is_voiced = False


class ParrotHost:
    """Host without weights, and without a limit of conversations."""

    sessions: int | None = None
    takes_frames = False

    def __init__(self, settings: ParrotDuplexSettings | None = None) -> None:
        self._settings = settings or ParrotDuplexSettings()

    def open_engine(self) -> OmniEngine:
        """Open an engine for one conversation."""
        return ParrotEngine(self._settings)

    def close(self) -> None:
        """Release the weights: there are none."""
