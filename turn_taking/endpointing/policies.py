"""The three policies for the end of a turn, selected by ``EndpointSettings.kind``.

``timer`` waits the same time for every turn. ``adaptive`` (``endpointer.Endpointer``) waits by a rule of
thumb between two times. ``predictive`` (the default of a spoken call) chooses the wait that is cheapest on
all evidence. The log odds of ``end_predictor``, the caller's share of holds and the caller's law of pauses go
into ``boundary.least_cost_wait_ms``; its price and its longest wait follow from one number, ``patience``.
With ``learn``, the weight of the score follows its accuracy in this call (``score_calibration``), so that a
useless score leaves the law of pauses. The policy decides again on each piece of evidence. It asks the
completeness model again during the silence (``LOOKS_MS``), since a look costs nothing while the turn is open
anyway.

The module is pure.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parley.language import Language
from parley.turn_taking.endpointing.boundary import least_cost_wait_ms
from parley.turn_taking.endpointing.end_predictor import EndPredictor, PauseSigns, shipped_predictor
from parley.turn_taking.endpointing.endpointer import (
    Endpointer,
    EndpointPolicy,
    EndpointSettings,
    Grounds,
    TurnSilence,
)
from parley.turn_taking.endpointing.pauses import SHORTEST_MS, CallerHabits
from parley.turn_taking.endpointing.score_calibration import ScoreCalibration

# Cost of a cut-in at no patience and at full patience, and the longest wait at each. Between the two, both
# grow by the same factor for each step of patience.
CUT_COSTS_MS = (600.0, 20_000.0)
LONGEST_WAITS_MS = (450, 2_500)
# Silences after which ``predictive`` has the model asked again while the turn is open: at most so many looks
# in a pause after the first, 36 ms of a processor each.
LOOKS_MS = (320,)
# With ``learn``: a score that is worth nothing costs a policy that trusts it 2.7 times the best static wait,
# and one that doubts it 1.15 times; a true score costs up to 2 points.
SCORE_DOUBT = 0.2


class SilenceTimer(TurnSilence):
    """``timer`` policy: the turn is over after ``timer_ms`` of silence."""

    def wait_ms(self) -> int:
        """Return the silence after which the turn is over."""
        return self._settings.timer_ms

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """Return True: no evidence shortens the wait."""
        return True


@dataclass(frozen=True, slots=True)
class Price:
    """Cost against which a wait is weighed.

    Attributes:
        cut_cost_ms: waiting, over all callers, that equals one cut-in.
        longest_ms: longest silence that is waited out.
    """

    cut_cost_ms: float
    longest_ms: int


class PricedPolicy(TurnSilence):
    """Wait as long as costs least on all evidence, decided again on each piece of it.

    Args:
        settings: settings of the endpoint; None for the defaults.
        price: the price of a wait.
        looks_ms: silences after which the model is asked again, while the turn is still open.
        doubt: where it learns, the probability that the score does not fit the speech of a call; 0: trusted.
        language: that of the caller; None for the default language.
    """

    def __init__(
        self,
        settings: EndpointSettings | None,
        price: Price,
        *,
        looks_ms: Sequence[int] = (),
        doubt: float = SCORE_DOUBT,
        language: Language | None = None,
    ) -> None:
        super().__init__(settings, language=language)
        self._price = price
        self._looks_ms = tuple(looks_ms)
        self._caller = self._habits or CallerHabits(spread=0.0)
        self._worth = ScoreCalibration(doubt=doubt if self._settings.learn else 0.0)
        # The deadline is requested more often than anything changes.
        self._computed: tuple[float, np.ndarray, int] | None = None

    def wait_ms(self) -> int:
        """Return the silence after which the turn is over, on the present evidence."""
        return self._wait_ms(self._completeness, self._filler_log_odds)

    def end_log_odds(self) -> float:
        """Return log(P(the turn is over) / P(hold)) on all present evidence."""
        return self._log_odds(self._completeness, self._filler_log_odds)

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """Return whether such a probability already gives the shortest wait."""
        return self._wait_ms(probability, filler_log_odds) <= SHORTEST_MS

    def next_look_ms(self) -> int | None:
        """Return when the next of ``looks_ms`` is due; None when none precedes the deadline."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or self._silent_since_ms is None:
            return None
        ahead = (look for look in self._looks_ms if look > self._looked_ms)
        look_ms = self._silent_since_ms + min(ahead, default=math.inf)
        return int(look_ms) if look_ms < deadline_ms else None

    def grounds(self) -> Grounds:
        """Return the present evidence for an end."""
        return self._grounds(self._completeness, self._filler_log_odds)

    def _judged(self, grounds: Grounds | None, *, ended: bool) -> None:
        if grounds is not None:
            self._worth.on_pause(claimed=grounds.score, otherwise=grounds.otherwise, ended=ended)

    def _wait_ms(self, completeness: float | None, filler_log_odds: float | None) -> int:
        log_odds, survival = self._log_odds(completeness, filler_log_odds), self._caller.survival
        known = self._computed
        if known is not None and known[0] == log_odds and known[1] is survival:
            return known[2]
        price = self._price
        wait_ms = least_cost_wait_ms(
            log_odds, survival, cut_cost_ms=price.cut_cost_ms, longest_ms=price.longest_ms
        )
        self._computed = log_odds, survival, wait_ms
        return wait_ms

    def _log_odds(self, completeness: float | None, filler_log_odds: float | None) -> float:
        known = self._grounds(completeness, filler_log_odds)
        return self._worth.end_log_odds(claimed=known.score, otherwise=known.otherwise)

    @abstractmethod
    def _grounds(self, completeness: float | None, filler_log_odds: float | None) -> Grounds:
        """Weigh the evidence."""


