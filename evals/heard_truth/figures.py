"""Figures of many interruptions, and the tables that show them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from parley.evals.harness.report import cells, markdown, percent, percentile
from parley.evals.heard_truth.calls import Interruption

GOAL_PERCENT = 95


def summary(
    interruptions: Sequence[Interruption], *, left_out: Mapping[str, int] | None = None, surplus: int = 0
) -> dict[str, Any]:
    """Return the JSON of a run.

    Args:
        interruptions: those that count.
        left_out: questions that interrupted nothing, by reason.
        surplus: interruptions beyond the requested number.
    """
    left_out = dict(left_out or {})
    errors = [one.word_error for one in interruptions]
    known = [error for error in errors if error is not None]
    released = [
        one.released_words - one.heard_words
        for one in interruptions
        if one.released_words is not None and one.heard_words is not None
    ]
    audio_ms = [
        one.record_ms - one.heard_ms
        for one in interruptions
        if one.record_ms is not None and one.heard_ms is not None
    ]
    remembered = [one.remembered for one in interruptions if one.remembered is not None]
    return {
        "interruptions": len(interruptions),
        "attempts": len(interruptions) + surplus + sum(left_out.values()),
        "left_out": left_out,
        "surplus": surplus,
        # An interruption that could not be judged counts as a miss: only demonstrated results are claimed.
        "within_one_word_percent": percent(sum(abs(error) <= 1 for error in known), len(errors)),
        "exact_percent": percent(sum(error == 0 for error in known), len(errors)),
        "without_record": sum(one.record_words is None for one in interruptions),
        "without_truth": sum(one.heard_words is None for one in interruptions),
        "word_errors": _histogram(known),
        "audio_error_ms": _spread([abs(error) for error in audio_ms]),
        "audio_bias_ms": percentile(audio_ms, 50),
        "stop_ms": _spread([one.stop_ms for one in interruptions]),
        # Share of all: without a record, the context cannot agree.
        "context_agrees_percent": percent(sum(remembered), len(interruptions)) if remembered else None,
        "pipecat_rule": {
            "within_one_word_percent": percent(sum(abs(e) <= 1 for e in released), len(errors)),
            "exact_percent": percent(sum(e == 0 for e in released), len(errors)),
            "word_errors": _histogram(released),
        }
        if released
        else None,
        "per_interruption": [{**asdict(one), "word_error": one.word_error} for one in interruptions],
    }


def by_speech(interruptions: Sequence[Interruption]) -> dict[str, dict[str, Any]]:
    """Return the figures of people and of synthetic voices separately."""
    kinds = sorted({one.speech for one in interruptions})
    return {kind: summary([one for one in interruptions if one.speech == kind]) for kind in kinds}


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    rule = result["pipecat_rule"]
    rows = [
        ("interruptions", result["interruptions"], ""),
        ("attempts that interrupted nothing", _left_out(result["left_out"]), ""),
        ("interruptions beyond the number asked for", result["surplus"], ""),
        (
            f"last word within one, % (goal {GOAL_PERCENT})",
            result["within_one_word_percent"],
            rule["within_one_word_percent"] if rule else "",
        ),
        ("last word exact, %", result["exact_percent"], rule["exact_percent"] if rule else ""),
        (
            "errors in words",
            _as_text(result["word_errors"]),
            _as_text(rule["word_errors"]) if rule else "",
        ),
        ("no record / no truth", f"{result['without_record']} / {result['without_truth']}", ""),
        ("error of audio_ms, p50 / p95", cells(result["audio_error_ms"], "p50", "p95"), ""),
        ("barge-in stop ms, p50 / p95", cells(result["stop_ms"], "p50", "p95"), ""),
        ("context holds the record's text, %", result["context_agrees_percent"], ""),
    ]
    lines = [markdown(("", "playout clock", "Pipecat's rule"), rows)]
    for kind, part in result.get("by_speech", {}).items():
        within, stop = part["within_one_word_percent"], cells(part["stop_ms"], "p50", "p95")
        lines += [
            "",
            f"{part['interruptions']} by {kind} voices: {within} % within one word, stop {stop} ms.",
        ]
    machine = result.get("machine")
    if machine:
        lines += [
            "",
            f"{machine['cpus']} CPUs, load {machine['load_1min']} at the end, {machine['finished']}.",
        ]
    return "\n".join(lines) + "\n"


def _left_out(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in reasons.items()) or "0"


def _as_text(histogram: dict[str, int]) -> str:
    return ", ".join(f"{error}: {count}" for error, count in histogram.items())


def _histogram(errors: Sequence[int]) -> dict[str, int]:
    counts = Counter(errors)
    return {f"{error:+d}" if error else "0": counts[error] for error in sorted(counts)}


def _spread(values: Sequence[int]) -> dict[str, float | None]:
    return {
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
        "max": max(values, default=None),
    }
