"""Figures of a recogniser over many clips, with intervals by resampling the clips.

Words are pooled: a long clip weighs more than a short one. Intervals are 95 % percentile bootstrap intervals
over clips (Bisani and Ney, 2004). Stability is the edit overhead of Baumann, Atterer and Schlangen (2009):
the share of words that the final transcript did not need, of all words that partials added or took back.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from parley.evals.harness.report import cells, markdown, percentile
from parley.evals.stt.measure import HeardClip

RESAMPLES = 2_000
INTERVAL = (2.5, 97.5)


def summary(clips: Sequence[HeardClip], seed: int = 1) -> dict[str, Any]:
    """Return the figures of one recogniser in one condition."""
    words = sum(len(clip.reference) for clip in clips)
    errors = sum(clip.errors for clip in clips)
    edited = sum(clip.edits for clip in clips)
    needed = sum(len(clip.transcript) for clip in clips)
    partials = [clip.first_partial_ms for clip in clips if clip.first_partial_ms is not None]
    audio_s = sum(clip.audio_s for clip in clips)
    return {
        "clips": len(clips),
        "words": words,
        "word_errors": _rounded(errors / words if words else None),
        "word_errors_interval": word_error_interval(clips, seed),
        "exact_clips": sum(not clip.errors for clip in clips),
        "edit_overhead": _rounded((edited - needed) / edited if edited else None),
        "without_partial": len(clips) - len(partials),
        "first_partial_ms": _percentiles(partials),
        "final_ms": _percentiles([clip.final_ms for clip in clips]),
        "final_cpu_ms": _percentiles([clip.final_cpu_ms for clip in clips]),
        "cpu_per_second_of_audio": _rounded(sum(clip.cpu_s for clip in clips) / audio_s if audio_s else None),
    }


def word_error_interval(clips: Sequence[HeardClip], seed: int) -> list[float] | None:
    """Return the bootstrap interval of the pooled word errors; None without words."""
    errors = np.array([clip.errors for clip in clips])
    words = np.array([len(clip.reference) for clip in clips])
    if not words.sum():
        return None
    drawn = np.random.default_rng(seed).integers(len(clips), size=(RESAMPLES, len(clips)))
    rates = errors[drawn].sum(axis=1) / np.maximum(words[drawn].sum(axis=1), 1)
    return [round(float(edge), 4) for edge in np.percentile(rates, INTERVAL)]


def _percentiles(values: Sequence[float]) -> dict[str, int | None]:
    ranked = {f"p{percent}": percentile(values, percent) for percent in (50, 90)}
    return {name: None if value is None else round(value) for name, value in ranked.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table: a row for each recogniser and condition."""
    head = (
        *("recogniser", "speech", "condition", "clips / words", "word errors (95 %)", "exact"),
        *("edit overhead", "first partial p50 / p90 ms", "final p50 / p90 ms", "its CPU ms", "CPU per s"),
    )
    rows = []
    for row in results:
        low, high = row["word_errors_interval"] or (None, None)
        errors = f"{_percent(row['word_errors'])} ({_percent(low)} to {_percent(high)})"
        times = (cells(row[name], "p50", "p90") for name in ("first_partial_ms", "final_ms", "final_cpu_ms"))
        rows.append(
            (
                *(row["engine"], row["speech"], row["condition"], f"{row['clips']} / {row['words']}"),
                *(errors, row["exact_clips"], _percent(row["edit_overhead"])),
                *(*times, str(row["cpu_per_second_of_audio"])),
            )
        )
    return markdown(head, rows) + "\n"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