class PredictivePolicy(PricedPolicy):
    """``predictive`` policy: the wait that costs least by ``EndPredictor``, at the price of ``patience``.

    Args:
        settings: settings of the endpoint; None for the defaults.
        predictor: weighs the evidence; None for the one that ships.
        language: that of the caller; None for the default language.
    """

    def __init__(
        self,
        settings: EndpointSettings | None = None,
        predictor: EndPredictor | None = None,
        *,
        language: Language | None = None,
    ) -> None:
        chosen = settings or EndpointSettings(kind="predictive")
        super().__init__(chosen, price_of(chosen.patience), looks_ms=LOOKS_MS, language=language)
        self._predictor = predictor or replace(shipped_predictor(), language=language)
        self._weighed: tuple[PauseSigns, float] | None = None

    @property
    def wants_voice_end(self) -> bool:
        """True when the predictor uses ``on_voice_end``."""
        return self._predictor.uses_voice_end

    def _grounds(self, completeness: float | None, filler_log_odds: float | None) -> Grounds:
        signs = PauseSigns(
            self._text,
            self._asked,
            self._last_word_confidence,
            completeness,
            filler_log_odds,
            self._looked_ms,
            self._signs(),
        )
        # Words are analysed once for each change, not for each look.
        unheard = replace(signs, completeness=None, filler_log_odds=None, looked_ms=0)
        if self._weighed is None or self._weighed[0] != unheard:
            self._weighed = unheard, self._predictor.other_log_odds(unheard)
        otherwise = self._caller.end_log_odds + self._weighed[1]
        return Grounds(self._predictor.sound_log_odds(signs), otherwise)


def price_of(patience: float) -> Price:
    """Return the price that corresponds to a patience of 0..1."""
    (cheap, dear), (short, long) = CUT_COSTS_MS, LONGEST_WAITS_MS
    return Price(cheap * (dear / cheap) ** patience, round(short * (long / short) ** patience))


_POLICIES: dict[str, type[TurnSilence]] = {
    "timer": SilenceTimer,
    "adaptive": Endpointer,
    "predictive": PredictivePolicy,
}


def endpoint_policy(settings: EndpointSettings, language: Language | None = None) -> EndpointPolicy:
    """Create the policy that ``settings.kind`` names, for one call in this language."""
    return _POLICIES[settings.kind](settings, language=language)
