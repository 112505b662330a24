"""Estimate how long people pause inside a turn, in general and this caller in particular.

Inputs: the lengths of the silences that were holds (the caller continued), and the silences that ended a
turn.
Output: the probability that a hold lasts longer than ``t``, with which ``boundary`` prices a wait.

The general law is a mixture of two log-normals, truncated to 0.2 to 5 s, that reproduces the share of holds
that a silence timer cuts on the English set of eot-bench (55.6, 21.7, 10 and 5 % at 0.3, 0.6, 1.0 and 1.6 s).
People differ by a factor that stretches all of their pauses (the dyad effect of Cavalcanti and Skantze,
2025). Its posterior is kept on a grid, by Bayes' rule, from the holds of this call. A hold that an answer cut
short is censored: it is only known to have been longer.

The share of pauses that are holds differs between people too, and between questions: it is counted in the
call, starting from the general share.

The module is pure; each caller has one object.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST_MS = 200
LONGEST_MS = 5_000
STEP_MS = 10
# Of the pauses of at least 100 ms in the English set of eot-bench, 705 were holds and 400 ends.
HOLD_SHARE = 705 / 1105


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Component of a mixture.

    Attributes:
        weight: share before truncation.
        median_ms: median of the component.
        sigma: standard deviation of the logarithm.
    """

    weight: float
    median_ms: float
    sigma: float


# Fitted to the silence timer's row of eot-bench; the first is a shape, not a behaviour of people.
ENGLISH = (LogNormal(0.966, 28, 1.05), LogNormal(0.034, 300, 1.15))


def waits_ms() -> np.ndarray:
    """Return the grid on which laws are tabulated: int, (steps,), from ``SHORTEST_MS`` to ``LONGEST_MS``."""
    return np.arange(SHORTEST_MS, LONGEST_MS + STEP_MS, STEP_MS)


class PauseLaw:
    """Distribution of the lengths of holds, at one length scale.

    Args:
        components: components of the mixture.
        scale: factor on the part of a length that exceeds ``SHORTEST_MS``.

    Attributes:
        survival: float, (steps,): P(a hold lasts longer) at each of ``waits_ms``, given that it reaches the
            first; 0 at the last.
    """

    def __init__(self, components: Sequence[LogNormal] = ENGLISH, *, scale: float = 1.0) -> None:
        unscaled_ms = SHORTEST_MS + (waits_ms() - SHORTEST_MS) / scale
        raw = np.array([_mixture(components, wait_ms) for wait_ms in unscaled_ms])
        self.survival = (raw - raw[-1]) / (raw[0] - raw[-1])

    def at(self, silence_ms: float) -> float:
        """Return P(a hold lasts longer), interpolated between the steps."""
        return float(np.interp(silence_ms, waits_ms(), self.survival, left=1.0, right=0.0))

    def sample(self, rng: np.random.Generator) -> float:
        """Draw a length in ms, by inversion."""
        return float(np.interp(rng.random(), self.survival[::-1], waits_ms()[::-1]))


