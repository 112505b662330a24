"""Figures of the order of reports, from events of a timeline."""

from typing import Any

from parley.evals.perception.order import reports, summary, table


def event(
    stream: str, *, event_ms: int, arrival_ms: int, late: bool = False, final: bool = True
) -> dict[str, Any]:
    return {
        "kind": "annotation",
        "event_us": event_ms * 1000,
        "arrival_us": arrival_ms * 1000,
        "final": final,
        "payload": {"stream": stream, "late": late, "body": {}},
    }


def spoken(text: str, *, end_ms: int, event_ms: int, arrival_ms: int) -> dict[str, Any]:
    found = event("stt", event_ms=event_ms, arrival_ms=arrival_ms)
    words = [{"text": text, "start_us": (end_ms - 200) * 1000, "end_us": end_ms * 1000}]
    return {**found, "payload": {**found["payload"], "body": {"words": words}}}


def test_late_reports_are_counted_by_stream():
    found = reports(
        [
            {"kind": "user_turn", "payload": {}},
            event("stt", event_ms=900, arrival_ms=1_000, final=False),
            event("stt", event_ms=800, arrival_ms=1_100, late=True),
            event("vision", event_ms=1_000, arrival_ms=1_200),
            event("vision", event_ms=1_100, arrival_ms=1_300),
        ]
    )
    figures = summary(found)
    assert figures["all"]["late_percent"] == 25.0
    assert figures["streams"]["stt"]["late_percent"] == 50.0
    assert figures["streams"]["vision"]["late"] == 0
    # A partial's latency is an estimate.
    assert figures["streams"]["stt"]["latency_p50_ms"] == 300


def test_an_event_that_is_not_the_end_of_its_last_word_is_found():
    found = reports([spoken("fine", end_ms=700, event_ms=500, arrival_ms=900)])
    assert summary(found)["all"]["off_end_ms"] == 200


def test_the_time_to_its_place_is_that_of_the_commit():
    placed = spoken("fine", end_ms=700, event_ms=700, arrival_ms=900)
    placed["payload"]["committed_us"] = 950_000
    figures = summary(reports([placed, event("vision", event_ms=900, arrival_ms=1_000)]))
    assert figures["all"]["placed_p50_ms"] == 250
    assert figures["streams"]["vision"]["placed_p50_ms"] is None


def test_the_table_has_a_line_for_each_stream():
    found = reports([spoken("fine", end_ms=700, event_ms=700, arrival_ms=900)])
    lines = table(summary(found)).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["all", "stt"]
