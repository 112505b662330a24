"""Faults of a run of the fuzzer."""

from collections import Counter
from dataclasses import replace

from parley.evals.abuse.controls import Report
from parley.evals.abuse.footprint import Footprint
from parley.evals.fuzz.report import Finding, FuzzRun, table

BEFORE = Footprint(rss_mb=1_000, descriptors=40, threads=20, tasks=20, calls=0, stalls=3)
CALL = Report(calls=1, asked=1, answered=1, waits_ms=[800], gap_ms=50)


def run(**changed: object) -> FuzzRun:
    given: dict[str, object] = {
        "sent": {"openai": 100},
        "base": {"socket": CALL},
        "controls": {"socket": CALL},
        "before": BEFORE,
        "later": BEFORE,
        **changed,
    }
    return FuzzRun(1, **given)  # type: ignore[arg-type]


def test_a_sound_server_has_no_fault():
    assert run().faults == []
    assert "no fault" in table(run())


def test_each_kind_of_finding_is_a_fault():
    assert run(places=Counter({"a place": 3})).faults == ["3 times: a place"]
    assert run(controls={"socket": replace(CALL, gap_ms=500)}).faults
    assert run(controls={"socket": replace(CALL, answered=0)}).faults
    assert run(later=replace(BEFORE, descriptors=60)).faults
    assert run(later=replace(BEFORE, calls=1)).faults
    assert run(later=replace(BEFORE, rss_mb=2_000)).faults
    assert run(sent={"openai": 0}).faults == ["nothing was sent by openai"]


def test_the_table_has_the_seed_and_the_message_of_a_finding():
    suspect = {"protocol": "openai", "conversation": 7, "last": ["41: {}", '42: {"type": 1}']}
    text = table(run(findings=[Finding("a place", "KeyError", [suspect])]))
    assert "seed 1" in text
    assert "--protocol openai --conversation 7" in text and '42: {"type": 1}' in text
