"""Endpoint policies on scripted callers: share of cut holds, and waits at the ends.

Every policy runs through its event interface (``simulator``) on the same scores, or the same scores and
words. As in eot-bench, a hold is cut when the turn is ended in it; latency is the silence before an end is
reported. The rows:

* ``always-talk`` ends every pause as soon as there are words, ``always-silent`` none, ``timer-N`` after N ms;
* ``static-T-D-O`` is the best of all policies with one threshold T on the score, one delay D above it and one
  timeout O below. Every parameter is chosen on the very calls it is reported on, which favours it.
  ``static-words-...`` has the threshold on score and words together;
* ``adaptive`` is the product's policy of that name with its default waits;
* ``boundary`` is the priced wait on the score alone; ``boundary-learning`` also adapts to the caller during
  the call; ``boundary-words`` and ``boundary-words-learning`` are the two with the words. Their evidence is
  fitted and their price chosen on other seeds and other sentences than they are reported on;
* the same with a price that is chosen on the reported calls (``cheapest``), as the three parameters of a
  static policy are, so that both are compared at the same rate;
* with ``contour`` in its name a policy, or a bound, uses the end of the pitch as well, with ``voice`` the end
  of the voice;
* ``bound`` and ``bound-words`` have the caller's true factor and share of holds, and all of the score at
  once. No policy on these signs can be expected to beat them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from parley.evals.turns.callers import CallSpec, ScriptedCall
from parley.evals.turns.simulator import Hearing, Outcome, run
from parley.evals.turns.static_waits import Columns, StaticPolicy, StaticRule, best_waits
from parley.language.english.cue_words import asked_for
from parley.turn_taking.endpointing.boundary import least_cost_wait_ms
from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointPolicy, EndpointTuning
from parley.turn_taking.endpointing.evidence_voice import CallerVoiceAverage
from parley.turn_taking.endpointing.pauses import SHORTEST_MS, PauseLaw
from parley.turn_taking.endpointing.policies import Price, SilenceTimer
from research.turn_taking.boundary_policy import BoundaryPolicy
from research.turn_taking.contours import contour_of
from research.turn_taking.evidence import EvidenceSettings, Heard, calibrated, end_log_odds
from research.turn_taking.simulated_callers import is_filler

TIMERS_MS = (300, 600, 1_000, 1_600)
# Prices of a cut-in from cheap to dear, in ms.
PRICES_MS = tuple(float(price) for price in np.geomspace(600, 40_000, 7))
# Standard errors left free below a rate that must hold on calls which are not known yet.
MARGIN_ERRORS = 1.0
# Number of further prices that are tried between two of the above.
REFINEMENTS = 2
# Number of bisections, on the logarithm, that find a price between two others.
BISECTIONS = 5


@dataclass(frozen=True, slots=True)
class Judged:
    """Results of a policy on all silences.

    Attributes:
        name: see the module.
        cut_in_rate: share of holds that were cut.
        waits_ms: waits at the ends that it reported, in order.
    """

    name: str
    cut_in_rate: float
    waits_ms: tuple[int, ...]

    @property
    def mean_ms(self) -> float:
        """Mean wait at the ends; infinite when no end was reported."""
        return float(np.mean(self.waits_ms)) if self.waits_ms else math.inf


def judge(name: str, outcomes: Sequence[Outcome]) -> Judged:
    """Count cut holds and collect the waits at the ends."""
    holds = [outcome for outcome in outcomes if not outcome.end]
    cut = sum(outcome.wait_ms is not None for outcome in holds)
    waits = tuple(o.wait_ms for o in outcomes if o.end and o.wait_ms is not None)
    return Judged(name, cut / max(1, len(holds)), waits)


def play(
    name: str, build: Callable[[], EndpointPolicy], calls: Sequence[ScriptedCall], spec: CallSpec
) -> Judged:
    """Run one policy object per caller through all turns of the caller; judge the outcomes."""
    return judge(name, [outcome for call in calls for outcome in run(build(), call, spec)])


# --- simple policies


class AlwaysSilent(SilenceTimer):
    """Policy that ends no turn."""

    def next_deadline_ms(self) -> int | None:
        """Return None: there is no deadline."""
        return None


def _timer(wait_ms: int) -> EndpointPolicy:
    return SilenceTimer(EndpointTuning(kind="timer", timer_ms=wait_ms))


def simple(calls: Sequence[ScriptedCall], spec: CallSpec) -> list[Judged]:
    """Judge always-talk, always-silent, timers and ``adaptive``."""
    rows = [
        play("always-talk", partial(_timer, 100), calls, spec),
        play("always-silent", AlwaysSilent, calls, spec),
    ]
    for wait_ms in TIMERS_MS:
        rows.append(play(f"timer-{wait_ms}", partial(_timer, wait_ms), calls, spec))
    return [*rows, play("adaptive", Endpointer, calls, spec)]


# --- static policies


@dataclass(frozen=True, slots=True)
class WeighedRule(StaticRule):
    """Static policy on more signs than the score.

    Attributes:
        evidence: weights of the signs in the log odds; None uses the score alone.
        voice: true when the end of the voice is among the signs.
    """

    evidence: EvidenceSettings | None = None
    voice: bool = False

    @property
    def name(self) -> str:
        """Name of the row in the table."""
        words = "" if self.evidence is None else "voice-words-" if self.voice else "words-"
        return f"static-{words}{self.threshold:.2f}-{self.delay_ms}-{self.timeout_ms}"


class WeighedPolicy(StaticPolicy):
    """Policy of a ``WeighedRule``."""

    def __init__(self, rule: WeighedRule) -> None:
        self._evidence, self._voice = rule.evidence, rule.voice
        super().__init__(rule)

    @property
    def wants_voice_end(self) -> bool:
        """Return whether ``on_voice_end`` has any effect."""
        return self._voice

    def _log_odds(self) -> float:
        if self._completeness is None or self._evidence is None:
            return super()._log_odds()
        heard = Heard(
            self._text,
            self._completeness,
            None,
            self._asked,
            self._last_word_confidence,
            self._signs(),
            self._is_filler(self._filler_log_odds),
        )
        return end_log_odds(heard, self._evidence)


@dataclass(frozen=True, slots=True)
class CallerColumns(Columns):
    """Columns with the caller of each silence.

    Attributes:
        caller: int, (silences,): index of the call.
    """

    caller: np.ndarray


def columns(
    calls: Sequence[ScriptedCall],
    spec: CallSpec,
    evidence: EvidenceSettings | None = None,
    *,
    contour: bool = False,
    voice: bool = False,
) -> CallerColumns:
    """Return the log odds of the score at each look, or those of score and words as far as they are known.

    ``contour`` and ``voice`` add the end of the pitch and of the voice.
    """
    late_ms = Hearing().onset_ms
    last, looks, caller = [], [], []
    for index, call in enumerate(calls):
        own = CallerVoiceAverage()
        for turn in call.turns:
            asked, text = asked_for(turn.prompt), ""
            for silence in turn.silences:
                text = f"{text} {silence.heard}".strip()
                last.append(math.inf if silence.length_ms is None else silence.length_ms + late_ms)
                pitch = contour_of(silence.voice_end) if contour else None
                end = silence.voice_end if voice else None
                signs = None if end is None else own.signs(end)
                heard = Heard(text, None, pitch, asked, silence.confidence, signs, is_filler(silence))
                looks.append(_seen(silence.log_odds, heard, evidence))
                caller.append(index)
                if end is not None:
                    own.on_voice_end(end)
    return CallerColumns(np.array(last), np.array(looks), np.array(caller))


def _seen(scores: Sequence[float], heard: Heard, evidence: EvidenceSettings | None) -> tuple[float, ...]:
    if evidence is None:
        return tuple(scores)
    rest = end_log_odds(heard, evidence)
    return tuple(calibrated(score, evidence) + rest for score in scores)


def best_statics(
    calls: Sequence[ScriptedCall],
    spec: CallSpec,
    rates: Sequence[float],
    *,
    evidence: EvidenceSettings | None = None,
    voice: bool = False,
) -> dict[float, WeighedRule]:
    """Return for each rate the static policy with the lowest mean that cuts no more; none where none does."""
    seen = columns(calls, spec, evidence, voice=voice)
    return {
        rate: WeighedRule(found.threshold, found.delay_ms, found.timeout_ms, evidence, voice)
        for rate, found in best_waits(seen, spec.looks_ms[-1], rates).items()
    }


# --- priced waits


@dataclass(frozen=True, slots=True)
class Priced:
    """A boundary policy without its price.

    Attributes:
        name: of the row in the table.
        learn: true when it adapts to its caller.
        evidence: weights of the signs.
        contour: true when the end of the pitch counts.
        voice: true when the end of the voice counts.
    """

    name: str
    learn: bool
    evidence: EvidenceSettings
    contour: bool = False
    voice: bool = False

    def build(self, cut_cost_ms: float) -> Callable[[], EndpointPolicy]:
        """Return a factory of policies, each for one caller."""
        return partial(
            BoundaryPolicy,
            self.evidence,
            Price(cut_cost_ms, 5_000),
            learn=self.learn,
            contour=self.contour,
            voice=self.voice,
        )


def prices_for(
    priced: Priced, calls: Sequence[ScriptedCall], spec: CallSpec, rates: Sequence[float]
) -> dict[float, float]:
    """Return for each rate the price that just keeps it on calls like these; the dearest when none does."""
    holds = sum(len(turn.silences) - 1 for call in calls for turn in call.turns)
    points = [_point(priced, calls, spec, holds, price) for price in PRICES_MS]
    found = {}
    for rate in rates:
        kept = math.log(rate - MARGIN_ERRORS * math.sqrt(rate * (1 - rate) / max(1, holds)))
        for _ in range(REFINEMENTS):
            points.append(_point(priced, calls, spec, holds, _between(points, kept)))
        found[rate] = _between(points, kept)
    return found


def cheapest(
    priced: Priced,
    calls: Sequence[ScriptedCall],
    spec: CallSpec,
    swept: Mapping[float, Judged],
    *,
    most_cut: float,
) -> Judged | None:
    """Return the policy that cuts at most ``most_cut`` of these very calls at the lowest mean wait.

    Args:
        priced: policy without its price.
        calls: on which it is run.
        spec: of the calls.
        swept: results at some prices; the price that is searched for lies between two of them.
        most_cut: share of holds.
    """
    kept = {price: judged for price, judged in swept.items() if judged.cut_in_rate <= most_cut}
    broken = [price for price, judged in swept.items() if judged.cut_in_rate > most_cut]
    if not kept:
        return None
    above = [price for price in kept if price > max(broken, default=math.inf)]
    if above:
        low, high = math.log(max(broken)), math.log(min(above))
        for _ in range(BISECTIONS):
            price = math.exp((low + high) / 2)
            judged = play(priced.name, priced.build(price), calls, spec)
            if judged.cut_in_rate <= most_cut:
                kept[price], high = judged, math.log(price)
            else:
                low = math.log(price)
    return min(kept.values(), key=lambda judged: judged.mean_ms)


def _point(
    priced: Priced, calls: Sequence[ScriptedCall], spec: CallSpec, holds: int, price: float
) -> tuple[float, float]:
    """Return (log price, log rate): the rate falls about as a power of the price."""
    judged = play(priced.name, priced.build(price), calls, spec)
    return math.log(price), math.log(max(judged.cut_in_rate, 0.5 / max(1, holds)))


def _between(points: Sequence[tuple[float, float]], log_rate: float) -> float:
    prices, rates = np.array(sorted(points)).T
    # A dearer price never cuts more, except for a handful of pauses.
    return float(np.exp(np.interp(-log_rate, -np.minimum.accumulate(rates), prices)))


def bound(
    name: str,
    calls: Sequence[ScriptedCall],
    spec: CallSpec,
    *,
    most_cut: float,
    evidence: EvidenceSettings | None = None,
    contour: bool = False,
    voice: bool = False,
) -> Judged:
    """Judge the priced wait with the caller's own law and share and all of the evidence; the price is chosen
    here.
    """
    seen = columns(calls, spec, evidence, contour=contour, voice=voice)
    factors = np.array([call.factor for call in calls])
    priors = np.array([math.log((1 - call.hold_share) / call.hold_share) for call in calls])
    # Values are rounded to a grid: a table for each caller would give the same result.
    places = np.round(np.log(factors) / _FACTOR_STEP).astype(int)[seen.caller]
    odds = np.round((priors[seen.caller] + seen.looks[:, -1]) / _ODDS_STEP).astype(int)
    rows = np.unique(np.stack([places, odds]), axis=1, return_inverse=True)
    holds = np.isfinite(seen.last_ms)
    low, high = math.log(PRICES_MS[0] / 10), math.log(PRICES_MS[-1] * 10)
    waits = np.full(len(holds), SHORTEST_MS)
    for _ in range(14):
        middle = (low + high) / 2
        table = np.array(
            [
                least_cost_wait_ms(odd * _ODDS_STEP, _survival(place), cut_cost_ms=math.exp(middle))
                for place, odd in rows[0].T.tolist()
            ]
        )
        found = table[rows[1].reshape(-1)]
        if np.mean(found[holds] < seen.last_ms[holds]) <= most_cut:
            waits, high = found, middle
        else:
            low = middle
    cut = float(np.mean(waits[holds] < seen.last_ms[holds]))
    return Judged(name, cut, tuple(int(wait) for wait in waits[~holds]))


_FACTOR_STEP, _ODDS_STEP = 0.05, 0.1


@cache
def _survival(place: int) -> np.ndarray:
    return PauseLaw(scale=math.exp(place * _FACTOR_STEP)).survival
