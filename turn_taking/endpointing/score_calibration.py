"""Learn how far the claims of a completeness score hold in this call.

A score is calibrated on one kind of speech and used on others: another microphone, another accent, a
synthetic voice. Its claims there, log odds of an end, may be worth less than stated, or nothing. Inputs: each
pause that was judged, with the claim of the score and the log odds without it. Output: log odds of an end on
both.

The claim of a pause is multiplied by a ``worth`` that is the same for a whole call. Its posterior is kept on
a grid, by Bayes' rule: the likelihood of an end is the logistic function of the log odds without the score
plus the claim times the worth. The worth of a useless score falls towards 0 within a few turns, which leaves
the law of pauses.

The module is pure; each call has one object.
"""

import math

import numpy as np

STEPS = 21
# A cautious score may be worth more than it claims.
MOST = 2.0
# Spread of worths around 1 where the score fits the speech: with it, a score of the calibrated kind is
# believed as it is.
SPREAD = 0.2


class ScoreCalibration:
    """Posterior of the worth of the score in one call.

    Args:
        doubt: probability, before the call, that the score does not fit its speech: then any worth from 0 to
            1 is as likely as another. 0 learns nothing and believes the score.
    """

    def __init__(self, *, doubt: float) -> None:
        self._grid = np.linspace(0.0, MOST, STEPS) if doubt > 0 else np.ones(1)
        fits = np.exp(-(((self._grid - 1.0) / SPREAD) ** 2) / 2)
        misfits = (self._grid <= 1.0).astype(float)
        self._log_weights = np.log((1 - doubt) * fits / fits.sum() + doubt * misfits / misfits.sum())
        self._weigh()

    @property
    def share(self) -> float:
        """The expected worth."""
        return float(self._weights @ self._grid)

    def end_log_odds(self, *, claimed: float, otherwise: float) -> float:
        """Return the log odds of an end on both: those of the mean probability over all worths.

        While the claim may be worth nothing, it is believed less the more certain it is: a wrong certain
        claim would otherwise cost most.
        """
        if len(self._grid) == 1:
            return otherwise + claimed
        log_odds = otherwise + claimed * self._grid
        end = float(self._weights @ np.exp(-np.logaddexp(0.0, -log_odds)))
        hold = float(self._weights @ np.exp(-np.logaddexp(0.0, log_odds)))
        return math.log(end) - math.log(hold)

    def on_pause(self, *, claimed: float, otherwise: float, ended: bool) -> None:
        """Learn from a pause that was judged.

        Args:
            claimed: log odds of an end by the score alone.
            otherwise: log odds of an end by everything else, the general share of ends included.
            ended: True when the pause ended the turn.
        """
        if len(self._grid) == 1 or not claimed:
            return
        log_odds = otherwise + claimed * self._grid
        self._log_weights = self._log_weights - np.logaddexp(0.0, -log_odds if ended else log_odds)
        self._weigh()

    def _weigh(self) -> None:
        weights = np.exp(self._log_weights - self._log_weights.max())
        self._weights = weights / weights.sum()
