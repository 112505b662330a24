"""Markdown tables and the waterfall picture of the figures.

Inputs are the JSON objects of ``figures.summary``, ``capacity.measure`` and ``call_start.measure``; the
module decides their presentation only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError
from parley.evals.harness.report import cell, cells, markdown, picture
from parley.evals.latency.figures import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS
from parley.evals.latency.spans import SPANS, UNEXPLAINED

NAMES = {
    "network_in": "network in (packet, codec, jitter buffer)",
    "endpoint_wait": "endpoint wait",
    "stt_final": "final transcript",
    "llm_first_token": "first word of the answer",
    "first_clause": "first clause",
    "tts_first_audio": "first audio of the voice",
    "playout_queue": "playout queue",
    "network_out": "network out (packet, codec, client jitter buffer)",
    UNEXPLAINED: "unexplained",
}
PERCENTS = ("p50", "p95", "p99")
CAPACITY_HEAD = (
    *("calls", "lateness p50 / p95 / p99 ms", "stretch p50 / p95 / p99 ms", "gaps > 40 ms"),
    *("voice-to-voice p50 / p95 / p99 ms", "unanswered", "server CPU", "host took"),
    *("client lag p99 ms", ""),
)
# Colour-blind safe (Okabe-Ito), in the order of the spans.
COLOURS = (
    "#56B4E9",
    "#D55E00",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#F0E442",
    "#999999",
    "#0072B2",
    "#000000",
)


def latency_table(result: Mapping[str, Any]) -> str:
    """Return percentiles with the false cut-ins, then the spans, as Markdown."""
    systems = _systems(result)
    rows = []
    for name, figures in systems.items():
        value = figures["voice_to_voice_ms"]
        turns, paused = figures["turns"], figures["turns_with_pause"]
        cut_ins = (
            f"{figures['false_cut_ins']} of {turns} "
            f"({figures['false_cut_ins_in_pauses']} of {paused} with a pause)"
        )
        rows.append((name, turns, *(value[key] for key in PERCENTS), cut_ins, figures["unanswered"]))
    head = ("system", "turns", "p50 ms", "p95 ms", "p99 ms", "false cut-ins", "unanswered")
    lines = [markdown(head, rows)]
    for name, figures in systems.items():
        apart = figures.get("by_speech") or {"": figures}
        for kind, part in apart.items():
            met, value = part["pauses"], part["voice_to_voice_ms"]
            timed = f"p50 {cell(value['p50'])}, p95 {cell(value['p95'])} ms of {part['turns']} turns; "
            lines += [
                "",
                f"{name}{f', {kind} speech' if kind else ''}: {timed if kind else ''}{met['cut']} of "
                f"{met['met']} pauses of {SHORTEST_PAUSE_MS} to {LONGEST_PAUSE_MS} ms cut into.",
            ]
    for name, figures in systems.items():
        if figures["masked"]:
            lines += ["", f"{name}: {figures['masked']} turns began with a phrase that covers the wait."]
    for name, figures in systems.items():
        if figures["answered_ahead"]:
            ahead, turns = figures["answered_ahead"], figures["turns"]
            lines += [
                "",
                f"{name}: the model had been asked ahead, with the same words, in {ahead} of {turns}.",
            ]
    if result.get("ratio_p50") is not None:
        lines += ["", f"p50 is {result['ratio_p50']:.2f} of the stock pipeline's."]
    for name, figures in systems.items():
        if figures["spans_ms"]:
            lines += ["", *_span_rows(name, figures)]
    return "\n".join(lines) + "\n"


def _span_rows(name: str, figures: Mapping[str, Any]) -> list[str]:
    spans = figures["spans_ms"]
    rows = []
    for span, mean in spans.items():
        ranked = figures["span_percentiles_ms"].get(span, {})
        rows.append((NAMES[span], mean, *(ranked.get(key) for key in PERCENTS)))
    rows.append(("sum", f"{sum(spans.values()):.1f}", "", "", ""))
    error = cell(figures["span_error_ms"]["p95"])
    return [
        f"Where the time goes ({name}, mean of the middle half of {figures['turns_with_spans']} turns):",
        "",
        markdown(("span", "mean ms", "p50 ms", "p95 ms", "p99 ms"), rows),
        "",
        f"Recorded voice-to-voice and the sum of the spans differ by at most {error} ms (p95).",
    ]


def capacity_table(result: Mapping[str, Any]) -> str:
    """Return every step of every system, as Markdown."""
    lines = []
    for name, figures in _systems(result).items():
        rows = []
        for step in figures["steps"]:
            cpu = "" if step["server_cpu"] is None else f"{step['server_cpu'] * 100:.0f} %"
            taken = "" if step["host_took"] is None else f"{step['host_took'] * 100:.1f} %"
            rows.append(
                (
                    *(step["calls"], cells(step["lateness_ms"]), cells(step["stretch_ms"])),
                    f"{step['gaps_over_40_ms']} of {step['replies']}",
                    cells(step["voice_to_voice_ms"]),
                    f"{step['unanswered']} of {step['questions']}",
                    *(cpu, taken, step["client_lag_ms"]["p99"]),
                    "passed" if step["passed"] else step["broken"] or "failed",
                )
            )
        lines += [
            f"{name}: {figures['capacity']} simultaneous calls; by lateness alone "
            f"{figures['capacity_by_lateness']}; voice-to-voice of one call alone "
            f"{cells(figures['unloaded_voice_to_voice_ms'])} ms",
            "",
            markdown(CAPACITY_HEAD, rows),
            "",
        ]
    return "\n".join(lines)


def call_start_table(result: Mapping[str, Any]) -> str:
    """Return the lateness that a starting call adds to a running one, as Markdown."""
    rows = []
    for name, figures in _systems(result).items():
        ours, added = figures["nothing_stolen"], figures["added_ms"]
        worst = f"{ours['starts']}: {ours['added_ms']['max']}" if ours["added_ms"] else "0"
        limits = (figures["control_ms"]["max"], figures["limit_ms"])
        rows.append((name, figures["starts"], cells(added), added["max"], *limits, worst))
    head = (
        *(
            "system",
            "starts",
            "added p50 / p95 / p99 ms",
            "worst ms",
            "without a start, worst ms",
            "limit ms",
        ),
        *("limit ms", "starts in which the host stole nothing: worst ms"),
    )
    return markdown(head, rows) + "\n"


def _systems(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    baseline = result.get("baseline")
    name = "stock Pipecat" if result.get("system") == "stock" else "Parley"
    return {name: result, **({"stock Pipecat": baseline} if baseline else {})}


def waterfall(result: Mapping[str, Any], path: Path) -> None:
    """Draw the mean spans as one staircase of bars, with the percentiles of both systems above.

    Raises:
        ConfigError: matplotlib is not installed, or the server gave no marks.
    """
    spans = result["spans_ms"]
    if not spans:
        raise ConfigError("no waterfall: the server sent no turn marks")
    with picture(path, (10, 5.2)) as (figure, axes):
        _draw(result, figure, axes)


def _draw(result: Mapping[str, Any], figure: Any, axes: Any) -> None:
    spans = result["spans_ms"]
    reached = 0.0
    for row, (name, length) in enumerate(spans.items()):
        index = (*SPANS, UNEXPLAINED).index(name)
        axes.barh(
            row, length, left=reached, color=COLOURS[index], edgecolor="black", linewidth=0.5, height=0.7
        )
        label = axes.text(
            max(reached, reached + length) + 6, row, f"{length:.0f} ms", va="center", fontsize=9
        )
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
        reached += length
    total = reached
    axes.axvline(total, color="black", linewidth=1, zorder=0.5)
    axes.set_yticks(range(len(spans)), [NAMES[name] for name in spans], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, total * 1.14)
    axes.set_xlabel("milliseconds after the caller's last audible sample")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    lines = []
    for name, figures in _systems(result).items():
        value = figures["voice_to_voice_ms"]
        lines.append(
            f"{name}: p50 {cell(value['p50'])}, p95 {cell(value['p95'])}, p99 {cell(value['p99'])} ms, "
            f"{figures['false_cut_ins']} false cut-ins in {figures['turns']} turns"
        )
    figure.suptitle("Voice to voice at the client", fontsize=13, fontweight="bold")
    axes.set_title("\n".join(lines), fontsize=9, loc="left")
