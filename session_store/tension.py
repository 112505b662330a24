"""Tension of the caller's voice, as the turns of a session record it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.turn_taking.tier_offers import JudgedStretch

# Scores of a stretch that count as tension.
_SCORES = ("anger", "stress")


def judged_stretches(payload: Mapping[str, Any]) -> list[JudgedStretch]:
    """Return the stretches of a turn whose tension was judged, in order; an odd payload has none."""
    stored = payload.get("tokens")
    tokens = stored if isinstance(stored, Sequence) and not isinstance(stored, str) else ()
    found: dict[tuple[int, int], float] = {}
    for token in tokens:
        prosody = token.get("prosody") if isinstance(token, Mapping) else None
        if not isinstance(prosody, Mapping):
            continue
        place = prosody.get("start_us"), prosody.get("end_us")
        scores = [prosody.get(name) for name in _SCORES]
        known = [float(score) for score in scores if isinstance(score, int | float) and score is not True]
        if known:
            # Of a report without a place it is known that it was tense, and not for how long.
            start_us, end_us = (each if type(each) is int else 0 for each in place)
            found[start_us, end_us] = max(known)
    return sorted(JudgedStretch(*place, score) for place, score in found.items())
