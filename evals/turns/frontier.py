"""``python -m evals.turns.frontier``: compare waits and cut-ins of every policy on recorded callers.

It prints the whole frontier of wait against cut-ins, on the report side of the split (``recorded``). The
policies are silence timers, smart-turn's own rule as a stock Pipecat pipeline runs it, ``adaptive``, and
``predictive`` at each patience. By eot-bench's definitions a hold is cut when the turn is ended in it, and
latency is the silence before an end is reported. ``cut <= 1.2 s`` counts the holds of up to 1.2 s alone. All
policies use the same engines and run through their event interface (``simulator``).

Below the frontier follow the mean waits at 10 and 5 % of holds cut. They are given for the predictor, and for
the best static rule (threshold, delay, timeout) on smart-turn's score and on the predictor's. All prices and
rules are chosen on these very calls. The last table compares the predicted share of ends with the true one.
``--own-speech`` measures your own recordings instead.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.evals.harness.command import positive
from parley.evals.harness.report import add_outputs, markdown, percentile, run_command
from parley.evals.turns import recorded
from parley.evals.turns.callers import LOOKS_MS, CallSpec, ScriptedCall, replayed
from parley.evals.turns.signs import looks
from parley.evals.turns.simulator import Hearing, Outcome, run
from parley.evals.turns.static_waits import Columns, StaticPolicy, StaticRule, best_waits
from parley.turn_taking.endpointing.end_predictor import shipped_predictor
from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointPolicy, EndpointTuning
from parley.turn_taking.endpointing.pauses import LONGEST_MS
from parley.turn_taking.endpointing.policies import PredictivePolicy, Price, SilenceTimer

RATES = (0.10, 0.05)
PATIENCES = tuple(round(step / 10, 1) for step in range(11))
TIMERS_MS = (300, 600, 900, 1_000, 1_600)
SHORT_HOLD_MS = 1_200
# A decision that looks ahead of the silence could only bring forward the ends that are decided this early.
EARLY_MS = 300
RELIABILITY_BINS = 5
REPLAYS = 3
# Number of bisections, on the logarithm, that find a price.
BISECTIONS = 8
# Pipecat 1.14: voice activity of 200 ms, smart-turn once, and a silence of 3 s after a negative answer.
STOCK = StaticRule(threshold=0.0, delay_ms=200, timeout_ms=3_000)


@dataclass(frozen=True, slots=True)
class Played:
    """Results of a policy on all silences of a set.

    Attributes:
        name: of the policy.
        cut: share of holds that were cut.
        short_cut: the same of holds of at most ``SHORT_HOLD_MS``.
        waits_ms: waits at the ends that it reported.
    """

    name: str
    cut: float
    short_cut: float
    waits_ms: tuple[int, ...]

    def figures(self) -> dict[str, Any]:
        """Return the printed figures."""
        waits = self.waits_ms or (0,)
        return {
            "policy": self.name,
            "cut": round(self.cut, 4),
            "short_cut": round(self.short_cut, 4),
            "mean_ms": round(float(np.mean(waits))),
            "p50_ms": percentile(waits, 50),
            "p95_ms": percentile(waits, 95),
            "early": round(sum(wait <= EARLY_MS for wait in waits) / len(waits), 3),
        }


class StockPolicy(StaticPolicy):
    """Policy by smart-turn's own rule: one look at each pause decides between 200 ms and 3 s."""

    def on_completeness(self, probability: float, *, filler_log_odds: float | None = None) -> None:
        """Take the first look of a pause; ignore the others."""
        if self._completeness is None:
            super().on_completeness(probability, filler_log_odds=filler_log_odds)


def play(
    name: str, build: Callable[[], EndpointPolicy], calls: Sequence[ScriptedCall], spec: CallSpec
) -> Played:
    """Run one policy object per caller through all turns of the caller."""
    outcomes: list[tuple[Outcome, int | None]] = []
    for call in calls:
        lengths = [silence.length_ms for turn in call.turns for silence in turn.silences]
        outcomes += zip(run(build(), call, spec), lengths, strict=True)
    holds = [(outcome.wait_ms is not None, length) for outcome, length in outcomes if length is not None]
    short = [cut for cut, length in holds if length <= SHORT_HOLD_MS]
    return Played(
        name,
        sum(cut for cut, _ in holds) / max(1, len(holds)),
        sum(short) / max(1, len(short)),
        tuple(outcome.wait_ms for outcome, _ in outcomes if outcome.end and outcome.wait_ms is not None),
    )


