"""Explain a turn that a replay decided otherwise: the first steps of the two calls that differ.

Input: the events of both timelines. Between the end of the turn before and the beginning of the next one, the
steps of the two calls (voices, words, decisions, replies) are aligned in order. Output: sentences about the
first of them that one call has alone, or that came at another time. A decision depends on what came before
it, so the first difference is the one to look at. Times count from the caller's arrival. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from parley.recording.comparison import TurnPair

# A busy machine moves steps by less without a change of what is decided.
APART_MS = 120
# What follows a first difference follows from it.
MOST_LINES = 3
# After the last turn of a call.
LAST_MS = 15_000
_MOST_CHARS = 80


@dataclass(frozen=True, slots=True)
class Step:
    """Step of a call.

    Attributes:
        at_ms: its time; of a voice, the moment at which it began or ended.
        name: its name for people, by which two calls are aligned.
        detail: what was decided or said.
    """

    at_ms: int
    name: str
    detail: str = ""

    def __str__(self) -> str:
        detail = self.detail if len(self.detail) <= _MOST_CHARS else f"{self.detail[: _MOST_CHARS - 3]}..."
        return f"{self.name} ({detail})" if detail else self.name


def steps_of(events: Sequence[Mapping[str, Any]], arrival_ms: float = 0.0) -> list[Step]:
    """Return the steps of a timeline in order of time; events that are no steps are left out."""
    steps = [step for event in events if (step := _step(event, arrival_ms)) is not None]
    return sorted(steps, key=lambda step: step.at_ms)


def explain(pairs: Sequence[TurnPair], then: Sequence[Step], now: Sequence[Step]) -> list[tuple[str, ...]]:
    """Return for each pair the sentences about its first different steps; none for a turn decided alike."""
    begins = [_at_ms(pair) for pair in pairs]
    found = list[tuple[str, ...]]()
    for place, pair in enumerate(pairs):
        if pair.is_decided_alike:
            found.append(())
            continue
        since_ms = begins[place - 1] if place else 0
        until_ms = begins[place + 1] if place + 1 < len(pairs) else begins[place] + LAST_MS
        sides = [[step for step in steps if since_ms <= step.at_ms < until_ms] for steps in (then, now)]
        found.append(tuple(islice(_differences(*sides), MOST_LINES)))
    return found


def _at_ms(pair: TurnPair) -> int:
    return min(turn.at_ms for turn in (pair.then, pair.now) if turn is not None)


def _differences(then: Sequence[Step], now: Sequence[Step]) -> Iterator[str]:
    matcher = SequenceMatcher(
        None, [_key(step) for step in then], [_key(step) for step in now], autojunk=False
    )
    for kind, first, last, now_first, now_last in matcher.get_opcodes():
        before, after = then[first:last], now[now_first:now_last]
        if kind != "equal":
            yield from (f"{_clock(step.at_ms)} only then: {step}" for step in before)
            yield from (f"{_clock(step.at_ms)} only now: {step}" for step in after)
            continue
        for one, other in zip(before, after, strict=True):
            apart_ms = other.at_ms - one.at_ms
            if abs(apart_ms) > APART_MS:
                order = "later" if apart_ms > 0 else "earlier"
                yield f"{_clock(one.at_ms)} {abs(apart_ms)} ms {order} now: {one}"


def _key(step: Step) -> tuple[str, str]:
    return step.name, step.detail


def _step(event: Mapping[str, Any], arrival_ms: float) -> Step | None:
    if not isinstance(event.get("at_ms"), int):
        return None
    at_ms, text = round(event["at_ms"] - arrival_ms), str(event.get("text") or "")
    match event.get("event"):
        case "VoiceStarted":
            return Step(at_ms - _ms(event, "voiced_ms"), "a voice begins")
        case "VoiceEnded":
            return Step(at_ms - _ms(event, "silence_ms"), "the voice ends")
        case "UtteranceRead":
            return Step(at_ms, "words are recognised", text)
        case "TurnEndDecided":
            return Step(at_ms, "the end of the turn is decided", str(event.get("rule") or ""))
        case "TurnEnded":
            return Step(at_ms, "the turn ends", text)
        case "TextTyped":
            return Step(at_ms, "a text is typed", text)
        case "ReplyStarted":
            return Step(at_ms, "a reply begins")
        case "ReplyFinished" if event.get("in_context") is False:
            return Step(at_ms, "a phrase that covers the wait ends", text)
        case "ReplyFinished":
            return Step(at_ms, "the reply ends", text)
        case "ReplyDucked":
            return Step(at_ms, "the reply is lowered")
        case "ReplyRestored":
            return Step(at_ms, "the reply is raised again")
        case "ReplyCut":
            return Step(at_ms, "the reply is cut off", str(event.get("reason") or ""))
        case "ReplyResumed":
            return Step(at_ms, "the reply goes on")
    return None


def _ms(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _clock(ms: int) -> str:
    return f"{max(0, ms) // 60_000}:{max(0, ms) % 60_000 / 1_000:05.2f}"