class CallerPauses:
    """Posterior of the pauses of one caller.

    Args:
        components: components of the general law.
        spread: standard deviation of the logarithm of the factor by which callers differ; 0 learns nothing.
        grid: number of factors that are distinguished.
    """

    def __init__(
        self, components: Sequence[LogNormal] = ENGLISH, *, spread: float = 0.35, grid: int = 15
    ) -> None:
        self._log_factors, self._tables = _tables(tuple(components), spread, grid)
        steps = np.linspace(-2.5, 2.5, grid) if spread > 0 else np.zeros(1)
        self._log_weights = -steps * steps / 2
        self._learn(np.ones(len(steps)))

    @property
    def factor(self) -> float:
        """The expected factor: 1.2 means pauses a fifth longer than most people's."""
        return math.exp(float(self._weights @ self._log_factors))

    @property
    def survival(self) -> np.ndarray:
        """P(a hold of this caller lasts longer) at each of ``waits_ms``: float, (steps,)."""
        return self._survival

    def on_hold(self, silence_ms: float) -> None:
        """Learn that the caller continued after so long a silence."""
        if silence_ms >= SHORTEST_MS:
            place = min(int(silence_ms - SHORTEST_MS) // STEP_MS, self._tables.shape[1] - 2)
            self._learn(self._tables[:, place] - self._tables[:, place + 1])

    def on_cut(self, silence_ms: float) -> None:
        """Learn that the caller was answered after so much silence and would have continued."""
        place = (min(max(silence_ms, SHORTEST_MS), LONGEST_MS) - SHORTEST_MS) / STEP_MS
        below = min(int(place), self._tables.shape[1] - 2)
        share = place - below
        self._learn((1 - share) * self._tables[:, below] + share * self._tables[:, below + 1])

    def _learn(self, likelihoods: np.ndarray) -> None:
        self._log_weights = self._log_weights + np.log(np.maximum(likelihoods, 1e-12))
        weights = np.exp(self._log_weights - self._log_weights.max())
        self._weights = weights / weights.sum()
        self._survival: np.ndarray = self._weights @ self._tables


class CallerHabits:
    """Habits of one caller: how long they pause, and how often a pause is a hold.

    The share of holds is a Beta posterior: ``hold_share`` counts as ``share_weight`` pauses that were seen
    before the call. Each pause that is judged counts as one.

    Args:
        components: components of the general law.
        spread: see ``CallerPauses``; 0 learns nothing about lengths.
        hold_share: share of holds among most people's pauses.
        share_weight: the fewer, the faster the share is learnt; infinite learns none.
    """

    def __init__(
        self,
        components: Sequence[LogNormal] = ENGLISH,
        *,
        spread: float = 0.35,
        hold_share: float = HOLD_SHARE,
        share_weight: float = math.inf,
    ) -> None:
        self._pauses = CallerPauses(components, spread=spread)
        self._general = hold_share
        self._weight = share_weight
        self._holds = self._ends = 0

    @property
    def factor(self) -> float:
        """The expected factor of this caller's pauses."""
        return self._pauses.factor

    @property
    def survival(self) -> np.ndarray:
        """P(a hold of this caller lasts longer); see ``CallerPauses.survival``."""
        return self._pauses.survival

    @property
    def hold_share(self) -> float:
        """P(the next pause is a hold)."""
        if math.isinf(self._weight):
            return self._general
        seen = self._holds + self._ends
        return (self._weight * self._general + self._holds) / (self._weight + seen)

    @property
    def end_log_odds(self) -> float:
        """Prior log(P(end) / P(hold)) of a pause, before any evidence."""
        share = self.hold_share
        return math.log((1 - share) / share)

    def on_hold(self, silence_ms: float) -> None:
        """Learn that the caller continued unprompted after so long a silence."""
        self._holds += 1
        self._pauses.on_hold(silence_ms)

    def on_cut(self, silence_ms: float) -> None:
        """Learn that the turn was ended after so much silence, and the caller would have continued."""
        self._holds += 1
        self._pauses.on_cut(silence_ms)

    def on_end(self) -> None:
        """Learn that a pause was the end of the turn."""
        self._ends += 1


@functools.cache
def _tables(components: tuple[LogNormal, ...], spread: float, grid: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (log factors, (grid,); survival, (grid, steps)): the same for all callers, so computed once."""
    log_factors = spread * (np.linspace(-2.5, 2.5, grid) if spread > 0 else np.zeros(1))
    return log_factors, np.stack([PauseLaw(components, scale=math.exp(log)).survival for log in log_factors])


def _mixture(components: Sequence[LogNormal], silence_ms: float) -> float:
    """Return P(longer), before truncation."""
    return sum(
        part.weight * 0.5 * math.erfc(math.log(silence_ms / part.median_ms) / (part.sigma * math.sqrt(2)))
        for part in components
    )
