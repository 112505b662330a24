"""What marks that come back say: which audio was played, how long it takes to get there, and the way alone.

A mark is sent behind audio and comes back when that has been played. Twilio sends outstanding ones back too
when it is told to ``clear``, and others never do: so what comes back behind a ``clear`` was dropped, what
does not come back is not waited for, and nothing here decides what was heard. That is the playout clock's,
which counts what left. It is told two things of the line:

* ``delay_ms``: the time by which marks come back later than the audio before them would have been played if
  the way were no way. It is there, what the other side holds, and back again: *when* something was heard.
* ``unplayed_ms``: the same without the way there and back. A ``clear`` takes the same way as the audio, so
  what was on its way when it left is played or dropped just as if there were no way: only what the other
  side holds is *not heard* of what had its time.

The way there and back is what a mark takes that nothing is before (``is_alone``): it comes back at once.
Marks come back in their order: those before one that is back are lost.

Pure: times come in, in microseconds on any clock. Full: the oldest of ``MOST_OUT`` is forgotten.
"""

import statistics
from collections import deque
from dataclasses import dataclass
from enum import Enum

MOST_OUT = 256
# The delay is the middle of so many marks: one late answer is no late line.
LOOKED_AT = 5
# The least lateness is looked for among so many.
REMEMBERED = 64
# A mark that is late by so much more than the line's delay: what is behind it may not get there. Behind the
# second time nobody waits for it any more.
OVERDUE_MS, LOST_MS = 500, 10_000
# A line may be so late before its first mark is back.
ASSUMED_MS = 300


class Back(Enum):
    """What a mark that comes back says."""

    PLAYED = "played"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Sent:
    """One that is out: when the audio before it is played to its end, and whether there is none."""

    plays_us: int
    is_alone: bool


class Marks:
    """Of one stream.

    Attributes:
        played, dropped, unknown: how many came back, and why.
        lost: that nobody waits for any more, and that never came back.
    """

    def __init__(self) -> None:
        # In the order of sending.
        self._out: dict[str, _Sent] = {}
        self._cleared: dict[str, None] = {}
        self._late_us: deque[int] = deque(maxlen=REMEMBERED)
        self._trips_us: deque[int] = deque(maxlen=LOOKED_AT)
        self._sent = 0
        self.played = self.dropped = self.unknown = self.lost = 0

    @property
    def delay_ms(self) -> int | None:
        """From a packet's time to the ear, and back; None before the first mark has come back."""
        return round(self._delay_us() / 1000) if self._late_us else None

    @property
    def round_trip_ms(self) -> int | None:
        """There and back; None before a mark that nothing was before has come back."""
        return round(self._trip_us() / 1000) if self._trips_us else None

    @property
    def unplayed_ms(self) -> int:
        """What the other side holds of what had its time; 0 while nobody knows."""
        if not self._trips_us or not self._late_us:
            return 0
        return round(max(0, self._delay_us() - self._trip_us()) / 1000)

    @property
    def excess_ms(self) -> int:
        """How much later the newest mark was than the least late one: somebody holds what was stalled."""
        return (self._late_us[-1] - min(self._late_us)) // 1000 if self._late_us else 0

    @property
    def out(self) -> int:
        """That have been sent and may come back as played."""
        return len(self._out)

    @property
    def is_returned(self) -> bool:
        """Whether this line sends marks back."""
        return bool(self._late_us or self._trips_us)

    def name(self) -> str:
        """For the next one."""
        self._sent += 1
        return f"m{self._sent}"

    def sent(self, name: str, plays_us: int, *, is_alone: bool = False) -> None:
        """It left, behind audio that is played to its end then; ``is_alone``: nothing is before it."""
        self._out[name] = _Sent(plays_us, is_alone)
        while len(self._out) > MOST_OUT:
            self._lose()

    def cleared(self) -> None:
        """What was sent is dropped."""
        self._cleared |= dict.fromkeys(self._out)
        self._out.clear()
        while len(self._cleared) > MOST_OUT:
            del self._cleared[next(iter(self._cleared))]
            self.lost += 1

    def overdue(self, now_us: int) -> bool:
        """Whether the oldest is later than this line is: what left behind it may not have got there."""
        if not self.is_returned:
            return False
        while self._out:
            late_us = now_us - next(iter(self._out.values())).plays_us - self._usual_us()
            if late_us <= LOST_MS * 1000:
                return late_us > OVERDUE_MS * 1000
            self._lose()
        return False

    def back(self, name: str, at_us: int) -> Back:
        """One came back."""
        if name in self._out:
            while (first := next(iter(self._out))) != name:
                del self._out[first]
                self.lost += 1
            sent = self._out.pop(name)
            (self._trips_us if sent.is_alone else self._late_us).append(max(0, at_us - sent.plays_us))
            self.played += 1
            return Back.PLAYED
        if name in self._cleared:
            del self._cleared[name]
            self.dropped += 1
            return Back.DROPPED
        self.unknown += 1
        return Back.UNKNOWN

    def _lose(self) -> None:
        del self._out[next(iter(self._out))]
        self.lost += 1

    def _delay_us(self) -> float:
        return statistics.median(list(self._late_us)[-LOOKED_AT:])

    def _trip_us(self) -> float:
        trip_us = statistics.median(self._trips_us)
        # The first one may have waited for a process that was just starting: no audio was quicker than it.
        return min(trip_us, *self._late_us) if self._late_us else trip_us

    def _usual_us(self) -> float:
        return self._delay_us() if self._late_us else self._trip_us() + ASSUMED_MS * 1000
