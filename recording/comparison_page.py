"""Show what a replay changed: a table for the console, and a page for people.

The page is one file without scripts. It names the audio of both calls by relative paths: that of the replay
is in the same folder, that of the recorded call stays where it is.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import starmap
from pathlib import Path

from parley.core.errors import ConfigError
from parley.recording.comparison import CallTurn, TurnPair
from parley.recording.folder import MERGED, CallRecording
from parley.runtime.atomic_file import replace_file

PAGE = "index.html"
_MOST_WORDS_CHARS = 60
_NONE = "-"
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
table { width: 100%; border-collapse: collapse; margin: 1rem 0 2rem; }
th, td { padding: 0.35rem 0.6rem; text-align: start; vertical-align: top; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
td.time { font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.decided { background: color-mix(in srgb, #d33 14%, transparent); }
tr.heard { background: color-mix(in srgb, #da3 14%, transparent); }
audio { width: 100%; max-width: 32rem; }
s { opacity: 0.7; }
"""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """Result of the replay of one call.

    Attributes:
        recording: the recorded call.
        audio: stereo WAV of the replay; None where there was none.
        pairs: turns of both.
        notes: sentences about what was not replayed.
        failure: why the call cannot be replayed; empty when it was.
        reasons: for each pair, sentences about the first steps that differ (``divergence``); empty: none.
        currency: of the costs of the turns; empty where the deployment has no prices.
    """

    recording: CallRecording
    audio: Path | None
    pairs: tuple[TurnPair, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    reasons: tuple[tuple[str, ...], ...] = ()
    currency: str = ""

    def explained(self) -> Iterator[tuple[TurnPair, tuple[str, ...]]]:
        """Yield the pairs, each with its reasons."""
        for place, pair in enumerate(self.pairs):
            yield pair, self.reasons[place] if place < len(self.reasons) else ()

    @property
    def is_decided_alike(self) -> bool:
        """It was replayed, and nothing was decided otherwise in any turn."""
        return not self.failure and all(pair.is_decided_alike for pair in self.pairs)


def median_ms(pairs: Sequence[TurnPair], value: Callable[[CallTurn], int | None]) -> tuple[int, int] | None:
    """Return the medians of a time, then and now, over the turns that have it in both; None without any."""
    both = [
        (before, after)
        for pair in pairs
        if pair.then is not None and pair.now is not None
        if (before := value(pair.then)) is not None and (after := value(pair.now)) is not None
    ]
    if not both:
        return None
    then, now = (statistics.median(times) for times in zip(*both, strict=True))
    return round(then), round(now)


def costs(pairs: Sequence[TurnPair]) -> tuple[float | None, float | None]:
    """Return the costs of the turns, then and now; None for a side of which no turn has a known one."""
    then = [pair.then.cost for pair in pairs if pair.then is not None and pair.then.cost is not None]
    now = [pair.now.cost for pair in pairs if pair.now is not None and pair.now.cost is not None]
    return sum(then) if then else None, sum(now) if now else None


def amounts(then: float | None, now: float | None, currency: str = "") -> str:
    """Return two costs for people."""
    shown = " -> ".join(_NONE if cost is None else f"{cost:.3g}" for cost in (then, now))
    return f"{shown} {currency}".rstrip()


def summary(call: ReplayedCall) -> str:
    """Return one sentence about a replayed call."""
    if call.failure:
        return f"not replayed: {call.failure}"
    changed = sum(not pair.is_decided_alike for pair in call.pairs)
    words = sum(bool(pair.differences) and pair.is_decided_alike for pair in call.pairs)
    latency = median_ms(call.pairs, lambda turn: turn.latency_ms)
    facts = [f"{len(call.pairs)} turns, {changed} decided otherwise, {words} with other words of the caller"]
    if latency is not None:
        facts.append(f"latency {latency[0]} -> {latency[1]} ms (median)")
    if _is_priced(call):
        facts.append(f"cost {amounts(*costs(call.pairs), call.currency)}")
    return "; ".join(facts)


def _is_priced(call: ReplayedCall) -> bool:
    return any(cost is not None for cost in costs(call.pairs))


def console_table(call: ReplayedCall) -> str:
    """Return the turns of a replayed call as lines: those that differ with what differs."""
    lines = [f"call {call.recording.call_id}: {summary(call)}"]
    lines += [f"  {note}" for note in call.notes]
    is_priced = _is_priced(call)

    def cost(pair: TurnPair) -> str:
        return f"{_costs(pair):>20}  " if is_priced else ""

    for pair, reasons in call.explained():
        shown = pair.then or pair.now
        assert shown is not None
        what = ", ".join(pair.differences) or "same"
        lines.append(
            f"  {_clock(shown.at_ms):>6}  {_times(pair, lambda turn: turn.latency_ms):>14}  {cost(pair)}"
            f"{_short(_asked(shown))}  [{what}]"
        )
        if not pair.is_decided_alike:
            lines += [
                f"          {name}: {_short(_reply(turn), 2 * _MOST_WORDS_CHARS)}"
                for name, turn in (("then", pair.then), ("now", pair.now))
                if turn is not None
            ]
        lines += [f"          {reason}" for reason in reasons]
    return "\n".join(lines)


def write_page(calls: Sequence[ReplayedCall], path: Path, deployment: str) -> Path:
    """Write the page about replayed calls; return its path.

    Raises:
        ConfigError: it cannot be written.
    """
    alike = sum(call.is_decided_alike for call in calls)
    body = [
        f"<h1>Replay with {escape(deployment)}</h1>",
        f"<p>{alike} of {len(calls)} calls were decided alike. Red: something was decided otherwise. Yellow: "
        "only the words of the caller differ. Times in milliseconds, and costs of engines, then and now.</p>",
        *(_section(call, path.parent) for call in calls),
    ]
    page = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Replay with {escape(deployment)}</title>\n<style>{_STYLE}</style>\n" + "\n".join(body) + "\n"
    )
    try:
        replace_file(path, page.encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return path


def _section(call: ReplayedCall, base: Path) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("at", "caller", "agent", "waited", "latency", "cost", "differs")
    )
    players = "".join(
        f'<p>{name}: <audio controls preload=none src="{escape(os.path.relpath(path, base))}"></audio></p>'
        for name, path in (("then", call.recording.path / MERGED), ("now", call.audio))
        if path is not None and path.exists() and not (name == "then" and call.recording.files.are_encrypted)
    )
    return (
        f"<h2>Call {escape(call.recording.call_id)}</h2><p>{escape(summary(call))}.</p>"
        + "".join(f"<p>{escape(note)}.</p>" for note in call.notes)
        + players
        + f"<table><thead><tr>{head}</tr></thead>"
        + f"<tbody>{''.join(starmap(_row, call.explained()))}</tbody></table>"
    )


