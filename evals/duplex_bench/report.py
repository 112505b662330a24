"""Figures of a run as tables. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.evals.harness.report import markdown

PANEL = ("L_R", "L_Y", "R_R", "R_Y", "I_A", "S_BC", "S_VT", "S_ND")


def table(result: Mapping[str, Any]) -> str:
    """Return turns, speech over the bot, and the panel; a dash marks a missing figure."""
    rows: Sequence[Mapping[str, Any]] = result["systems"]
    turns = [
        (
            each["name"],
            _number(each["pause_tor"]),
            _number(each["turn_tor"]),
            _spread(each["turn_latency_ms"]),
            _number(each["joint"]["value"]),
            _number(each["interruption_tor"]),
            _number(each["interruption_answered"]),
            _spread(each["interruption_latency_ms"]),
            _spread(each["interruption_stop_ms"]),
        )
        for each in rows
    ]
    overlaps = [
        (
            each["name"],
            _number(each["backchannel_tor"]),
            _number(each["backchannel_per_s"], 3),
            _number(each["backchannel_jsd"], 3),
            _number(each["backchannel_skill"]),
            _number(each["resume_after_backchannel"]),
            _number(each["resume_after_talking_to_others"]),
            _number(each["resume_after_background"]),
            _number(each["resume_after_tic"]),
        )
        for each in rows
    ]
    panel = [(each["name"], *(_number(each["panel"][name]) for name in PANEL)) for each in rows]
    lines = [
        markdown(
            ("system", "pause TOR", "turn TOR", "latency p50/p95", "joint", "interruption TOR")
            + ("answered", "latency p50/p95", "stop p50/p95"),
            turns,
        ),
        "",
        markdown(
            ("system", "backchannel TOR", "per s", "JSD", "skill", "resumes: backchannel")
            + ("talking to others", "background", "tic"),
            overlaps,
        ),
        "",
        markdown(("system", *PANEL), panel),
        "",
        *(_on_time(each) for each in rows if each["ticks"] is not None),
    ]
    return "\n".join(lines) + "\n"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _spread(values: Mapping[str, float | None]) -> str:
    if values["p50"] is None:
        return "-"
    return f"{values['p50']:.0f} / {values['p95']:.0f} ms"


def _on_time(each: Mapping[str, Any]) -> str:
    ticks, words = each["ticks"], each["ticks"]["words_late_ms"]
    return (
        f"{each['name']}: {ticks['units']} units, {ticks['missed']} missed, "
        f"late p50 {ticks['late_ms']['p50']:.1f} p99 {ticks['late_ms']['p99']:.1f} ms, "
        f"took p50 {ticks['took_ms']['p50']:.1f} p99 {ticks['took_ms']['p99']:.1f} ms, "
        f"{ticks['holes']} holes in its voice; judged by {each['judged_by']}; "
        f"words late p50 {words['p50'] or 0} p99 {words['p99'] or 0} ms, lost {ticks['lost_words']} times"
    )
