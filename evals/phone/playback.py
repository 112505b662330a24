"""Audio heard by a caller, by the caller's own clock. Pure: packets and times in, pieces of sound out.

The other end of a line plays received packets in order, each after the one before it and none before its
arrival. A ``clear`` drops received packets that have not been played, and cuts the one that is playing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.evals.harness.phone_caller import Piece
from parley.protocols.twilio_media import RATE_HZ


@dataclass(frozen=True, slots=True)
class Played:
    """A packet, or the part of it that was heard.

    Attributes:
        starts_s: time of its first sample.
        mu_law: the part that was heard.
    """

    starts_s: float
    mu_law: bytes

    @property
    def ends_s(self) -> float:
        """Time of its last sample."""
        return self.starts_s + len(self.mu_law) / RATE_HZ


def playback(heard: Sequence[Piece], clears: Sequence[float]) -> list[Played]:
    """Return the audio that was heard in a call.

    Args:
        heard: received packets, in order.
        clears: times of ``clear``, in order.
    """
    played: list[Played] = []
    free_s, left = 0.0, list(clears)
    for piece in heard:
        while left and left[0] <= piece.at_s:
            played, free_s = _until(played, left[0]), left.pop(0)
        starts_s = max(free_s, piece.at_s)
        played.append(Played(starts_s, piece.mu_law))
        free_s = starts_s + len(piece.mu_law) / RATE_HZ
    for clear_s in left:
        played = _until(played, clear_s)
    return played


def _until(played: list[Played], clear_s: float) -> list[Played]:
    """Remove audio after a moment; only little of the end is ever dropped."""
    while played and played[-1].ends_s > clear_s:
        last = played.pop()
        whole = int((clear_s - last.starts_s) * RATE_HZ)
        if whole > 0:
            played.append(Played(last.starts_s, last.mu_law[:whole]))
            break
    return played