def predictive(patience: float, *, learn: bool = False) -> Callable[[], EndpointPolicy]:
    """Return a factory of the policy as it ships, with this patience."""
    settings = EndpointTuning(kind="predictive", patience=patience, learn=learn)
    return partial(PredictivePolicy, settings)


class PricedPredictor(PredictivePolicy):
    """The predictor at one price, with eot-bench's longest wait as the only limit.

    Args:
        cut_cost_ms: the price.
    """

    def __init__(self, cut_cost_ms: float) -> None:
        super().__init__(EndpointTuning(kind="predictive"))
        self._price = Price(cut_cost_ms, LONGEST_MS)


def at_rate(calls: Sequence[ScriptedCall], spec: CallSpec, rate: float) -> Played | None:
    """Return the predictor with the lowest price that cuts at most this share of holds."""
    low, high, best = math.log(100.0), math.log(200_000.0), None
    for _ in range(BISECTIONS):
        price = math.exp((low + high) / 2)
        played = play(f"price {price:.0f}", partial(PricedPredictor, price), calls, spec)
        if played.cut <= rate:
            best, high = played, math.log(price)
        else:
            low = math.log(price)
    return best


def rows_of(calls: Sequence[ScriptedCall], spec: CallSpec, *, learn: bool = False) -> list[Played]:
    """Return the whole frontier."""
    timers = [
        play(
            f"timer {wait_ms} ms",
            partial(SilenceTimer, EndpointTuning(kind="timer", timer_ms=wait_ms)),
            calls,
            spec,
        )
        for wait_ms in TIMERS_MS
    ]
    return [
        *sorted(timers, key=lambda played: -played.cut),
        play("smart-turn's own rule (stock Pipecat)", partial(StockPolicy, STOCK), calls, spec),
        play("adaptive", Endpointer, calls, spec),
        *(
            play(f"predictive, patience {patience:g}", predictive(patience, learn=learn), calls, spec)
            for patience in PATIENCES
        ),
    ]


def bench(calls: Sequence[ScriptedCall], spec: CallSpec) -> dict[str, Any]:
    """Return the mean waits at eot-bench's rates."""
    figures: dict[str, Any] = {}
    scores, odds = columns(calls, predicted=False), columns(calls, predicted=True)
    last_ms = spec.looks_ms[-1]
    for rate in RATES:
        ours = at_rate(calls, spec, rate)
        on_score = best_waits(scores, last_ms, [rate]).get(rate)
        on_odds = best_waits(odds, last_ms, [rate]).get(rate)
        mean_ms = float(np.mean(ours.waits_ms)) if ours else math.inf
        figures[f"{rate:.0%}"] = {
            "predictor_ms": round(mean_ms) if ours else None,
            "static_on_smart_turn_ms": round(on_score.mean_ms) if on_score else None,
            "static_on_predictor_ms": round(on_odds.mean_ms) if on_odds else None,
            "below_static_on_smart_turn": round(1 - mean_ms / on_score.mean_ms, 3) if on_score else None,
            "below_static_on_predictor": round(1 - mean_ms / on_odds.mean_ms, 3) if on_odds else None,
        }
    return figures


def columns(calls: Sequence[ScriptedCall], *, predicted: bool) -> Columns:
    """Return all silences with smart-turn's odds at each look, or those of the predictor."""
    last, odds_seen = [], []
    chosen = shipped_predictor()
    for call in calls:
        seen = iter(looks([call]))
        for silence in (silence for turn in call.turns for silence in turn.silences):
            length = silence.length_ms
            last.append(math.inf if length is None else length + Hearing().onset_ms)
            odds = [chosen.end_log_odds(next(seen).signs) for _ in silence.log_odds]
            odds_seen.append(odds if predicted else silence.log_odds)
    return Columns(np.array(last), np.array(odds_seen))


