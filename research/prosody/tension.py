"""``python -m research.prosody.tension``: fit the line of the prosody specialist.

The acted exclamations of the tuning side (``evals.perception.prosody`` has the lines that are tense and calm)
pass the specialist's own baseline, in drawn orders. A logistic regression with a ridge penalty weighs the
offsets from the baseline, in within-speaker standard deviations. The bias is then moved until
``--false-share`` of the calm lines reach the score from which a prompt shows "tense". Printed is the area
under the curve on voices that were left out of the fit, one at a time, with the loudness alone for
comparison.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parley.core.errors import AgentError
from parley.evals.harness.command import positive
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import load_tuning
from parley.evals.perception.prosody import SOURCE, area_under_curve, by_voice, kind_of
from parley.models.specialists.prosody import (
    LINE_FILE,
    MEASURES,
    MOST_DEVIATIONS,
    Baseline,
    measure,
)
from parley.models.specialists.prosody import RATE_HZ as RATE
from parley.sequencer.rendering import RenderingSettings
from research.turn_taking.floor import fitted

LEVEL = MEASURES.index("level_db")


def offsets_of(
    utterances: Sequence[RecordedUtterance], orders: int, drawn: np.random.Generator
) -> list[tuple[str, np.ndarray]]:
    """Return the kind and the offsets, (5,), of each tense or calm line of a voice, over drawn orders."""
    measured = [(kind_of(each), measure(each.at_rate(RATE))) for each in utterances]
    found = []
    for _ in range(orders):
        baseline = Baseline()
        for place in drawn.permutation(len(measured)):
            kind, measures = measured[place]
            if measures is None:
                continue
            offsets = baseline.offsets(measures)
            baseline.add(measures)
            if offsets is not None and kind is not None:
                found.append((kind, offsets))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Fit the line and write it; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.prosody.tension", description=__doc__)
    root.add_argument("--orders", type=positive, default=10)
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--ridge", type=float, default=10.0)
    root.add_argument("--false-share", type=float, default=0.05, help="calm lines that may be called tense")
    root.add_argument("--out", type=Path, default=LINE_FILE)
    arguments = root.parse_args(argv)
    try:
        voices = by_voice(load_tuning([SOURCE]))
    except AgentError as error:
        print(error, file=sys.stderr)
        return 2
    drawn = np.random.default_rng(arguments.seed)
    rows = {voice: offsets_of(lines, arguments.orders, drawn) for voice, lines in voices.items()}
    deviations = np.mean([np.std([row for _, row in found], axis=0) for found in rows.values()], axis=0)

    def scaled(names: Sequence[str]) -> tuple[list[np.ndarray], list[bool]]:
        chosen = [row for name in names for row in rows[name]]
        return (
            [np.clip(row / deviations, -MOST_DEVIATIONS, MOST_DEVIATIONS) for _, row in chosen],
            [kind == "tense" for kind, _ in chosen],
        )

    left_out = []
    for voice in rows:
        weights, bias = fitted(*scaled([name for name in rows if name != voice]), ridge=arguments.ridge)
        known, wanted = scaled([voice])
        odds, level = [float(row @ weights + bias) for row in known], [float(row[LEVEL]) for row in known]
        areas = [
            area_under_curve(
                [each for each, is_tense in zip(values, wanted, strict=True) if is_tense],
                [each for each, is_tense in zip(values, wanted, strict=True) if not is_tense],
            )
            for values in (odds, level)
        ]
        left_out.append(areas)
        print(f"{voice}: {areas[0]:.3f}, loudness alone {areas[1]:.3f}")
    mean, loudness = np.mean(left_out, axis=0)
    print(f"mean over voices left out: {mean:.3f}, loudness alone {loudness:.3f}")
    known, wanted = scaled(list(rows))
    weights, _ = fitted(known, wanted, ridge=arguments.ridge)
    calm = [float(row @ weights) for row, is_tense in zip(known, wanted, strict=True) if not is_tense]
    shown = RenderingSettings().stress
    bias = float(np.log(shown / (1 - shown)) - np.quantile(calm, 1 - arguments.false_share))
    line = {
        "deviations": dict(zip(MEASURES, deviations.round(4).tolist(), strict=True)),
        "weights": dict(zip(MEASURES, weights.astype(float).round(4).tolist(), strict=True)),
        "bias": round(bias, 4),
    }
    arguments.out.write_text(json.dumps(line, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
