"""Batches of outside specialists: what is accepted, and where its times are on the session clock."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from parley.core.timeline import (
    Annotation,
    DiarPayload,
    OutsideReport,
    ProsodyPayload,
    Source,
    VisionPayload,
)
from parley.protocols.annotations import (
    CLOCK_TOLERANCE_US,
    MOST_EMBEDDING,
    MOST_REPORTS,
    MOST_TEXT_CHARS,
    VisionReport,
    parse_batch,
    placed,
)
from parley.protocols.client_protocol import ProtocolError

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "outside_specialists.md"
NOW_US, BEGAN_US = 1_000_000_000, 900_000_000


def batch_of(*reports: dict[str, Any]) -> str:
    return json.dumps({"annotations": list(reports)})


def vision(**more: Any) -> dict[str, Any]:
    return {"stream": "vision", "age_ms": 0, "payload": {"ref": "the fee"}, **more}


def prosody(**payload: Any) -> dict[str, Any]:
    return {"stream": "prosody", "age_ms": 0, "payload": payload}


def diar(**payload: Any) -> dict[str, Any]:
    return {"stream": "diar", "age_ms": 0, "payload": {"speaker_id": "ann", **payload}}


def place(*reports: dict[str, Any]) -> list[OutsideReport]:
    return placed(parse_batch(batch_of(*reports)), now_us=NOW_US, began_us=BEGAN_US)


def test_an_age_counts_back_from_the_arrival_and_the_stretch_ends_at_the_event():
    [report] = place(
        {
            "stream": "vision",
            "age_ms": 200,
            "duration_ms": 1_000,
            "payload": {"ref": "the fee", "gesture": "pointing"},
            "confidence": 0.8,
            "speaker": "ann",
            "identity": "g1",
            "revision": 2,
            "final": False,
        }
    )
    seen = VisionPayload(NOW_US - 1_200_000, NOW_US - 200_000, "the fee", "pointing")
    annotation = Annotation(NOW_US - 200_000, NOW_US, Source.VISION, seen, "ann", confidence=0.8, final=False)
    assert report == OutsideReport(Source.VISION, NOW_US - 200_000, annotation, "g1", 2)


def test_the_session_clock_is_taken_as_given_and_each_stream_has_its_payload():
    event_us = NOW_US - 30_000_000
    voice, person = place(
        {"stream": "prosody", "event_us": event_us, "payload": {"stress": 0.9, "pitch_hz": 180}},
        {"stream": "diar", "event_us": event_us, "payload": {"speaker_id": "ann", "embedding": [0.5, -0.5]}},
    )
    assert voice.annotation is not None and person.annotation is not None
    assert voice.annotation.payload == ProsodyPayload(event_us, event_us, stress=0.9, pitch_hz=180)
    assert person.annotation.payload == DiarPayload(event_us, event_us, "ann", (0.5, -0.5))


def test_a_report_without_a_payload_is_a_heartbeat_up_to_its_moment():
    assert place({"stream": "diar", "age_ms": 300}) == [OutsideReport(Source.DIAR, NOW_US - 300_000)]


def test_a_stretch_does_not_begin_before_the_call():
    [report] = place(vision(age_ms=50_000, duration_ms=60_000))
    assert report.annotation is not None
    assert report.annotation.payload.start_us == BEGAN_US  # type: ignore[union-attr]


def test_a_clock_that_is_slightly_ahead_counts_as_now():
    [report] = place({"stream": "vision", "event_us": NOW_US + CLOCK_TOLERANCE_US, "payload": {}})
    assert report.passed_us == NOW_US
    assert report.annotation is not None and report.annotation.event_us == NOW_US


def test_what_was_seen_in_the_second_before_the_call_counts_as_its_beginning():
    batch = parse_batch(batch_of(vision(age_ms=900)))
    [report] = placed(batch, now_us=NOW_US, began_us=NOW_US - 100_000)
    assert report.passed_us == NOW_US - 100_000
    with pytest.raises(ProtocolError, match=f"before the call began .event_us {NOW_US}"):
        placed(parse_batch(batch_of(vision(age_ms=1_001))), now_us=NOW_US, began_us=NOW_US)


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        (
            {"stream": "vision", "event_us": NOW_US + CLOCK_TOLERANCE_US + 1},
            "event_in_the_future",
            f"annotations.1: .*which is at {NOW_US}.*now_us",
        ),
        ({"stream": "vision", "event_us": NOW_US - 60_000_001}, "event_too_old", "more than 60000 ms ago"),
    ],
)
def test_an_impossible_time_refuses_the_batch(report: dict[str, Any], code: str, said: str):
    with pytest.raises(ProtocolError, match=said) as refused:
        place(vision(), report)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "Invalid JSON"),
        ("[" * 100_000, "recursion limit"),
        ("[]", "should be an object"),
        ("{}", "annotations: Field required"),
        (batch_of(*[vision()] * (MOST_REPORTS + 1)), "at most 64 items"),
        (batch_of({**vision(), "stream": "stt"}), "does not match any of the expected tags"),
        (batch_of({**vision(), "note": 1}), "Extra inputs are not permitted"),
        (batch_of({**vision(), "event_us": NOW_US}), "exactly one of age_ms and event_us"),
        (batch_of({"stream": "vision"}), "exactly one of age_ms and event_us"),
        (batch_of(vision(age_ms=-1)), "greater than or equal to 0"),
        (batch_of(vision(age_ms=60_001)), "less than or equal to 60000"),
        (batch_of(vision(age_ms=True)), "valid integer"),
        (batch_of(vision(duration_ms=60_001)), "less than or equal to 60000"),
        (batch_of(vision(confidence=float("nan"))), "finite number"),
        (batch_of(vision(confidence=1.01)), "less than or equal to 1"),
        (batch_of(vision(final=False)), "need an identity"),
        (batch_of(vision(revision=1)), "need an identity"),
        (batch_of(vision(identity="x" * 65)), "at most 64 characters"),
        (batch_of(vision(payload={"ref": ""})), "at least 1 character"),
        (batch_of(vision(payload={"ref": "x" * (MOST_TEXT_CHARS + 1)})), "at most 200 characters"),
        (batch_of(vision(payload={"ref": "the\nfee"})), "match pattern"),
        (batch_of(vision(payload={"ref": "the\0fee"})), "match pattern"),
        (batch_of(vision(payload={"ref": "\ud800"})), "Invalid JSON"),
        (batch_of(vision(payload={"stress": 0.5})), "Extra inputs are not permitted"),
        (batch_of(prosody(stress=float("nan"))), "finite number"),
        (batch_of(prosody(anger=float("inf"))), "finite number"),
        (batch_of(prosody(joy=-0.1)), "greater than or equal to 0"),
        (batch_of(prosody(certainty="0.5")), "valid number"),
        (batch_of(prosody(pitch_hz=0)), "greater than or equal to 20"),
        (batch_of(diar(embedding=[0.1] * (MOST_EMBEDDING + 1))), "at most 256 items"),
        (batch_of(diar(embedding=[float("-inf")])), "finite number"),
        (batch_of({"stream": "diar", "age_ms": 0, "payload": {}}), "speaker_id: Field required"),
    ],
)
def test_a_batch_outside_of_the_bounds_is_refused_with_the_field(text: str, said: str):
    with pytest.raises(ProtocolError, match=said):
        parse_batch(text)


def test_an_embedding_costs_ten_reports():
    assert parse_batch(batch_of(vision(), prosody(), diar(), diar(embedding=[0.1]))).cost == 13


def test_the_documented_request_and_answers_are_those_of_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    [body] = re.findall(r"-d '(.*?)'", text, re.DOTALL)
    [report] = placed(parse_batch(body), now_us=NOW_US, began_us=BEGAN_US)
    assert report.annotation is not None
    assert report.annotation.payload == VisionPayload(
        NOW_US - 1_500_000, NOW_US - 300_000, "the fee", "pointing"
    )
    # A row for each field of a report.
    rows = " ".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == set(VisionReport.model_fields)