def reliability(calls: Sequence[ScriptedCall]) -> list[dict[str, float]]:
    """Return how often pauses were ends at the last look, for fifths of them by the predicted probability.

    The prior is the share of these pauses that are ends, so that the predictor's evidence alone is judged.
    """
    chosen, last = shipped_predictor(), len(LOOKS_MS) - 1
    seen = [(chosen.end_log_odds(row.signs), row.end) for row in looks(calls) if row.look == last]
    odds, ends = np.array([each[0] for each in seen]), np.array([each[1] for each in seen])
    share = ends.mean()
    predicted = 1 / (1 + np.exp(-odds) * (1 - share) / share)
    return [
        {"predicted": round(float(predicted[part].mean()), 3), "ends": round(float(ends[part].mean()), 3)}
        for part in np.array_split(np.argsort(predicted, kind="stable"), RELIABILITY_BINS)
        if len(part)
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the frontier as Markdown."""
    waits = ("mean_ms", "p50_ms", "p95_ms")
    return markdown(
        ("policy", "holds cut", "cut <= 1.2 s", "mean ms", "p50", "p95", f"ends within {EARLY_MS} ms"),
        [
            (
                row["policy"],
                f"{row['cut']:.1%}",
                f"{row['short_cut']:.1%}",
                *(row[key] for key in waits),
                f"{row['early']:.1%}",
            )
            for row in rows
        ],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m evals.turns.frontier")
    root.add_argument("--own-speech", type=Path, help="folder of your own recordings, instead of the sets")
    root.add_argument("--learn", action="store_true", help="let the predictive policy adapt to its caller")
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    add_outputs(root)
    arguments = root.parse_args(argv)
    return run_command(arguments, lambda: _run(arguments), report)


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure, and run the policies.

    Raises:
        AgentError: recordings were not fetched, weights are missing, or a set has no pauses.
    """
    own = arguments.own_speech
    names = (recorded.PEOPLE,) if own else tuple(recorded.SPECS)
    result: dict[str, Any] = {}
    pooled: list[ScriptedCall] = []
    for name in names:
        calls = recorded.measure(name, processes=arguments.processes, own=own)
        spec = recorded.SPECS[name]
        replays = replayed(calls, spec, seed=recorded.SEED, times=REPLAYS)
        pooled += replays
        result[name] = of_set(name, replays, spec, learn=arguments.learn)
    if len(names) > 1:
        result["all"] = of_set("all", pooled, spec, learn=arguments.learn)
    return result


def of_set(title: str, calls: Sequence[ScriptedCall], spec: CallSpec, *, learn: bool) -> dict[str, Any]:
    """Return the printed figures of a set.

    Raises:
        ConfigError: the set has no holds or no ends.
    """
    silences = [silence for call in calls for turn in call.turns for silence in turn.silences]
    ends = sum(silence.length_ms is None for silence in silences) // REPLAYS
    holds = len(silences) // REPLAYS - ends
    if not ends or not holds:
        raise ConfigError(f"{title}: {ends} ends and {holds} pauses inside of turns are too few")
    return {
        "ends": ends,
        "holds": holds,
        "rows": [played.figures() for played in rows_of(calls, spec, learn=learn)],
        "bench": bench(calls, spec),
        "reliability": reliability(calls),
    }


def report(result: dict[str, Any]) -> str:
    """Return the figures of all sets as Markdown."""
    parts = []
    for name, figures in result.items():
        counts = f"{figures['ends']} ends, {figures['holds']} holds, {REPLAYS} draws of lengths"
        rates = "\n".join(f"{rate} {json.dumps(bench_)}" for rate, bench_ in figures["bench"].items())
        parts.append(f"{name} ({counts})\n\n{table(figures['rows'])}\n\n{rates}\n")
        bins = [(bin_["predicted"], bin_["ends"]) for bin_ in figures["reliability"]]
        parts.append(markdown(("predicted to be ends", "ends"), bins) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
