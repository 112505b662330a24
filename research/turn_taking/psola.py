"""Change of length and melody of a stretch of speech, by TD-PSOLA.

Moulines and Charpentier (Speech Communication 9, 1990): the voice is cut into grains of two periods around
pitch marks. Repeated grains make it longer; grains at other distances give another pitch. Unvoiced sound is
laid down in grains of a fixed length at its own distances.

Pure numpy, for speech that an evaluation makes: its quality is sufficient for a model that listens, and no
better.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parley.turn_taking.endpointing.evidence_pitch import HOP_MS, pitch_hz

# Length of grains in unvoiced sound.
UNVOICED_S = 0.01
# A pitch mark is searched for within this distance of the end of the last period, in periods.
REACH = 0.25


@dataclass(frozen=True, slots=True)
class Grain:
    """Two periods around a mark.

    Attributes:
        at: sample of the mark.
        period: samples from one mark to the next.
        voiced: true when the pitch can be changed.
    """

    at: int
    period: int
    voiced: bool


def grains(sound: np.ndarray, rate_hz: int) -> list[Grain]:
    """Return the grains of ``sound`` in order; ``sound`` is float32, (samples,)."""
    hertz = pitch_hz(sound, rate_hz)
    hop = HOP_MS * rate_hz // 1000
    found: list[Grain] = []
    at = 0
    while at < len(sound):
        frame = min(at // hop, len(hertz) - 1)
        if frame < 0 or not np.isfinite(hertz[frame]):
            found.append(Grain(at, round(UNVOICED_S * rate_hz), voiced=False))
        else:
            period = round(rate_hz / hertz[frame])
            follows = bool(found) and found[-1].voiced
            first = max(0, at - round(REACH * period)) if follows else at
            last = min(len(sound), at + (round(REACH * period) + 1 if follows else period))
            mark = first + int(np.argmax(sound[first:last]))
            found.append(Grain(max(mark, found[-1].at + 1) if found else mark, period, voiced=True))
        at = found[-1].at + found[-1].period
    return found


def resynthesise(
    sound: np.ndarray,
    rate_hz: int,
    samples: int,
    source: Callable[[float], float],
    pitch: Callable[[float], float],
) -> np.ndarray:
    """Return ``sound`` with another length and melody: float32, (samples,).

    Args:
        sound: float32, (any length,).
        rate_hz: of both.
        samples: of the result.
        source: maps a sample of the result to a sample of ``sound``. It must not fall.
        pitch: factor of the pitch at a sample of ``sound``.
    """
    pieces = grains(sound, rate_hz)
    marks = np.array([grain.at for grain in pieces])
    longest = max(grain.period for grain in pieces)
    made, weight = np.zeros(samples + 2 * longest + 1), np.zeros(samples + 2 * longest + 1)
    at = 0.0
    while at < samples:
        place = source(at)
        grain = pieces[_nearest(marks, place)]
        reach = grain.period
        first, last = max(0, grain.at - reach), min(len(sound), grain.at + reach + 1)
        window = np.hanning(2 * reach + 3)[1:-1][first - (grain.at - reach) : last - (grain.at - reach)]
        # Everything is laid down ``longest`` samples late, so that no grain begins before the array.
        to = round(at) + longest - (grain.at - first)
        made[to : to + last - first] += window * sound[first:last]
        weight[to : to + last - first] += window
        at += grain.period / pitch(place) if grain.voiced else grain.period
    # Where grains hardly overlap, division by the small weight would amplify noise.
    whole = made / np.maximum(weight, 0.3)
    return whole[longest : longest + samples].astype(np.float32)


def _nearest(marks: np.ndarray, place: float) -> int:
    right = int(np.searchsorted(marks, place))
    if right == 0:
        return 0
    if right == len(marks):
        return right - 1
    return right if marks[right] - place < place - marks[right - 1] else right - 1
