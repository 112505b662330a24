"""The voice metrics of tau2-bench, from who speaks when: seconds and shares, on ticks of 200 ms.

    L_R  end of a turn of the caller to the bot's answer, s     R_R  share of turns that are answered before
    L_Y  start of an interruption to the bot's silence, s            the caller speaks again
    I_A  times the bot begins while the caller speaks, by turn  R_Y  share of interruptions at which the bot
                                                                     falls silent within 2.0 s
    S_BC, S_VT, S_ND  share of backchannels, vocal tics and speech that is not meant for the bot that it
         leaves alone: in the middle of its talk it does not stop within 1.0 s, while it is silent it does not
         begin within 2.0 s

A bot speaks in a tick in which it is audible. ``HOLD_MS`` of silence between two sentences are no end, and a
backchannel ("mhm") is no speech. Figures on fewer than ``LEAST`` events are None. Interruptions count while
the bot speaks. A caller who pauses and continues is a turn for I_A: the bot interrupts it when it begins
after the first pause. Such a turn wants no answer before the clip is over.

Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from parley.evals.duplex_bench.clips import Event, Kind
from parley.evals.duplex_bench.spoken import Segment, Spoken, is_backchannel

TICK_MS = 200
YIELD_MS = 2_000
SPEAKING_MS, SILENT_MS = 1_000, 2_000
# Longer than the silence of a voice between two clauses.
HOLD_MS = 600
LEAST = 10


@dataclass(slots=True)
class Counted:
    """Sums over the clips of a system.

    Attributes:
        responses_ms: latency of each answer that came.
        turns: number of turns that wanted one.
        yields_ms: latency of each stop that came.
        interruptions: number of interruptions while the bot spoke.
        held: number of turns with pauses, whose end is not in the clip.
        cut_ins: number of times the bot began while the caller spoke.
        selective: by kind, true for each event that was left alone.
    """

    responses_ms: list[int] = field(default_factory=list)
    turns: int = 0
    yields_ms: list[int] = field(default_factory=list)
    interruptions: int = 0
    held: int = 0
    cut_ins: int = 0
    selective: dict[str, list[bool]] = field(default_factory=lambda: {"S_BC": [], "S_VT": [], "S_ND": []})


def count(events: Sequence[Event], spoken: Spoken, into: Counted) -> None:
    """Count the events of one clip."""
    talk = [each for each in spoken.joined(HOLD_MS) if not is_backchannel(each, spoken.words_in(each))]
    ticks = speaks(talk, spoken.length_ms)
    wanted = [event for event in events if event.kind.wants_answer]
    for place, event in enumerate(wanted):
        until_ms = wanted[place + 1].began_ms if place + 1 < len(wanted) else spoken.length_ms
        into.turns += 1
        _count_response(event, until_ms, ticks, into)
        if event.kind is Kind.INTERRUPTION:
            _count_yield(event, ticks, into)
    into.cut_ins += sum(_cuts_in(event.began_ms, event.ended_ms, ticks) for event in wanted)
    pauses = [event for event in events if event.kind is Kind.PAUSE]
    if pauses and not wanted:
        into.held += 1
        into.cut_ins += _cuts_in(pauses[0].began_ms, spoken.length_ms, ticks)
    for event in events:
        name = _selectivity(event.kind)
        ignored = None if name is None else _leaves_alone(event, ticks)
        if name is not None and ignored is not None:
            into.selective[name].append(ignored)


def panel(counted: Counted) -> dict[str, float | None]:
    """Return the eight figures."""
    enough = counted.turns >= LEAST
    figures: dict[str, float | None] = {
        "L_R": _mean_s(counted.responses_ms) if enough else None,
        "L_Y": _mean_s(counted.yields_ms) if counted.interruptions >= LEAST else None,
        "R_R": _share(len(counted.responses_ms), counted.turns),
        "R_Y": _share(sum(ms <= YIELD_MS for ms in counted.yields_ms), counted.interruptions),
        "I_A": _share(counted.cut_ins, counted.turns + counted.held),
    }
    for name, ignored in counted.selective.items():
        figures[name] = _share(sum(ignored), len(ignored))
    return figures


def counts(counted: Counted) -> dict[str, int]:
    """Return the number of events of each figure."""
    return {
        "turns": counted.turns,
        "held_turns": counted.held,
        "interruptions": counted.interruptions,
        **{name: len(ignored) for name, ignored in counted.selective.items()},
    }


def speaks(segments: Iterable[Segment], length_ms: int) -> np.ndarray:
    """Return the ticks in which the bot is audible: bool, (ticks,)."""
    ticks = np.zeros(-(-length_ms // TICK_MS), bool)
    for each in segments:
        ticks[each.began_ms // TICK_MS : -(-each.ended_ms // TICK_MS)] = True
    return ticks


def _tick(ms: int) -> int:
    return ms // TICK_MS


def _count_response(event: Event, until_ms: int, ticks: np.ndarray, into: Counted) -> None:
    """Count the first tick after the end in which the bot begins; speech that goes on is no answer."""
    first = _tick(event.ended_ms)
    for tick in range(max(1, first), min(len(ticks), -(-until_ms // TICK_MS))):
        if ticks[tick] and not ticks[tick - 1]:
            into.responses_ms.append(max(0, tick * TICK_MS - event.ended_ms))
            return


def _count_yield(event: Event, ticks: np.ndarray, into: Counted) -> None:
    first = _tick(event.began_ms)
    if first >= len(ticks) or not ticks[first]:
        return
    into.interruptions += 1
    silent = np.flatnonzero(~ticks[first:])
    if silent.size:
        into.yields_ms.append(max(0, (first + int(silent[0])) * TICK_MS - event.began_ms))


def _cuts_in(began_ms: int, ended_ms: int, ticks: np.ndarray) -> int:
    """Count the begins of the bot between begin and end of the caller's speech, without the edges."""
    first, last = _tick(began_ms) + 1, min(_tick(ended_ms), len(ticks))
    return sum(bool(ticks[tick] and not ticks[tick - 1]) for tick in range(max(1, first), last))


def _selectivity(kind: Kind) -> str | None:
    if kind.is_non_directed:
        return "S_ND"
    return {Kind.BACKCHANNEL: "S_BC", Kind.TIC: "S_VT"}.get(kind)


def _leaves_alone(event: Event, ticks: np.ndarray) -> bool | None:
    """Return whether the bot leaves the event alone; None when the clip ends before that is known."""
    first = _tick(event.began_ms)
    if first >= len(ticks):
        return None
    speaks = bool(ticks[first])
    count = (SPEAKING_MS if speaks else SILENT_MS) // TICK_MS + 1
    window = ticks[first : first + count]
    if (window != speaks).any():
        return False
    return True if len(window) == count else None


def _share(some: int, of: int) -> float | None:
    return round(some / of, 4) if of >= LEAST else None


def _mean_s(values_ms: Sequence[int]) -> float | None:
    return round(float(np.mean(values_ms)) / 1000, 3) if values_ms else None
