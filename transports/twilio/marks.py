"""What marks that come back say: which audio was played, and how long it takes to get there.

A mark is sent behind audio and comes back when that has been played. Twilio sends outstanding ones back too
when it is told to ``clear``, and others never do: so what comes back behind a ``clear`` was dropped, what
does not come back is not waited for, and nothing here decides what was heard. That is the playout clock's,
which counts what left; marks correct its delay (``delay_ms``): the time by which they come back later than
the audio before them would have been played if the way were no way. The way back is in it, some 20 ms that
a listener hears sooner.

Pure: times come in, in microseconds on any clock. Full: the oldest of ``MOST_OUT`` is forgotten.
"""

import statistics
from collections import deque
from enum import Enum

MOST_OUT = 256
# The delay is the middle of so many marks: one late answer is no late line.
LOOKED_AT = 5


class Back(Enum):
    """What a mark that comes back says."""

    PLAYED = "played"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


class Marks:
    """Of one stream.

    Attributes:
        played, dropped, unknown: how many came back, and why.
        lost: that nobody waits for any more, and that never came back.
    """

    def __init__(self) -> None:
        # When the audio before each is played to its end, in the order of sending.
        self._out: dict[str, int] = {}
        self._cleared: dict[str, None] = {}
        self._late_us: deque[int] = deque(maxlen=LOOKED_AT)
        self._sent = 0
        self.played = self.dropped = self.unknown = self.lost = 0

    @property
    def delay_ms(self) -> int | None:
        """From a packet's time to the ear; None before the first mark has come back."""
        return round(statistics.median(self._late_us) / 1000) if self._late_us else None

    @property
    def out(self) -> int:
        """That have been sent and may come back as played."""
        return len(self._out)

    def name(self) -> str:
        """For the next one."""
        self._sent += 1
        return f"m{self._sent}"

    def plays_us(self, name: str) -> int | None:
        """When the audio before it is played to its end; None for one that has not been sent, or is back."""
        return self._out.get(name)

    def is_out(self, name: str) -> bool:
        """Whether it has been sent, or is to be, and has not come back."""
        return name in self._out

    def sent(self, name: str, plays_us: int) -> None:
        """It left, behind audio that is played to its end then."""
        self._out[name] = plays_us
        while len(self._out) > MOST_OUT:
            del self._out[next(iter(self._out))]
            self.lost += 1

    def cleared(self) -> None:
        """What was sent is dropped."""
        self._cleared |= dict.fromkeys(self._out)
        self._out.clear()
        while len(self._cleared) > MOST_OUT:
            del self._cleared[next(iter(self._cleared))]
            self.lost += 1

    def back(self, name: str, at_us: int) -> Back:
        """One came back."""
        plays_us = self._out.pop(name, None)
        if plays_us is not None:
            self._late_us.append(max(0, at_us - plays_us))
            self.played += 1
            return Back.PLAYED
        if name in self._cleared:
            del self._cleared[name]
            self.dropped += 1
            return Back.DROPPED
        self.unknown += 1
        return Back.UNKNOWN
