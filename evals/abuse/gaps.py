"""Gaps in the audio that a caller receives. Pure: arrival times and lengths in, milliseconds out.

A gap is the time from one piece of audio to the next, less the length of the first. It is 0 on a line that
gets each piece when the last one has been played. A server gets no credit for sending ahead of time: the same
stall is the same figure on every transport.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece of audio.

    Attributes:
        at_s: time of arrival, on the caller's monotonic clock.
        length_s: of its sound.
    """

    at_s: float
    length_s: float


def gaps_ms(stretch: Sequence[Arrival]) -> list[float]:
    """Return the gap after each piece but the last of one stretch of speech, none below 0."""
    return [
        max(0.0, (later.at_s - earlier.at_s - earlier.length_s) * 1000)
        for earlier, later in zip(stretch, stretch[1:], strict=False)
    ]


def largest_ms(stretches: Sequence[Sequence[Arrival]]) -> float | None:
    """Return the largest gap of several stretches; None when no stretch has two pieces.

    The silence between two stretches is intended, and no gap.
    """
    found = [gap for stretch in stretches for gap in gaps_ms(stretch)]
    return max(found) if found else None