def _row(pair: TurnPair, reasons: Sequence[str]) -> str:
    shown = pair.then or pair.now
    assert shown is not None
    tone = "" if not pair.differences else "heard" if pair.is_decided_alike else "decided"
    turns = [turn for turn in (pair.then, pair.now) if turn is not None]
    cells = (
        ("time", escape(_clock(shown.at_ms))),
        ("", _both([escape(_asked(turn)) if turn.text else "<i>unasked</i>" for turn in turns])),
        ("", _both([_reply_html(turn) for turn in turns])),
        ("time", escape(_times(pair, lambda turn: turn.waited_ms))),
        ("time", escape(_times(pair, lambda turn: turn.latency_ms))),
        ("time", escape(_costs(pair))),
        ("", "<br>".join(escape(each) for each in (", ".join(pair.differences), *reasons))),
    )
    filled = "".join(f'<td class="{name}">{cell}</td>' for name, cell in cells)
    return f'<tr class="{tone}">{filled}</tr>'


def _both(cells: Sequence[str]) -> str:
    """Return the same cell once, or one under the other."""
    return cells[0] if len(set(cells)) == 1 else "<hr>".join(cells)


def _reply_html(turn: CallTurn) -> str:
    rest = f" <s>{escape(turn.unheard)}</s>" if turn.unheard else ""
    return f"{escape(turn.heard)}{rest}" or _NONE


def _reply(turn: CallTurn) -> str:
    rest = f" ({'cut: ' if turn.is_cut else 'not heard: '}{turn.unheard})" if turn.unheard else ""
    return f"{turn.heard}{rest}" or "no answer"


def _asked(turn: CallTurn) -> str:
    text = turn.text or "(unasked)"
    return f"typed: {text}" if turn.is_typed else text


def _times(pair: TurnPair, value: Callable[[CallTurn], int | None]) -> str:
    shown = [
        _NONE if turn is None else _NONE if (ms := value(turn)) is None else str(ms)
        for turn in (pair.then, pair.now)
    ]
    return " -> ".join(shown)


def _costs(pair: TurnPair) -> str:
    then, now = (None if turn is None else turn.cost for turn in (pair.then, pair.now))
    return amounts(then, now)


def _clock(ms: int) -> str:
    seconds = max(0, ms) // 1_000
    return f"{seconds // 60}:{seconds % 60:02}"


def _short(text: str, most_chars: int = _MOST_WORDS_CHARS) -> str:
    return text if len(text) <= most_chars else f"{text[: most_chars - 3]}..."
