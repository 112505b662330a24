"""Places of a bot's backchannels against those of listeners: the distance of Full-Duplex-Bench, calibrated.

The (Jensen-Shannon) distance falls with the number of a bot's backchannels and hardly depends on their
places. Each bot is therefore compared with two others that hum as often and as long. The first hums at random
places. The second has the listeners' places and chooses the best (greedily, one after the other). ``skill``
is the share of the way from the first to the second: 0 is chance, 1 is the best that this number of
backchannels can reach.

Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parley.evals.duplex_bench.spoken import Spoken, is_backchannel

BIN_MS = 200
# A longer stretch is a turn whatever its content; every shorter one counts as a backchannel.
LONGEST_MS = 3_000
NEARLY_NOTHING = 1e-10
# The benchmark's value for a bot that never hums: above the maximum of the distance, sqrt(ln 2).
NO_HUM = 1.0
DRAWS = 100
# Resolution of the search for the best places, and number of passes over them.
STEP_MS, PASSES = 100, 2


@dataclass(frozen=True, slots=True)
class Listened:
    """Behaviour of a bot that listens to a clip.

    Attributes:
        takes_turn: true when it took the floor.
        hums: (begin, end) of each, ms.
        length_ms: of the clip.
    """

    takes_turn: bool
    hums: tuple[tuple[int, int], ...]
    length_ms: int


def listened(spoken: Spoken) -> Listened:
    """Return the behaviour of a listening bot: a turn when any stretch is no backchannel, and its
    backchannels.

    The benchmark lets each later stretch overwrite the verdict of the earlier ones; here one turn is a turn.
    """
    turn = any(not is_backchannel(each, spoken.words_in(each)) for each in spoken.segments)
    hums = tuple((each.began_ms, each.ended_ms) for each in spoken.segments if each.length_ms <= LONGEST_MS)
    return Listened(turn, hums, spoken.length_ms)


def histogram(hums: Sequence[tuple[int, int]], bins: int) -> np.ndarray:
    """Return the number of backchannels over each bin of 0.2 s: float64, (bins,)."""
    counts = np.zeros(bins)
    for began_ms, ended_ms in hums:
        counts[began_ms // BIN_MS : max(began_ms + 1, ended_ms - 1) // BIN_MS + 1] += 1
    return counts


def resampled(shares: Sequence[float], bins: int) -> np.ndarray:
    """Resample a distribution linearly to another number of bins: float64, (bins,), sums to 1."""
    given = np.asarray(shares, np.float64)
    if len(given) != bins:
        given = np.interp(np.linspace(0, len(given) - 1, bins), np.arange(len(given)), given)
    total = given.sum()
    return given / total if total else np.full(bins, 1 / bins)


def distance(counts: np.ndarray, shares: np.ndarray) -> float:
    """Return the square root of the Jensen-Shannon divergence, natural logarithm: 0 to sqrt(ln 2)."""
    one, other = (values + NEARLY_NOTHING for values in (counts, shares))
    one, other = one / one.sum(), other / other.sum()
    middle = (one + other) / 2
    divergence = (np.sum(one * np.log(one / middle)) + np.sum(other * np.log(other / middle))) / 2
    return math.sqrt(max(0.0, float(divergence)))


def jsd(hums: Sequence[tuple[int, int]], shares: Sequence[float], length_ms: int) -> float:
    """Return the distance of a bot with these backchannels; 1.0 without any, as in the benchmark."""
    if not hums:
        return NO_HUM
    bins = max(1, -(-length_ms // BIN_MS))
    return distance(histogram(hums, bins), resampled(shares, bins))


def random_jsd(
    hums: Sequence[tuple[int, int]], shares: Sequence[float], length_ms: int, rng: np.random.Generator
) -> float:
    """Return the mean distance of as many and as long backchannels at random places."""
    if not hums:
        return NO_HUM
    lengths_ms = [ended_ms - began_ms for began_ms, ended_ms in hums]
    found = []
    for _ in range(DRAWS):
        begins_ms = [int(rng.integers(max(1, length_ms - each))) for each in lengths_ms]
        found.append(
            jsd(
                [(begin, begin + each) for begin, each in zip(begins_ms, lengths_ms, strict=True)],
                shares,
                length_ms,
            )
        )
    return float(np.mean(found))


def oracle_jsd(hums: Sequence[tuple[int, int]], shares: Sequence[float], length_ms: int) -> float:
    """Return the distance of as many and as long backchannels at the best places, found one by
    one in passes.
    """
    if not hums:
        return NO_HUM
    bins = max(1, -(-length_ms // BIN_MS))
    truth = resampled(shares, bins)
    lengths_ms = sorted((ended_ms - began_ms for began_ms, ended_ms in hums), reverse=True)
    placed = [np.zeros(bins) for _ in lengths_ms]
    best = NO_HUM
    for _ in range(PASSES):
        for place, hum_ms in enumerate(lengths_ms):
            others = np.sum(placed, axis=0) - placed[place]
            tried = [
                (distance(others + one, truth), one)
                for begin_ms in range(0, max(1, length_ms - hum_ms), STEP_MS)
                for one in (histogram([(begin_ms, begin_ms + hum_ms)], bins),)
            ]
            best, placed[place] = min(tried, key=lambda each: each[0])
    return best


def skill(found: float, by_chance: float, at_best: float) -> float | None:
    """Return the share of the way from chance to the best; None when the two do not differ."""
    room = by_chance - at_best
    return (by_chance - found) / room if room > 1e-6 else None
