"""Audio of a recorded caller as the call heard it, for a replay. Pure.

A track has sounds at their places on the time line. On a busy machine that is not what detectors heard: the
lateness of a piece is silence in the track, and quiet pieces are left out when the source catches up
(``track``). Both are seams. Detectors count samples, so a replay needs the stream without them.

A piece can be late and cannot be early: lateness that is made up for later was none of the caller's, and what
remains of it to the end was a pause in which nothing came.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class HeardAudio:
    """Audio as it was heard.

    Attributes:
        samples: float32 in [-1, 1], (samples,).
        pauses: places in it before which nothing came for a time, each with that length, in samples.
    """

    samples: np.ndarray
    pauses: tuple[tuple[int, int], ...] = ()


def as_heard(samples: np.ndarray, seams: Sequence[tuple[int, int]]) -> HeardAudio:
    """Return the audio of a track without its seams.

    Args:
        samples: track, float32 in [-1, 1], (samples,).
        seams: of it (``SideTrack.seams``); those that are no part of it are left out.
    """
    parts, end, length = list[np.ndarray](), 0, 0
    # Place in what was heard, and how much later than the first sample's the time of what follows is.
    behind, offsets = 0, list[tuple[int, int]]()
    left = len(samples)
    for place, count in sorted(seams, key=lambda seam: seam[0]):
        begins = place - max(count, 0)
        if begins < end or place > len(samples) or -count > left:
            continue
        parts.append(samples[end:begins])
        length += begins - end
        if count < 0:
            # It was quiet.
            parts.append(np.zeros(-count, samples.dtype))
            length -= count
            left += count
        behind += count
        offsets.append((length, behind))
        end = place
    parts.append(samples[end:])
    return HeardAudio(np.concatenate(parts), _pauses(offsets))


def _pauses(offsets: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    kept, least = list[tuple[int, int]](), None
    for place, behind in reversed(offsets):
        least = max(0, behind if least is None else min(least, behind))
        kept.append((place, least))
    pauses, before = list[tuple[int, int]](), 0
    for place, behind in reversed(kept):
        if behind > before:
            pauses.append((place, behind - before))
        before = behind
    return tuple(pauses)
