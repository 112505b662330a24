"""Facts of a replayed call for JSON: turn by turn words, decisions, times and cost, then and now. Pure."""

from dataclasses import asdict
from operator import attrgetter
from typing import Any

from parley.recording.comparison_page import ReplayedCall, costs, median_ms, summary

# File of the facts, next to the page.
RESULT = "result.json"


def facts_of_replay(call: ReplayedCall) -> dict[str, Any]:
    """Return the facts of a replayed call; the pairs come in the order of the call."""
    then, now = costs(call.pairs)
    times = {"waited_ms": _median(call, "waited_ms"), "latency_ms": _median(call, "latency_ms")}
    return {
        "summary": summary(call),
        "failure": call.failure,
        "is_decided_alike": call.is_decided_alike,
        "notes": list(call.notes),
        "median": times,
        "cost": {"then": then, "now": now, "currency": call.currency},
        "turns": [
            {
                "differences": [each.name.lower() for each in pair.differences],
                "is_decided_alike": pair.is_decided_alike,
                "reasons": list(reasons),
                "then": None if pair.then is None else asdict(pair.then),
                "now": None if pair.now is None else asdict(pair.now),
            }
            for pair, reasons in call.explained()
        ],
    }


def _median(call: ReplayedCall, name: str) -> dict[str, int] | None:
    found = median_ms(call.pairs, attrgetter(name))
    return None if found is None else {"then": found[0], "now": found[1]}
