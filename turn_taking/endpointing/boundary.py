"""Choose the wait that costs least: a boundary in time and score.

Suppose a silence is the end of the turn with probability ``p``. A wait of ``t`` costs ``p * t``, since every
such caller waits, plus ``(1 - p) * cut_cost * P(hold > t)``, since the others are cut off. The sum is least
where the marginal costs meet, ``p = (1 - p) * cut_cost * density(t)``: at a likelihood ratio that falls with
the density of holds. Only the score, the law of pauses and one price are needed, so that a better score or a
better law takes effect at once. For one price, no rule on the same score and law has fewer cut-ins at the
same mean latency. Evidence that arrives during the wait gives another wait; if that one has already passed,
the turn ends.

The module is pure.
"""

import math

import numpy as np

from parley.turn_taking.endpointing.pauses import LONGEST_MS, SHORTEST_MS, STEP_MS


def least_cost_wait_ms(
    end_log_odds: float, survival: np.ndarray, *, cut_cost_ms: float, longest_ms: int = LONGEST_MS
) -> int:
    """Return the wait from the beginning of the silence, on the grid of ``survival``.

    Args:
        end_log_odds: log(P(the turn is over) / P(hold)).
        survival: P(a hold lasts longer) at each step of ``pauses.waits_ms``.
        cut_cost_ms: waiting, over all callers, that equals one cut-in.
        longest_ms: upper limit of the wait.
    """
    # Divided by P(hold), so that certainty of either kind is no division by zero.
    odds = math.exp(min(max(end_log_odds, -30.0), 30.0))
    steps = min(len(survival), max(1, (longest_ms - SHORTEST_MS) // STEP_MS + 1))
    waits = SHORTEST_MS + STEP_MS * np.arange(steps)
    return int(waits[np.argmin(odds * waits + cut_cost_ms * survival[:steps])])
