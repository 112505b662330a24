"""Reports of a session in the order in which the sequencer committed them. Pure: events in, figures out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.evals.harness.report import cell, markdown, percent, percentile
from parley.session_store.events import Kind


@dataclass(frozen=True, slots=True)
class Reported:
    """A report of a specialist in the timeline.

    Attributes:
        stream: the specialist.
        event_us: when it happened.
        arrival_us: when the report arrived.
        is_final: true when no revision of it will come.
        is_late: true when a report that belongs after it had been committed before.
        ended_us: end of its last word. None for a report without words and times.
        placed_us: when it was placed. None in a timeline of an earlier release.
    """

    stream: str
    event_us: int
    arrival_us: int
    is_final: bool
    is_late: bool
    ended_us: int | None = None
    placed_us: int | None = None


def reports(events: Iterable[Mapping[str, Any]]) -> list[Reported]:
    """Return the reports among the events of a timeline."""
    return [_report(event) for event in events if event["kind"] == Kind.ANNOTATION.value]


def summary(found: Sequence[Reported]) -> dict[str, Any]:
    """Return the figures by stream, and of all."""
    streams = sorted({one.stream for one in found})
    return {
        "all": _figures(found),
        "streams": {name: _figures([one for one in found if one.stream == name]) for name in streams},
    }


def table(result: Mapping[str, Any]) -> str:
    """Format the figures as a table; latencies are those of final reports."""
    rows = [("all", result["all"]), *result["streams"].items()]
    head = [
        "stream",
        "reports",
        "late",
        "late, %",
        "event to arrival, p50 ms",
        "p95 ms",
        "event off the end of the last word, at most ms",
        "event to its place, p50 ms",
        "p95 ms",
    ]
    return markdown(head, [[name, *map(cell, figures.values())] for name, figures in rows])


def _report(event: Mapping[str, Any]) -> Reported:
    payload = event["payload"]
    words = payload["body"].get("words") or ()
    return Reported(
        stream=payload["stream"],
        event_us=event["event_us"],
        arrival_us=event["arrival_us"],
        is_final=event["final"],
        is_late=payload["late"],
        ended_us=words[-1]["end_us"] if words else None,
        placed_us=payload.get("committed_us"),
    )


def _figures(found: Sequence[Reported]) -> dict[str, Any]:
    latencies_us = [one.arrival_us - one.event_us for one in found if one.is_final]
    off_us = [abs(one.event_us - one.ended_us) for one in found if one.ended_us is not None]
    placed_us = [one.placed_us - one.event_us for one in found if one.placed_us is not None]
    late = sum(one.is_late for one in found)
    return {
        "reports": len(found),
        "late": late,
        "late_percent": percent(late, len(found)),
        "latency_p50_ms": _ms(percentile(latencies_us, 50)),
        "latency_p95_ms": _ms(percentile(latencies_us, 95)),
        "off_end_ms": _ms(max(off_us, default=None)),
        "placed_p50_ms": _ms(percentile(placed_us, 50)),
        "placed_p95_ms": _ms(percentile(placed_us, 95)),
    }


def _ms(value_us: float | None) -> int | None:
    return None if value_us is None else round(value_us / 1000)
