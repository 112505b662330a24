"""The three policies for the end of a turn, chosen by ``EndpointSettings.kind``.

``timer`` waits the same time whatever it hears. ``adaptive`` (``endpointing.Endpointer``) waits by a rule of
thumb between two times. ``predictive`` (the default of a spoken call) waits as long as is cheapest on
everything that it has heard: the log odds of ``end_predictor``, the caller's share of holds and the caller's
law of pauses go into ``boundary.least_cost_wait_ms``; its price and its longest wait follow from one number,
``patience``. Where it learns, the score counts as far as it has been right in this call (``score_worth``), so
that a useless one leaves the law of pauses. It decides anew with each piece of evidence, and asks the
completeness model again during the silence (``LOOKS_MS``), since a look costs nothing when the turn is open
anyway.

Pure.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turn_taking.boundary import least_cost_wait_ms
from turn_taking.end_predictor import EndPredictor, PauseSigns, shipped_predictor
from turn_taking.endpointing import Endpointer, EndpointPolicy, EndpointSettings, Grounds, TurnSilence
from turn_taking.pauses import SHORTEST_MS, CallerHabits
from turn_taking.score_worth import ScoreWorth

# What a cut-in costs at no patience and at the most, and the longest wait then; between them both grow by the
# same factor for each step of patience.
CUT_COSTS_MS = (600.0, 20_000.0)
LONGEST_WAITS_MS = (450, 2_500)
# Silences after which ``predictive`` has the model asked again while the turn is open: at most so many looks
# in a pause after the first, 36 ms of a processor each.
LOOKS_MS = (320,)
# With ``learn``: a score that is worth nothing costs a policy that trusts it 2.7 times the best static wait,
# one that doubts it 1.15 times; a true one costs up to 2 points.
SCORE_DOUBT = 0.2


class SilenceTimer(TurnSilence):
    """``timer``: the turn is over after ``timer_ms`` of silence."""

    def wait_ms(self) -> int:
        """Silence after which the turn is over."""
        return self._settings.timer_ms

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """No evidence shortens the wait."""
        return True


@dataclass(frozen=True, slots=True)
class Price:
    """What a wait is weighed against.

    Attributes:
        cut_cost_ms: how much waiting of everybody one cut-in is worth.
        longest_ms: no silence is waited out longer.
    """

    cut_cost_ms: float
    longest_ms: int


class PricedPolicy(TurnSilence):
    """Wait as long as costs least on everything that was heard, decided anew with each piece of evidence.

    Args:
        settings: see the model.
        price: of a wait.
        looks_ms: silences after which the model is asked again, while the turn is still open.
        doubt: where it learns, the probability that the score does not fit the speech of a call; 0: trusted.
    """

    def __init__(
        self,
        settings: EndpointSettings | None,
        price: Price,
        *,
        looks_ms: Sequence[int] = (),
        doubt: float = SCORE_DOUBT,
    ) -> None:
        super().__init__(settings)
        self._price = price
        self._looks_ms = tuple(looks_ms)
        self._caller = self._habits or CallerHabits(spread=0.0)
        self._worth = ScoreWorth(doubt=doubt if self._settings.learn else 0.0)
        # The deadline is asked for more often than anything changes.
        self._computed: tuple[float, np.ndarray, int] | None = None

    def wait_ms(self) -> int:
        """Silence after which the turn is over, from what is known now."""
        return self._wait_ms(self._completeness, self._filler_log_odds)

    def end_log_odds(self) -> float:
        """log(P(the turn is over) / P(hold)) on everything that is known."""
        return self._log_odds(self._completeness, self._filler_log_odds)

    def is_complete(self, probability: float, *, filler_log_odds: float | None = None) -> bool:
        """Whether the shortest wait follows from such a probability already."""
        return self._wait_ms(probability, filler_log_odds) <= SHORTEST_MS

    def next_look_ms(self) -> int | None:
        """The first of ``looks_ms`` that lies ahead and before the deadline."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or self._silent_since_ms is None:
            return None
        ahead = (look for look in self._looks_ms if look > self._looked_ms)
        look_ms = self._silent_since_ms + min(ahead, default=math.inf)
        return int(look_ms) if look_ms < deadline_ms else None

    def grounds(self) -> Grounds:
        """What speaks for an end now."""
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
        """Weigh what was heard."""


class PredictivePolicy(PricedPolicy):
    """``predictive``: the wait that costs least by ``EndPredictor``, at the price of ``patience``.

    Args:
        settings: see the model.
        predictor: weighs what was heard; None for the one that ships.
    """

    def __init__(
        self, settings: EndpointSettings | None = None, predictor: EndPredictor | None = None
    ) -> None:
        chosen = settings or EndpointSettings(kind="predictive")
        super().__init__(chosen, price_of(chosen.patience), looks_ms=LOOKS_MS)
        self._predictor = predictor or shipped_predictor()
        self._weighed: tuple[PauseSigns, float] | None = None

    @property
    def wants_voice_end(self) -> bool:
        """Return whether ``on_voice_end`` would be listened to."""
        return self._predictor.hears_voice_end

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
        # Words are read once for each change, not for each look.
        unheard = replace(signs, completeness=None, filler_log_odds=None, looked_ms=0)
        if self._weighed is None or self._weighed[0] != unheard:
            self._weighed = unheard, self._predictor.other_log_odds(unheard)
        otherwise = self._caller.end_log_odds + self._weighed[1]
        return Grounds(self._predictor.sound_log_odds(signs), otherwise)


def price_of(patience: float) -> Price:
    """Return what this patience stands for."""
    (cheap, dear), (short, long) = CUT_COSTS_MS, LONGEST_WAITS_MS
    return Price(cheap * (dear / cheap) ** patience, round(short * (long / short) ** patience))


_POLICIES: dict[str, type[TurnSilence]] = {
    "timer": SilenceTimer,
    "adaptive": Endpointer,
    "predictive": PredictivePolicy,
}


def endpoint_policy(settings: EndpointSettings) -> EndpointPolicy:
    """The policy that ``settings.kind`` names, for one call."""
    return _POLICIES[settings.kind](settings)
