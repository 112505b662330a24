"""Compare the level of a voice with the caller's usual one.

Input: the level of each voice while the bot was silent. Output: how far a voice lies above or below the usual
level, or that none is known yet. A television and another person in the room are softer than the caller at
the telephone; the barge-in machine gives less weight to a voice far below the usual level (``on_level``).

The usual level is the upper quartile of the last voices that were long enough to have a level. A caller
speaks up for a sentence and not for a "yes", and a softer voice that talks between the turns must not become
usual. Voices over the bot are not learnt: an echo canceller removes part of some of them.

The module is pure; each call has one object.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

# A shorter voice is a "yes", a cough or a chair.
LEAST_MS = 400
# Number of last voices that are considered.
VOICES = 12
QUANTILE = 0.75


@dataclass(slots=True)
class SpeakerLevel:
    """The usual level of one caller. Levels are dBFS."""

    _levels_db: deque[float] = field(default_factory=lambda: deque(maxlen=VOICES))

    def learn(self, level_db: float, *, voiced_ms: int) -> None:
        """Add the level of a voice of ``voiced_ms``, during which the bot was silent."""
        if voiced_ms >= LEAST_MS:
            self._levels_db.append(level_db)

    def above_usual_db(self, level_db: float) -> float | None:
        """Return the decibels above the usual level; None while nothing is known of this caller."""
        if not self._levels_db:
            return None
        return level_db - float(np.quantile(list(self._levels_db), QUANTILE))
