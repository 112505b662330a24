"""The wait that costs least: a boundary in time and score.

A wait of ``t`` behind a silence that is the end of the turn with probability ``p`` costs ``p * t``, since
everybody waits, and ``(1 - p) * cut_cost * P(hold > t)``, since somebody is cut off. The sum is least where
the marginal costs meet, ``p = (1 - p) * cut_cost * density(t)``: at a likelihood ratio that falls with the
density of holds. Nothing but the score, the law of pauses and one price is needed, so that a better score or
a better law is used at once, and for one price no rule on the same score and law has fewer cut-ins at the
same mean latency. Evidence that comes while one waits gives another wait; one that has passed by then ends
the turn.

Pure.
"""

import math

import numpy as np

from turn_taking.pauses import LONGEST_MS, SHORTEST_MS, STEP_MS


def least_cost_wait_ms(
    end_log_odds: float, survival: np.ndarray, *, cut_cost_ms: float, longest_ms: int = LONGEST_MS
) -> int:
    """The wait from the beginning of the silence, on the grid of ``survival``.

    Args:
        end_log_odds: log(P(the turn is over) / P(hold)).
        survival: P(a hold lasts longer) at each step of ``pauses.waits_ms``.
        cut_cost_ms: how much waiting of everybody one cut-in is worth.
        longest_ms: no wait is longer.
    """
    # Divided by P(hold), so that certainty of either kind is no division by zero.
    odds = math.exp(min(max(end_log_odds, -30.0), 30.0))
    steps = min(len(survival), max(1, (longest_ms - SHORTEST_MS) // STEP_MS + 1))
    waits = SHORTEST_MS + STEP_MS * np.arange(steps)
    return int(waits[np.argmin(odds * waits + cut_cost_ms * survival[:steps])])
