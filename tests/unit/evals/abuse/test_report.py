"""Verdicts: each limit fails a row that is over it and passes one that is on it."""

from dataclasses import replace
from typing import Any

import pytest

from parley.evals.abuse.controls import Report
from parley.evals.abuse.footprint import Footprint, stalls_in
from parley.evals.abuse.registry import Outcome
from parley.evals.abuse.report import Row, control_faults, footprint_faults, table

QUIET = Report(calls=1, asked=2, answered=2, waits_ms=[700, 900], gap_ms=30.0)
IDLE = Footprint(rss_mb=500.0, descriptors=30, threads=10, tasks=9, calls=0, stalls=0)


def heard(**changed: Any) -> Report:
    return replace(QUIET, **changed)


@pytest.mark.parametrize(("gap_ms", "faults"), [(90.0, 0), (91.0, 1), (None, 1)])
def test_a_gap_may_be_60_ms_longer_than_without_the_attack(gap_ms: float | None, faults: int):
    assert len(control_faults("phone", QUIET, heard(gap_ms=gap_ms))) == faults


@pytest.mark.parametrize(("asked", "answered"), [(2, 1), (0, 0)])
def test_every_question_has_to_be_answered(asked: int, answered: int):
    assert control_faults("phone", QUIET, heard(asked=asked, answered=answered))


def test_a_call_that_breaks_fails_the_row():
    assert control_faults("phone", QUIET, heard(broken=["PeerError: the call broke"]))


def test_late_answers_count_where_an_attack_is_judged_by_them():
    late = heard(waits_ms=[700, 2_200])
    assert not control_faults("phone", QUIET, late)
    assert control_faults("phone", QUIET, late, judges_wait=True)


@pytest.mark.parametrize(
    ("changed", "is_fault"),
    [
        ({"rss_mb": 550.0}, False),
        ({"rss_mb": 551.0}, True),
        ({"descriptors": 32}, False),
        ({"descriptors": 33}, True),
        ({"tasks": 12}, True),
        ({"tasks": None}, True),
        ({"calls": 1}, True),
        ({"threads": 99}, False),
    ],
)
def test_what_is_left_of_an_attack_is_judged(changed: dict[str, Any], is_fault: bool):
    assert bool(footprint_faults(IDLE, replace(IDLE, **changed))) is is_fault


def test_a_row_has_the_faults_of_all_its_parts():
    row = Row(
        "attack",
        "a defect",
        Outcome(1, faults=["a stranger is let in"]),
        base={"phone": QUIET},
        controls={"phone": heard(gap_ms=500.0)},
        before=IDLE,
        later=replace(IDLE, descriptors=99),
        failures=1,
    )
    assert len(row.faults) == 4
    text = table([row, Row("other", "nothing")])
    assert "a stranger is let in" in text
    assert text.endswith("1 of 2 passed")


@pytest.mark.parametrize(
    ("status", "count"),
    [({}, None), ({"stalls": {"count": 3, "longest_ms": 80}}, 3), ({"stalls": None}, None)],
)
def test_the_count_of_stalls_is_found_in_the_status(status: dict[str, Any], count: int | None):
    assert stalls_in(status) == count


@pytest.mark.parametrize(("sent", "faults"), [(0, 1), (1, 0), (None, 0)])
def test_an_attack_that_sent_nothing_fails(sent: int | None, faults: int):
    assert len(Row("attack", "a defect", Outcome(sent)).faults) == faults


def test_a_refused_control_call_is_a_fault_unless_the_attack_may_fill_the_server():
    refused = heard(refused=1)
    assert control_faults("phone", QUIET, refused)
    assert not control_faults("phone", QUIET, refused, may_refuse=True)
