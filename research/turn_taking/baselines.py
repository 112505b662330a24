"""``python -m research.turn_taking.baselines``: ends of turns by ``boundary`` and its rivals.

Every policy is run on the same generated pauses, scores and words (``endpointing``), in virtual time.
Reported are the holds that it cuts and its waits at the ends. Evidence is fitted and prices are chosen on
tuning seeds and tuning sentences, and reported on others. Static policies are chosen on the reported calls
themselves. ``--sweep`` adds shifted sets on which nothing was chosen.

``--audio`` runs the engines that ship on the pauses, spoken by synthetic voices (``synthetic_speech``). The
scores and words of the scripts are then real; lengths of pauses are drawn anew ``--replays`` times. A run
takes minutes. ``--audio-dir`` stores the measurements and reads them from there the next time.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from parley.evals.harness.command import exit_code, positive
from parley.evals.harness.report import percentile
from parley.evals.turns.callers import ScriptedCall, replayed
from research.turn_taking import synthetic_speech, tuning
from research.turn_taking.calibration import SIGNS, Sample, fit, samples, score_only, sign_of
from research.turn_taking.endpointing import (
    PRICES_MS,
    Judged,
    Priced,
    WeighedPolicy,
    best_statics,
    bound,
    cheapest,
    play,
    prices_for,
    simple,
)
from research.turn_taking.evidence import EvidenceSettings
from research.turn_taking.simulated_callers import TUNING_SEED, SimulationSpec, generate, recognised
from research.turn_taking.synthetic_speech import Lags

RATES = (0.10, 0.05)
FRONTIER_RATES = (0.03, 0.05, 0.075, 0.10, 0.15, 0.20)
# Changes of each shifted set. Nothing was fitted or chosen on any of them.
SHIFTS: dict[str, Callable[[SimulationSpec], SimulationSpec]] = {
    "pauses x0.7": lambda spec: replace(spec, stretch=0.7),
    "pauses x1.5": lambda spec: replace(spec, stretch=1.5),
    "a weaker score": lambda spec: replace(spec, d_prime=spec.d_prime - 0.5),
    "a better score": lambda spec: replace(spec, d_prime=spec.d_prime + 0.5),
    "callers alike": lambda spec: replace(spec, spread=0.2, share_weight=float("inf")),
    "callers differ": lambda spec: replace(spec, spread=0.5, share_weight=6.0),
    "short calls": lambda spec: replace(spec, turns=6),
    "words misheard": lambda spec: replace(spec, last_word_wrong=0.3, fillers_heard=0.2),
    "questions tell nothing": lambda spec: replace(
        spec, habits=replace(spec.habits, holds=(1.0,) * len(spec.habits.holds))
    ),
    "the score hears the words": lambda spec: replace(spec, overlap=0.8),
}
# Keys of the shares by which a mean lies below that of a best static policy, and the signs that policy uses.
RIVALS = {
    "below_static": "below static",
    "below_static_words": "below static on words too",
    "below_static_voice": "below static on all signs",
}


@dataclass(frozen=True, slots=True)
class Told:
    """Signs that a bound or a static policy may use.

    Attributes:
        name: of the bound.
        evidence: weights of the signs.
        contour: true when the end of the pitch is among them.
        voice: true when the end of the voice is among them.
    """

    name: str
    evidence: EvidenceSettings
    contour: bool = False
    voice: bool = False


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.baselines")
    root.add_argument("--callers", type=positive, default=200)
    root.add_argument("--turns", type=positive, default=20, help="turns per caller")
    root.add_argument("--d-prime", type=float, default=2.0, help="sensitivity of the completeness score")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--sweep", action="store_true", help="also measure shifted parameter sets")
    root.add_argument("--audio", action="store_true", help="use scores and words of the real engines")
    root.add_argument("--audio-callers", type=positive, default=20)
    root.add_argument("--audio-turns", type=positive, default=12)
    root.add_argument(
        "--replays", type=positive, default=10, help="replays of the measured calls, with new pauses"
    )
    root.add_argument(
        "--marks", type=float, default=1.0, help="strength with which voices mark pauses and ends"
    )
    root.add_argument(
        "--tune", action="store_true", help="measure the tuning calls as well, instead of using tuning.json"
    )
    root.add_argument(
        "--tuning-callers", type=positive, help="with --audio: number of the committed tuning callers to use"
    )
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    root.add_argument("--audio-dir", type=Path, help="folder for the measured calls")
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the measurements of the arguments.

    Raises:
        AgentError: an engine is not installed or failed.
    """
    began = time.monotonic()
    spec = SimulationSpec(callers=arguments.callers, turns=arguments.turns, d_prime=arguments.d_prime)
    sets = {"as tuned": replace(spec, held_out=True)}
    if arguments.audio_dir:
        arguments.audio_dir.mkdir(parents=True, exist_ok=True)
    if arguments.audio:
        spec = replace(spec, callers=arguments.audio_callers, turns=arguments.audio_turns)
        sets = {"synthetic voices": replace(spec, held_out=True)}
        tuning, rows = _heard_in_tuning(spec, arguments)
    else:
        tuning = list(generate(spec, TUNING_SEED))
        rows = list(samples(tuning))
        if arguments.sweep:
            sets |= {name: shift(sets["as tuned"]) for name, shift in SHIFTS.items()}
    # A Gaussian score is made with a linear calibration; a model's score needs a curve.
    heard, deaf = fit(rows, curved=arguments.audio), score_only(rows, curved=arguments.audio)
    policies: tuple[Priced, ...] = (
        Priced("boundary", False, deaf),
        Priced("boundary-learning", True, deaf),
        Priced("boundary-words", False, heard),
        Priced("boundary-words-learning", True, heard),
    )
    told: tuple[Told, ...] = (Told("bound", deaf), Told("bound-words", heard))
    if arguments.audio:
        pitched = fit(rows, curved=True, contours=True)
        voiced = fit(rows, curved=True, voice=True)
        policies += (
            Priced("boundary-contour-words-learning", True, pitched, contour=True),
            Priced("boundary-voice-words", False, voiced, voice=True),
            Priced("boundary-voice-words-learning", True, voiced, voice=True),
        )
        told += (
            Told("bound-contour-words", pitched, contour=True),
            Told("bound-voice-words", voiced, voice=True),
        )
    prices: dict[tuple[str, float], float] = {}
    for priced in policies:
        found = prices_for(priced, tuning, spec, RATES)
        prices |= {(priced.name, rate): price for rate, price in found.items()}
    result: dict[str, Any] = {
        "kind": "audio" if arguments.audio else "simulator",
        "seed": arguments.seed,
        "tuning_seed": TUNING_SEED,
        "evidence": heard.model_dump(),
        "evidence_of_the_score": deaf.model_dump(),
        "sets": {},
    }
    if arguments.audio:
        result["evidence_with_voice"] = told[-1].evidence.model_dump()
    for name, chosen in sets.items():
        if arguments.audio:
            calls, seen, result["voice_activity"] = _heard(chosen, arguments.seed, arguments)
            result["marks"] = arguments.marks
        else:
            calls = list(generate(chosen, arguments.seed))
            seen = list(samples(calls))
        one = _one_set(calls, chosen, policies, prices, told, frontier=not result["sets"])
        result["sets"][name] = one | {"score": _separation(seen)}
        if arguments.audio:
            result["sets"][name]["signs"] = _signs(seen)
    result["took_s"] = round(time.monotonic() - began, 1)
    return result


