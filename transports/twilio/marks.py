"""Marks that come back: which audio was played, the delay to the caller, and the round trip alone.

A mark is sent after audio and comes back when that audio has been played. Twilio also sends outstanding marks
back on a ``clear``, and other networks never do. So a mark that comes back after a ``clear`` was dropped, and
a mark that does not come back is not awaited. Nothing here decides what was heard. The playout clock decides
that by counting the packets that left. It receives two figures of the line:

* ``delay_ms``: the time by which marks come back later than the audio before them would have been played on a
  line without delay. It covers the way to the caller, the audio that the other side holds, and the way back:
  *when* something was heard.
* ``unplayed_ms``: the same without the round trip. A ``clear`` takes the same way as the audio, so audio that
  was on its way when the ``clear`` left is played or dropped as on a line without delay. Of the audio that
  was due, only the part that the other side holds is *not heard*.

The round trip is the time that a mark takes with nothing before it (``is_alone``): it comes back at once.
Marks come back in their order, so marks sent before one that is back are lost.

Pure: times are passed in, in microseconds of any clock. When more than ``MOST_OUT`` are out, the oldest is
forgotten.
"""

import statistics
from collections import deque
from dataclasses import dataclass
from enum import Enum

MOST_OUT = 256
# The delay is the median of this many marks: one late answer does not make the line late.
LOOKED_AT = 5
# The least lateness is the minimum of this many marks.
REMEMBERED = 64
# A mark may be late by this much more than the line's delay. Beyond ``OVERDUE_MS``, audio sent after it may
# not arrive; beyond ``LOST_MS`` the mark counts as lost.
OVERDUE_MS, LOST_MS = 500, 10_000
# Delay that is assumed before the first mark is back.
ASSUMED_MS = 300


class Back(Enum):
    """Meaning of a mark that comes back."""

    PLAYED = "played"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Sent:
    """Mark that is out: the time at which the audio before it ends, and whether there is any."""

    plays_us: int
    is_alone: bool


class Marks:
    """Marks of one stream.

    Attributes:
        played, dropped, unknown: number of marks that came back, by meaning.
        lost: number of marks that never came back and are given up.
    """

    def __init__(self) -> None:
        # Marks that are out, in the order of sending.
        self._out: dict[str, _Sent] = {}
        self._cleared: dict[str, None] = {}
        self._late_us: deque[int] = deque(maxlen=REMEMBERED)
        self._trips_us: deque[int] = deque(maxlen=LOOKED_AT)
        self._sent = 0
        self.played = self.dropped = self.unknown = self.lost = 0

    @property
    def delay_ms(self) -> int | None:
        """Delay from a packet's due time to the ear, and back; None before the first mark has come back."""
        return round(self._delay_us() / 1000) if self._late_us else None

    @property
    def round_trip_ms(self) -> int | None:
        """Round trip; None before a mark without audio before it has come back."""
        return round(self._trip_us() / 1000) if self._trips_us else None

    @property
    def unplayed_ms(self) -> int:
        """Part of the audio that was due which the other side still holds; 0 while it is unknown."""
        if not self._trips_us or not self._late_us:
            return 0
        return round(max(0, self._delay_us() - self._trip_us()) / 1000)

    @property
    def excess_ms(self) -> int:
        """Lateness of the newest mark over the least late one: audio that stalled is still on the way."""
        return (self._late_us[-1] - min(self._late_us)) // 1000 if self._late_us else 0

    @property
    def out(self) -> int:
        """Number of marks that have been sent and may come back as played."""
        return len(self._out)

    @property
    def is_returned(self) -> bool:
        """True when this line sends marks back."""
        return bool(self._late_us or self._trips_us)

    def name(self) -> str:
        """Return the name for the next mark."""
        self._sent += 1
        return f"m{self._sent}"

    def sent(self, name: str, plays_us: int, *, is_alone: bool = False) -> None:
        """Record that a mark left.

        Args:
            name: name of the mark.
            plays_us: time at which the audio before it has been played.
            is_alone: no audio is before it.
        """
        self._out[name] = _Sent(plays_us, is_alone)
        while len(self._out) > MOST_OUT:
            self._lose()

    def cleared(self) -> None:
        """Record a ``clear``: the audio before all marks that are out is dropped."""
        self._cleared |= dict.fromkeys(self._out)
        self._out.clear()
        while len(self._cleared) > MOST_OUT:
            del self._cleared[next(iter(self._cleared))]
            self.lost += 1

    def overdue(self, now_us: int) -> bool:
        """Return whether the oldest mark is overdue: audio sent after it may not have arrived."""
        if not self.is_returned:
            return False
        while self._out:
            late_us = now_us - next(iter(self._out.values())).plays_us - self._usual_us()
            if late_us <= LOST_MS * 1000:
                return late_us > OVERDUE_MS * 1000
            self._lose()
        return False

    def back(self, name: str, at_us: int) -> Back:
        """Record that a mark came back; return its meaning."""
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
        # The first one may have waited for a process that was just starting: no audio took less time than the
        # round trip.
        return min(trip_us, *self._late_us) if self._late_us else trip_us

    def _usual_us(self) -> float:
        return self._delay_us() if self._late_us else self._trip_us() + ASSUMED_MS * 1000
