"""Buffer of unread audio: takes pieces of any length, returns units of one length.

A model that is ticked takes a unit at a time, and neither it nor the network keeps exact time. When a unit is
due, the buffer holds:

* a little more than a unit (up to ``slack_samples``): the oldest unit is taken and the rest stays;
* more, because a tick was late or the sender is too fast: the audio is shortened to one unit. ``DROP`` leaves
  out the oldest audio, ``MERGE`` the quietest pieces of 10 ms of all of it, so that pauses go and words stay;
* less, because the sender is late: the audio is padded with silence, and the rest comes with the next unit.

The buffer never holds more than ``most_units``. Older audio is lost, in whole units for an owner that counts
them (``whole_units``). All omitted audio is counted.

Pure. Appending copies; taking a unit that was not late costs no more than its length.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

import numpy as np

from parley.core.errors import ShapeError

# One unit may wait when another is due; audio beyond two is never worth keeping.
MOST_UNITS = 2
PIECES_PER_S = 100


class Overrun(Enum):
    """Treatment of more audio than a unit takes."""

    DROP = "drop"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Unit:
    """Audio of one unit.

    Attributes:
        audio: float32, (unit_samples,), in [-1, 1].
        heard_samples: number of received samples; the rest is silence after them.
        left_out_samples: number of received samples before or between them that were left out.
    """

    audio: np.ndarray
    heard_samples: int
    left_out_samples: int


class UnitBuffer:
    """Unit buffer of one caller. Not thread-safe.

    Args:
        unit_samples: length of a unit.
        rate_hz: rate of the audio.
        overrun: treatment of more audio than a unit takes.
        slack_samples: audio beyond a unit that is tolerated.
        most_units: capacity, in units.
        whole_units: drop audio in whole units.

    Attributes:
        left_out_samples: number of samples that were never taken.
        missing_samples: number of samples of silence that were added because no audio had come.
    """

    def __init__(
        self,
        unit_samples: int,
        *,
        rate_hz: int,
        overrun: Overrun = Overrun.MERGE,
        slack_samples: int = 0,
        most_units: int = MOST_UNITS,
        whole_units: bool = False,
    ) -> None:
        if unit_samples < 1 or slack_samples < 0 or most_units < 1:
            raise ShapeError("expected a unit of at least one sample, and at least one unit kept")
        self._unit, self._slack = unit_samples, slack_samples
        self._piece = max(1, rate_hz // PIECES_PER_S)
        self._overrun = overrun
        self._most = most_units * unit_samples + slack_samples
        self._step = unit_samples if whole_units else 1
        self._parts: deque[np.ndarray] = deque()
        self._held = self._lost = 0
        self.left_out_samples = self.missing_samples = 0

    @property
    def held_samples(self) -> int:
        """Number of samples that have come and were not taken."""
        return self._held

    def append(self, audio: np.ndarray) -> None:
        """Append float32, (samples,), in [-1, 1].

        Raises:
            ShapeError: another shape or dtype.
        """
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise ShapeError(f"expected float32, (samples,), got {audio.dtype}, {audio.shape}")
        if not len(audio):
            return
        self._parts.append(audio.copy())
        self._held += len(audio)
        self._forget(self._held - self._most)

    def take(self, unit_samples: int | None = None, *, shortens: bool = True) -> Unit:
        """Return the unit that is due.

        Args:
            unit_samples: its length, where it differs from the usual one (a first unit).
            shortens: shorten surplus audio to the unit; otherwise it waits.
        """
        wanted = self._unit if unit_samples is None else unit_samples
        if shortens and self._held > wanted + self._slack:
            audio = self._shortened(self._all(), wanted)
        else:
            audio = self._first(wanted)
        heard, lost = len(audio), self._lost
        self._lost = 0
        self.missing_samples += wanted - heard
        if heard < wanted:
            audio = np.concatenate((audio, np.zeros(wanted - heard, np.float32)))
        return Unit(audio, heard, lost)

    def keep(self, samples: int) -> None:
        """Discard all but the newest ``samples``, without counting them."""
        if self._held > samples:
            self._first(self._held - samples)

    def clear(self) -> None:
        """Discard all audio, without counting it."""
        self._parts.clear()
        self._held = self._lost = 0

    def _all(self) -> np.ndarray:
        return self._first(self._held)

    def _first(self, samples: int) -> np.ndarray:
        taken: list[np.ndarray] = []
        left = min(samples, self._held)
        self._held -= left
        while left:
            part = self._parts.popleft()
            if len(part) > left:
                self._parts.appendleft(part[left:])
                part = part[:left]
            taken.append(part)
            left -= len(part)
        return np.concatenate(taken) if taken else np.zeros(0, np.float32)

    def _forget(self, samples: int) -> None:
        if samples > 0:
            samples = -(-samples // self._step) * self._step
            self._first(samples)
            self._count(samples)

    def _count(self, samples: int) -> None:
        self._lost += samples
        self.left_out_samples += samples

    def _shortened(self, audio: np.ndarray, wanted: int) -> np.ndarray:
        """Return the audio shortened to ``wanted`` samples, and count the rest."""
        surplus = len(audio) - wanted
        self._count(surplus)
        if self._overrun is Overrun.DROP:
            return audio[surplus:]
        whole = len(audio) // self._piece * self._piece
        pieces = audio[:whole].reshape(-1, self._piece)
        power = np.einsum("ij,ij->i", pieces, pieces)
        # As many of the quietest pieces as are needed, the last one in part; the oldest of equal ones.
        out = np.sort(np.argsort(power, kind="stable")[: -(-surplus // self._piece)])
        stays = np.ones(len(audio), dtype=bool)
        for place in out:
            stays[place * self._piece : (place + 1) * self._piece] = False
        kept = audio[stays]
        if len(kept) < wanted:
            # The last piece left out was longer than the surplus: its end stays.
            last = int(out[-1])
            back = wanted - len(kept)
            stays[(last + 1) * self._piece - back : (last + 1) * self._piece] = True
            kept = audio[stays]
        return kept