def _heard_in_tuning(
    spec: SimulationSpec, arguments: argparse.Namespace
) -> tuple[list[ScriptedCall], list[Sample]]:
    """Return calls and samples of the tuning seed.

    They come from the committed file unless ``--tune`` or other marks are requested.
    """
    if arguments.tune or arguments.marks != tuning.MARKS:
        calls, rows, _ = _heard(spec, TUNING_SEED, arguments)
        return calls, rows
    committed, _ = synthetic_speech.load(synthetic_speech.TUNING, list(generate(tuning.SPEC, TUNING_SEED)))
    measured = committed[: arguments.tuning_callers]
    return replayed(measured, spec, seed=TUNING_SEED, times=arguments.replays), list(samples(measured))


def _heard(
    spec: SimulationSpec, seed: int, arguments: argparse.Namespace
) -> tuple[list[ScriptedCall], list[Sample], dict[str, Any]]:
    """Return the calls with the engines' scores and words.

    Returns:
        All replays, the samples of the measured pauses, and the lags of the engines.
    """
    kind = "held-out" if spec.held_out else "tune"
    name = f"calls-{seed}-{spec.callers}x{spec.turns}-{kind}-marks-{arguments.marks:g}.json"
    kept = arguments.audio_dir / name if arguments.audio_dir else None
    script = list(generate(spec, seed))
    if kept is not None and kept.exists():
        measured, lags = synthetic_speech.load(kept, script)
    else:
        measured, lags = synthetic_speech.measure_in_processes(
            script, spec, seed=seed, marks=arguments.marks, processes=min(arguments.processes, len(script))
        )
        if kept is not None:
            synthetic_speech.save(kept, measured, lags)
    figures = _lags(lags) | {"voices": _of_voices(measured)}
    return replayed(measured, spec, seed=seed, times=arguments.replays), list(samples(measured)), figures


