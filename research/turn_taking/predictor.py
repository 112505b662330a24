"""``python -m research.turn_taking.predictor``: fit ``turn_taking.endpointing.end_predictor``.

Every pause of the committed tuning calls gives a row for each look, with the signals that the product
computes from its engines' output. The scripted calls (``tuning.json``) have marked voices, in which the sound
of a pause differs from that of an end as it does with people. The composed ones (``composed.json``) have the
pauses inside of sentences that people make, in voices without any mark. The weights are those of a logistic
regression with ridge penalty over both, in which ends and holds count alike. Words and grammar have the same
weights in both. The sound has weights of its own in the composed calls, which are not kept. The words are
those of the script, as a recogniser with few errors writes them. No engine runs, so a fit takes seconds.

It prints the area under the ROC curve on half of the callers, by weights fitted on the other half, with all
signals and without those of the end of the voice. With ``--keep`` it adds the recorded people of the tuning
side, who speak other languages. Weights that are no better than smart-turn's score alone are not written.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import AgentError, ConfigError
from parley.evals.harness.command import exit_code, positive
from parley.evals.turns.callers import LOOKS_MS, ScriptedCall
from parley.evals.turns.signs import Look, looks
from parley.runtime.atomic_file import replace_file
from parley.turn_taking.endpointing.end_predictor import (
    WEIGHTS,
    EndPredictor,
    other_signals,
    sound_signals,
)
from research.turn_taking import tuning_callers
from research.turn_taking.composed import composed

# Strong enough that a signal seen ten times gets hardly any weight.
RIDGE = 3.0
# The drawn-out end of a voice separates the pauses of the synthetic callers, whose ends were drawn out by
# rule (area 0.75). It does not separate those of the recorded people of the tuning side (0.53). With it, the
# pauses of those people are separated worse.
LEFT_OUT = ("tempo",)
STEPS = 30
# Signals of the sound, which have weights of their own in the composed calls, and the prefix of these.
SOUND = ("score", "late_score", "filler", "tempo", "movement", "loudness")
APART = "composed "
# Signals that are switched off to see what they are worth.
SWITCHED_OFF = {
    "without the pitch": ("movement",),
    "without the level": ("loudness",),
    "without both": ("movement", "loudness"),
}


def fit(
    scripted: Sequence[Look],
    composed: Sequence[Look] = (),
    *,
    without: Sequence[str] = LEFT_OUT,
    ridge: float = RIDGE,
) -> EndPredictor:
    """Fit the weights.

    Args:
        scripted: rows of callers whose voices are marked; all weights fit them.
        composed: rows of callers whose voices are not; only the weights of their words are kept.
        without: prefixes of signals that are left out.
        ridge: see ``RIDGE``.

    Raises:
        ConfigError: there are no ends, or no holds.
    """
    signals, ends, weight = [], [], []
    for seen, is_composed in ((scripted, False), (composed, True)):
        if is_composed and not seen:
            continue
        _require_both(seen)
        signals += [_signals(row, is_composed=is_composed, without=without) for row in seen]
        of_set = np.array([row.end for row in seen], dtype=float)
        # Ends and holds count alike: the fit gives a likelihood ratio, without the share of pauses that are
        # ends.
        alike = np.where(of_set == 1.0, 1 / of_set.sum(), 1 / (1 - of_set).sum())
        weight.append(alike * len(seen) / 2 / len(LOOKS_MS))
        ends.append(of_set)
    found = _regression(signals, np.concatenate(ends), np.concatenate(weight), ridge)
    return EndPredictor(
        {name: round(value, 4) for name, value in found.items() if not name.startswith(APART)}
    )


def _signals(row: Look, *, is_composed: bool, without: Sequence[str]) -> dict[str, float]:
    signals = sound_signals(row.signs) | other_signals(row.signs)
    kept = {name: value for name, value in signals.items() if not name.startswith(tuple(without) or "-")}
    if not is_composed:
        return kept
    return {f"{APART if name.startswith(SOUND) else ''}{name}": value for name, value in kept.items()}


def _regression(
    signals: Sequence[Mapping[str, float]], ends: np.ndarray, weight: np.ndarray, ridge: float
) -> dict[str, float]:
    names = sorted({name for each in signals for name in each})
    table = np.array([[each.get(name, 0.0) for name in names] for each in signals])
    # The constant terms are not penalised.
    penalty = np.array([1e-6 if name.endswith("_known") else ridge for name in names])
    found = np.zeros(table.shape[1])
    for _ in range(STEPS):
        guess = 1 / (1 + np.exp(-np.clip(table @ found, -30, 30)))
        curvature = table.T @ (table * (weight * guess * (1 - guess))[:, None]) + np.diag(penalty)
        found = found - np.linalg.solve(curvature, table.T @ (weight * (guess - ends)) + penalty * found)
    return {name: float(value) for name, value in zip(names, found, strict=True)}


def area(predictor: EndPredictor, seen: Sequence[Look], look: int) -> float:
    """Return the area under the ROC curve at one look."""
    odds = {True: [0.0] * 0, False: [0.0] * 0}
    for row in seen:
        if row.look == look:
            odds[row.end].append(predictor.end_log_odds(row.signs))
    holds = np.sort(odds[False])
    below = np.searchsorted(holds, odds[True], side="left") + np.searchsorted(holds, odds[True], side="right")
    return float(below.mean() / 2 / max(1, len(holds)))


def _require_both(seen: Sequence[Look]) -> None:
    ends = sum(row.end for row in seen)
    if not 0 < ends < len(seen):
        raise ConfigError(f"{ends} looks at ends and {len(seen) - ends} at holds are too few")


def areas(predictor: EndPredictor, seen: Sequence[Look]) -> dict[str, Any]:
    """Return the areas at each look, of smart-turn's score alone and of the predictor.

    Raises:
        ConfigError: there are no ends, or no holds.
    """
    _require_both(seen)
    score = EndPredictor({"score": 1.0, "late_score": 1.0})
    return {
        "ends": sum(row.end for row in seen if row.look == 0),
        "holds": sum(not row.end for row in seen if row.look == 0),
        **{
            f"area_{look_ms}_ms": {
                "smart_turn": round(area(score, seen, look), 3),
                "predictor": round(area(predictor, seen, look), 3),
            }
            for look, look_ms in enumerate(LOOKS_MS)
        },
    }


def halves(
    scripted: Sequence[ScriptedCall],
    composed: Sequence[ScriptedCall],
    *,
    without: Sequence[str] = LEFT_OUT,
) -> dict[str, dict[str, Any]]:
    """Return the areas on each half of the callers of each set, by weights fitted on the other halves."""
    found = {}
    for name, own, others in (
        ("even callers", slice(0, None, 2), slice(1, None, 2)),
        ("odd callers", slice(1, None, 2), slice(0, None, 2)),
    ):
        predictor = fit(list(looks(scripted[others])), list(looks(composed[others])), without=without)
        found[name] = areas(predictor, list(looks(scripted[own])))
        found[f"{name}, composed"] = areas(predictor, list(looks(composed[own])))
    return found


def check(predictor: EndPredictor, left_out: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that weights may replace those that ship.

    Args:
        predictor: fitted on everything.
        left_out: results of ``areas`` on callers, by weights that were fitted without them.

    Raises:
        AgentError: they may not.
    """
    if not all(math.isfinite(weight) for weight in predictor.weights.values()):
        raise AgentError("no weights were found; nothing is written")
    for name, figures in left_out.items():
        for look_ms in LOOKS_MS:
            found = figures[f"area_{look_ms}_ms"]
            if not found["predictor"] > found["smart_turn"]:
                raise AgentError(
                    f"{name}, {look_ms} ms: {found['predictor']} is no better than smart-turn's score alone "
                    f"({found['smart_turn']}), nothing is written"
                )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.predictor")
    root.add_argument(
        "--keep", type=Path, help="folder of measured tuning callers on which to judge the weights"
    )
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    root.add_argument("--out", type=Path, default=WEIGHTS)
    arguments = root.parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Fit, print, check and write.

    Raises:
        AgentError: recordings were not fetched, weights are missing, a set has no pauses, or the fit is worth
            nothing.
    """
    calls = tuning_callers.scripted(), composed()
    predictor = fit(*(list(looks(each)) for each in calls))
    left_out = halves(*calls)
    figures = dict(left_out)
    for name, signals in SWITCHED_OFF.items():
        others = halves(*calls, without=(*LEFT_OUT, *signals))
        figures |= {f"{half}, {name}": found for half, found in others.items()}
    if arguments.keep:
        people = tuning_callers.people(processes=arguments.processes, kept=arguments.keep)
        figures["recorded people without words"] = areas(predictor, list(looks(people)))
    print(json.dumps(figures, indent=2))
    check(predictor, left_out)
    content = json.dumps({"weights": predictor.weights}, indent=2, sort_keys=True) + "\n"
    replace_file(arguments.out, content.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
