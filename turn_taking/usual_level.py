"""How loud is a voice beside the caller's usual one?

In: the level of each voice that was heard while the bot was silent. Out: how far a voice lies above or below
what is usual, or that nothing is usual yet. A television and somebody else in the room are softer than who
holds the telephone; the machine of interruptions believes less of what is far below (``on_level``).

The usual level is the upper quartile of the last voices that were long enough to have a level: a caller
speaks up for a sentence and not for a "yes", and what is softer and talks between the turns is not to become
usual. Voices over the bot teach nothing: an echo canceller takes some of them along.

Pure; one object for each call.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

# A shorter voice is a "yes", a cough or a chair.
LEAST_MS = 400
# Of the last voices.
VOICES = 12
QUANTILE = 0.75


@dataclass(slots=True)
class UsualLevel:
    """The usual level of one caller. Levels are dBFS."""

    _levels_db: deque[float] = field(default_factory=lambda: deque(maxlen=VOICES))

    def learn(self, level_db: float, *, voiced_ms: int) -> None:
        """A voice of so many ms was so loud, and the bot was silent."""
        if voiced_ms >= LEAST_MS:
            self._levels_db.append(level_db)

    def beside(self, level_db: float) -> float | None:
        """Decibels above the usual level; None while nothing is known of this caller."""
        if not self._levels_db:
            return None
        return level_db - float(np.quantile(list(self._levels_db), QUANTILE))
