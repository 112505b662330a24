"""Typed turns of a recorded call, read from its timeline. Pure.

A text was checked and counted when it was typed; of personal data it has what redaction has left. Keys that a
caller pressed are such a turn too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.core.call_events import TextTyped

# A recording may come from anywhere: a call has no more than this.
MOST_TYPED, MOST_CHARACTERS = 1_000, 20_000


@dataclass(frozen=True, slots=True)
class TypedTurn:
    """A typed turn.

    Attributes:
        at_ms: its time, from the caller's arrival.
        text: its text.
    """

    at_ms: int
    text: str


def typed_turns_of(events: Iterable[Mapping[str, Any]], arrival_ms: float) -> tuple[TypedTurn, ...]:
    """Return the typed turns among the events of a timeline, in order of time; the first ``MOST_TYPED``."""
    found = [
        TypedTurn(max(0, round(each["at_ms"] - arrival_ms)), text[:MOST_CHARACTERS])
        for each in events
        if each["event"] == TextTyped.__name__ and isinstance(text := each.get("text"), str) and text.strip()
    ]
    return tuple(sorted(found, key=lambda turn: turn.at_ms)[:MOST_TYPED])
