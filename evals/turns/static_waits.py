"""Static endpoint policies: one threshold on a score, one delay above it and one timeout below it.

``best_waits`` finds the best of all, on the very calls on which it is reported. This favours the baseline.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parley.turn_taking.endpointing.endpointer import EndpointTuning, TurnSilence
from parley.turn_taking.endpointing.pauses import SHORTEST_MS

# eot-bench's own grid is 100 ms; a finer one finds a better static policy.
DELAYS_MS = range(SHORTEST_MS, 1_001, 20)
TIMEOUTS_MS = range(400, 3_501, 50)
THRESHOLDS = 49


@dataclass(frozen=True, slots=True)
class StaticRule:
    """Threshold, delay and timeout of a static policy.

    Attributes:
        threshold: log odds from which on the turn counts as complete.
        delay_ms: wait of a complete turn.
        timeout_ms: wait of any other turn.
    """

    threshold: float
    delay_ms: int
    timeout_ms: int


class StaticPolicy(TurnSilence):
    """Policy that waits the delay once a score has reached the threshold, and the timeout otherwise."""

    def __init__(self, rule: StaticRule) -> None:
        self._rule = rule
        self._reached = False
        super().__init__(EndpointTuning())

    def on_voice_started(self, at_ms: int) -> None:
        """Record that the caller speaks again: the score of the next pause counts."""
        super().on_voice_started(at_ms)
        self._reached = False

    def wait_ms(self) -> int:
        """Return delay or timeout. The score is not judged before the words of this pause have arrived."""
        if self._transcript_due_ms is None:
            self._reached = self._reached or self._log_odds() >= self._rule.threshold
        return self._rule.delay_ms if self._reached else self._rule.timeout_ms

    def _log_odds(self) -> float:
        if self._completeness is None:
            return -math.inf
        return math.log(self._completeness / (1 - self._completeness))


@dataclass(frozen=True, slots=True)
class Columns:
    """All silences of all calls as arrays, for the search through static policies.

    Attributes:
        last_ms: float, (silences,): a wait up to here cuts the hold; infinite at an end.
        looks: float, (silences, looks): log odds as they are known at each look.
    """

    last_ms: np.ndarray
    looks: np.ndarray


@dataclass(frozen=True, slots=True)
class BestRule(StaticRule):
    """Best static policy on some scores.

    Attributes:
        mean_ms: mean wait at the ends.
    """

    mean_ms: float


def best_waits(seen: Columns, last_look_ms: int, rates: Sequence[float]) -> dict[float, BestRule]:
    """Return for each rate the static waits with the lowest mean that cut no more; none where none do.

    Args:
        seen: log odds of every silence at each look.
        last_look_ms: time at which the last of them is known. A threshold that is first reached at a later
            look than the first counts from then on.
        rates: shares of holds that may be cut.
    """
    holds = np.isfinite(seen.last_ms)
    delays, timeouts = np.array(DELAYS_MS), np.array(TIMEOUTS_MS)
    later = np.maximum(delays, last_look_ms)
    # A timeout below the delay would be another threshold.
    impossible = timeouts[None] < later[:, None]
    least: dict[float, BestRule] = {}
    for threshold in np.quantile(seen.looks[:, 0], np.linspace(0.01, 0.99, THRESHOLDS)):
        early = seen.looks[:, 0] >= threshold
        late = (seen.looks >= threshold).any(axis=1) & ~early
        waits = ((early, delays), (late, later), (~early & ~late, timeouts))
        cut_early, cut_late, cut_open = (
            _longer(seen.last_ms[kind & holds], wait_ms) for kind, wait_ms in waits
        )
        share_early, share_late, share_open = (kind[~holds].mean() for kind, _ in waits)
        cut = ((cut_early + cut_late)[:, None] + cut_open[None]) / holds.sum()
        mean_ms = (share_early * delays + share_late * later)[:, None] + share_open * timeouts[None]
        for rate in rates:
            allowed = np.where(impossible | (cut > rate), np.inf, mean_ms)
            place = np.unravel_index(int(np.argmin(allowed)), allowed.shape)
            mean = float(allowed[place])
            if math.isfinite(mean) and (rate not in least or mean < least[rate].mean_ms):
                least[rate] = BestRule(float(threshold), int(delays[place[0]]), int(timeouts[place[1]]), mean)
    return least


def _longer(last_ms: np.ndarray, waits_ms: np.ndarray) -> np.ndarray:
    """Return the number of holds that each wait cuts: int, (waits,)."""
    return len(last_ms) - np.searchsorted(np.sort(last_ms), waits_ms, side="right")
