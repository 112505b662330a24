"""Pacing of a stretch of speech sent to a caller. Pure: packets with times in, figures out.

The ideal is a grid: audio that lies ``t`` into the stretch comes ``t`` after its beginning, whatever the size
of the packets; a burst is as wrong as a hole. The median places the grid, so a sender that is ahead by a
constant is not wrong. ``starved_ms`` is the time without sound of a listener who plays audio at once: the
lateness of packets after the end of the audio before them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parley.evals.harness.phone_caller import Piece
from parley.evals.harness.phone_speech import is_speech
from parley.protocols.twilio_media import RATE_HZ


@dataclass(frozen=True, slots=True)
class Pacing:
    """Pacing of a stretch.

    Attributes:
        errors_ms: of each packet, distance of its arrival from the grid.
        gaps_ms: from each packet to the next.
        audio_s: length of the received audio.
        starved_ms: see the module.
    """

    errors_ms: list[float]
    gaps_ms: list[float]
    audio_s: float
    starved_ms: float


def pacing(came: Sequence[Piece], from_s: float, to_s: float) -> Pacing | None:
    """Return the pacing in this part of a stretch, or None when nothing came.

    Args:
        came: all of the call, in order. Comfort noise before its first speech is no part of it.
        from_s: begin of the measurement.
        to_s: end of the measurement.
    """
    first = next((place for place, piece in enumerate(came) if is_speech(piece.mu_law)), len(came))
    at_s = np.array([piece.at_s for piece in came[first:]])
    lengths_s = np.array([len(piece.mu_law) for piece in came[first:]]) / RATE_HZ
    inside = (at_s >= from_s) & (at_s < to_s)
    if not inside.any():
        return None
    places_s = np.cumsum(lengths_s) - lengths_s
    early_s = (at_s - places_s)[inside]
    errors_ms = np.abs(early_s - np.median(early_s)) * 1000
    plays_until_s, starved_s = at_s[0], 0.0
    for now_s, length_s, counts in zip(at_s, lengths_s, inside, strict=True):
        starved_s += max(0.0, now_s - plays_until_s) if counts else 0.0
        plays_until_s = max(plays_until_s, now_s) + length_s
    return Pacing(
        [float(error) for error in errors_ms],
        [float(gap) for gap in np.diff(at_s[inside]) * 1000],
        float(lengths_s[inside].sum()),
        float(starved_s * 1000),
    )
