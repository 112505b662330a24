"""Where a bot hums beside where listeners do: the distance of Full-Duplex-Bench, and what it is worth.

The (Jensen-Shannon) distance falls with how much a bot hums, hardly with when. So each bot is put beside
two that hum as often and as long: one whose places are drawn, and one who knows where listeners hum and
places them best (greedily, one after the other). ``skill`` is how much of the way from the first to the
second it goes: 0 is chance, 1 is all that so many hums can reach.

Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.duplex_bench.spoken import Spoken, is_backchannel

BIN_MS = 200
# A stretch of more is a turn whatever is in it; every shorter one counts as a hum.
LONGEST_MS = 3_000
NEARLY_NOTHING = 1e-10
# The benchmark's value for a bot that never hums: above what the distance can reach, sqrt(ln 2).
NO_HUM = 1.0
DRAWS = 100
# How finely the best places are looked for, and how often each is looked for again.
STEP_MS, PASSES = 100, 2


@dataclass(frozen=True, slots=True)
class Listened:
    """A bot that listens to one clip.

    Attributes:
        takes_turn: whether it took the floor.
        hums: (begin, end) of each, ms.
        length_ms: of the clip.
    """

    takes_turn: bool
    hums: tuple[tuple[int, int], ...]
    length_ms: int


def listened(spoken: Spoken) -> Listened:
    """How a bot listens: whether any stretch of its voice is no backchannel, and its hums.

    The benchmark lets each later stretch overwrite the verdict of those before; here one turn is a turn.
    """
    turn = any(not is_backchannel(each, spoken.words_in(each)) for each in spoken.segments)
    hums = tuple((each.began_ms, each.ended_ms) for each in spoken.segments if each.length_ms <= LONGEST_MS)
    return Listened(turn, hums, spoken.length_ms)


def histogram(hums: Sequence[tuple[int, int]], bins: int) -> np.ndarray:
    """How many hums lie over each bin of 0.2 s: float64, (bins,)."""
    counts = np.zeros(bins)
    for began_ms, ended_ms in hums:
        counts[began_ms // BIN_MS : max(began_ms + 1, ended_ms - 1) // BIN_MS + 1] += 1
    return counts


def resampled(shares: Sequence[float], bins: int) -> np.ndarray:
    """A distribution with another number of bins, linearly: float64, (bins,), sums to 1."""
    given = np.asarray(shares, np.float64)
    if len(given) != bins:
        given = np.interp(np.linspace(0, len(given) - 1, bins), np.arange(len(given)), given)
    total = given.sum()
    return given / total if total else np.full(bins, 1 / bins)


def distance(counts: np.ndarray, shares: np.ndarray) -> float:
    """The square root of the Jensen-Shannon divergence, natural logarithm: 0 to sqrt(ln 2)."""
    one, other = (values + NEARLY_NOTHING for values in (counts, shares))
    one, other = one / one.sum(), other / other.sum()
    middle = (one + other) / 2
    divergence = (np.sum(one * np.log(one / middle)) + np.sum(other * np.log(other / middle))) / 2
    return math.sqrt(max(0.0, float(divergence)))


def jsd(hums: Sequence[tuple[int, int]], shares: Sequence[float], length_ms: int) -> float:
    """The distance of a bot that hums here; 1.0 of one that never does, as in the benchmark."""
    if not hums:
        return NO_HUM
    bins = max(1, -(-length_ms // BIN_MS))
    return distance(histogram(hums, bins), resampled(shares, bins))


def random_jsd(
    hums: Sequence[tuple[int, int]], shares: Sequence[float], length_ms: int, rng: np.random.Generator
) -> float:
    """The mean distance of as many and as long hums at places that are drawn."""
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
    """The distance of as many and as long hums at the best places, taken one after the other, then again."""
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
    """How far from chance to the best; None where nothing can be told apart."""
    room = by_chance - at_best
    return (by_chance - found) / room if room > 1e-6 else None