def _lags(lags: Lags) -> dict[str, Any]:
    return {
        "stop_ms": {f"p{p}": percentile(lags.stop_ms, p) for p in (50, 95)},
        "missed_pauses": lags.missed,
        "pauses": lags.pauses,
        "false_stops": lags.false_stops,
        "pieces": lags.pieces,
    }


def _of_voices(measured: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return separation and recognition figures of each voice, and recognition of all together."""
    figures = {}
    for place, (engine, voice) in enumerate(synthetic_speech.VOICES):
        calls = measured[place :: len(synthetic_speech.VOICES)]
        if calls:
            figures[f"{engine} {voice}"] = _separation(list(samples(calls))) | recognised(calls)
    return figures | {"all": recognised(measured)}


def _separation(rows: Sequence[Sample]) -> dict[str, Any]:
    """Return how well the score separates ends from holds."""
    return _separated([row.score for row in rows if row.end], [row.score for row in rows if not row.end])


def _signs(rows: Sequence[Sample]) -> dict[str, Any]:
    """Return the separation by each sign of the end of a voice, where it was measured."""
    figures = {}
    for name in SIGNS:
        known = [(row.end, value) for row in rows if (value := sign_of(row, name)) is not None]
        figures[name] = _separated(
            *([value for end, value in known if end is kind] for kind in (True, False))
        )
    return figures


def _separated(of_ends: Sequence[float], of_holds: Sequence[float]) -> dict[str, Any]:
    """Return how well two kinds are separated, on any scale; below 0 the holds lie higher.

    The area is that of Mann and Whitney; d' is that of two Gaussians with the same area.
    """
    ends, holds = np.array(of_ends), np.array(of_holds)
    if not len(ends) or not len(holds):
        return {"ends": len(ends), "holds": len(holds), "area_under_curve": None, "d_prime": None}
    above = (ends[:, None] > holds[None]).mean() + 0.5 * (ends[:, None] == holds[None]).mean()
    d_prime = math.sqrt(2) * NormalDist().inv_cdf(min(max(float(above), 1e-6), 1 - 1e-6))
    return {
        "ends": len(ends),
        "holds": len(holds),
        "area_under_curve": round(float(above), 4),
        "d_prime": round(d_prime, 3),
    }


def _one_set(
    calls: Sequence[ScriptedCall],
    spec: SimulationSpec,
    policies: Sequence[Priced],
    prices: dict[tuple[str, float], float],
    told: Sequence[Told],
    *,
    frontier: bool,
) -> dict[str, Any]:
    plain = simple(calls, spec)
    rates = FRONTIER_RATES if frontier else RATES
    # Static policies on the score alone, on score and words, and on every sign that any policy here uses.
    statics = {"below_static": _statics(calls, spec, rates, None)}
    statics["below_static_words"] = _statics(calls, spec, rates, told[1])
    if told[-1].voice:
        statics["below_static_voice"] = _statics(calls, spec, rates, told[-1])
    rows = [_row(judged) for judged in plain]
    for rate in RATES:
        rivals = {name: found[rate] for name, found in statics.items() if rate in found}
        rows += [_row(judged) | {"at": rate} for judged in rivals.values()]
        judged_rows = [
            play(priced.name, priced.build(prices[priced.name, rate]), calls, spec) for priced in policies
        ]
        judged_rows += _bounds(calls, spec, rate, told)
        rows += [_row(judged) | {"at": rate} | _below(judged, rivals) for judged in judged_rows]
    points: list[Judged] = []
    equal: list[dict[str, Any]] = []
    if frontier:
        points = [judged for judged in plain if judged.waits_ms]
        points += [judged for found in statics.values() for judged in found.values()]
        points += [judged for rate in FRONTIER_RATES for judged in _bounds(calls, spec, rate, told)]
        for priced in policies:
            swept = {price: play(priced.name, priced.build(price), calls, spec) for price in PRICES_MS}
            points += swept.values()
            for rate in RATES:
                best = cheapest(priced, calls, spec, swept, most_cut=rate)
                if best is not None:
                    rivals = {name: found[rate] for name, found in statics.items() if rate in found}
                    equal.append(_row(best) | {"at": rate} | _below(best, rivals))
    return {
        "spec": asdict(spec),
        "policies": rows,
        "at_equal_rates": equal,
        "frontier": [
            {"policy": p.name, "cut_in_rate": round(p.cut_in_rate, 4), "mean_ms": round(p.mean_ms, 1)}
            for p in points
        ],
    }


def _statics(
    calls: Sequence[ScriptedCall],
    spec: SimulationSpec,
    rates: Sequence[float],
    told: Told | None,
) -> dict[float, Judged]:
    evidence, voice = (None, False) if told is None else (told.evidence, told.voice)
    rules = best_statics(calls, spec, rates, evidence=evidence, voice=voice)
    return {rate: play(rule.name, partial(WeighedPolicy, rule), calls, spec) for rate, rule in rules.items()}


def _bounds(
    calls: Sequence[ScriptedCall], spec: SimulationSpec, rate: float, told: Sequence[Told]
) -> list[Judged]:
    return [
        bound(
            one.name, calls, spec, most_cut=rate, evidence=one.evidence, contour=one.contour, voice=one.voice
        )
        for one in told
    ]


def _below(judged: Judged, rivals: Mapping[str, Judged]) -> dict[str, float]:
    """Return the shares by which the mean wait lies below those of the best static policies."""
    return {name: round(1 - judged.mean_ms / rival.mean_ms, 3) for name, rival in rivals.items()}


def _row(judged: Judged) -> dict[str, Any]:
    return {
        "name": judged.name,
        "cut_in_rate": round(judged.cut_in_rate, 4),
        "endpoint_ms": {
            "p50": percentile(judged.waits_ms, 50),
            "p95": percentile(judged.waits_ms, 95),
            "mean": round(judged.mean_ms, 1) if judged.waits_ms else None,
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown tables."""
    lines = []
    for name, one in result["sets"].items():
        score = one["score"]
        lines += [
            f"{name} ({result['kind']}; seed {result['seed']}, tuned on seed {result['tuning_seed']}; "
            f"{score['ends']} ends, {score['holds']} holds, d' {score['d_prime']}):",
            "",
        ]
        lines += [
            f"| policy | holds cut | mean ms | p50 | p95 | {' | '.join(RIVALS.values())} |",
            "|" + "---|" * (5 + len(RIVALS)),
        ]
        for row in one["policies"]:
            ends = row["endpoint_ms"]
            shares = " | ".join(f"{100 * row[key]:.1f} %" if key in row else "" for key in RIVALS)
            at = f" (at {100 * row['at']:.0f} %)" if "at" in row else ""
            lines.append(
                f"| {row['name']}{at} | {100 * row['cut_in_rate']:.1f} % | {_ms(ends['mean'])} "
                f"| {_ms(ends['p50'])} | {_ms(ends['p95'])} | {shares} |"
            )
        lines.append("")
        if one["at_equal_rates"]:
            lines += [
                "the same with prices chosen on the reported calls, as those of static policies are:",
                "",
            ]
            lines += [
                f"| policy | holds cut | mean ms | {' | '.join(RIVALS.values())} |",
                "|" + "---|" * (3 + len(RIVALS)),
            ]
            for row in one["at_equal_rates"]:
                shares = " | ".join(f"{100 * row[key]:.1f} %" if key in row else "" for key in RIVALS)
                lines.append(
                    f"| {row['name']} (at {100 * row['at']:.0f} %) | {100 * row['cut_in_rate']:.1f} % "
                    f"| {_ms(row['endpoint_ms']['mean'])} | {shares} |"
                )
            lines.append("")
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return exit_code(lambda: _print(arguments))


def _print(arguments: argparse.Namespace) -> int:
    result = run(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
