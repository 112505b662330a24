"""Keep audio and pictures for an engine until a unit takes them.

By arrival, pictures and requests that the bot listens belong to the unit that contains the audio after them.
On the clock they belong to the unit that begins.
"""

from dataclasses import dataclass

import numpy as np

from parley.audio.unit_buffer import MOST_UNITS, Unit, UnitBuffer
from parley.models.omni import OmniEngine
from parley.processors.duplex.gate import Gating
from parley.processors.duplex.tick import TickSettings

# Requests to listen that lie closer together than this share of a unit are one.
REQUESTS_PER_UNIT = 10


@dataclass(frozen=True, slots=True)
class TakenUnit:
    """A unit for the engine.

    Attributes:
        heard: its audio.
        frames: pictures, oldest first.
        must_listen: True when the bot was requested to be silent in it.
    """

    heard: Unit
    frames: tuple[np.ndarray, ...]
    must_listen: bool


class UnitIntake:
    """Intake of one conversation with an engine.

    Args:
        engine: the engine that takes the units.
        settings: settings of the ticks.
        by_arrival: a unit is due when its audio has arrived.

    Attributes:
        buffer: audio that has arrived and was not taken.
        unit_samples: length of a unit.
    """

    def __init__(self, engine: OmniEngine, settings: TickSettings, *, by_arrival: bool) -> None:
        rate_hz, unit_ms, gate = engine.input_rate_hz, engine.unit_ms, settings.gate
        before_ms = 0 if gate.gating is Gating.NONE else gate.before_ms
        self._before_samples = rate_hz * before_ms // 1000
        self._first_samples = rate_hz * engine.first_unit_ms // 1000
        self._frames_per_unit, self._by_arrival = settings.frames_per_unit, by_arrival
        self.unit_samples = rate_hz * unit_ms // 1000
        self.buffer = UnitBuffer(
            self.unit_samples,
            rate_hz=rate_hz,
            # By arrival a client may be two units ahead, and a little, before one is taken.
            most_units=MOST_UNITS + 1 if by_arrival else max(MOST_UNITS, -(-before_ms // unit_ms) + 1),
            whole_units=by_arrival,
            overrun=settings.overrun,
            slack_samples=0 if by_arrival else rate_hz * min(settings.slack_ms, unit_ms) // 1000,
        )
        # Each with the number of samples that had arrived by then.
        self._frames: list[tuple[int, np.ndarray]] = []
        self._requests: list[int] = []
        self._heard_samples = 0

    @property
    def has_unit(self) -> bool:
        """Return whether a whole unit waits."""
        return self.buffer.held_samples >= self.unit_samples

    def hear(self, audio: np.ndarray) -> None:
        """Append audio: float32, (samples,), at the engine's input rate."""
        self.buffer.append(audio)
        self._heard_samples += len(audio)

    def see(self, frame: np.ndarray) -> None:
        """Append a picture: uint8, (height, width, 3).

        Twice as many as are used are kept for each unit: a client that sends so many leaves no unit without
        one, and the used ones cover the whole unit.
        """
        self._frames.append((self._heard_samples, frame))
        units = MOST_UNITS + 2 if self._by_arrival else 1
        del self._frames[: -2 * units * self._frames_per_unit]

    def request_listening(self) -> None:
        """Request that the bot is silent in the unit that contains the next audio."""
        near = self.unit_samples // REQUESTS_PER_UNIT
        if not self._requests or self._heard_samples - self._requests[-1] >= near:
            self._requests.append(self._heard_samples)

    def clear(self) -> None:
        """Forget everything that was not taken."""
        self.buffer.clear()
        self._frames.clear()
        self._requests.clear()

    def keep_before_voice(self) -> None:
        """Forget audio in which no voice can have begun."""
        self.buffer.keep(self._before_samples)

    def take(self, *, is_first: bool, shortens: bool) -> TakenUnit:
        """Return the unit that begins."""
        unit = self.buffer.take(self._first_samples if is_first else None, shortens=shortens)
        # A picture from after its last sample belongs to the next one.
        held = self.buffer.held_samples if self._by_arrival else -1
        ends = self._heard_samples - held
        frames = [frame for place, frame in self._frames if place < ends]
        self._frames = [each for each in self._frames if each[0] >= ends]
        must_listen = any(place < ends for place in self._requests)
        self._requests = [place for place in self._requests if place >= ends]
        # The newest, and then every other one where there are more than are used.
        most = self._frames_per_unit
        step = 2 if len(frames) > most else 1
        return TakenUnit(unit, tuple(frames[::-step][:most][::-1]), must_listen)
