"""Verdict about a step, and the knee of a ramp."""

from typing import Any

import pytest

from parley.evals.load.ramp import Step, knee, late_packets


def step(calls: int, **figures: Any) -> Step:
    return Step(calls, {"held": calls, "refused": [], "late_ms": {"count": 9, "p99": 5.0}, **figures})


FIRST = step(1, answer_ms={"p95": 400.0}, unanswered=0)


@pytest.mark.parametrize(
    ("figures", "fault"),
    [
        ({}, ""),
        ({"held": 3, "refused": ["status 503"]}, "1 calls not held status 503"),
        ({"unanswered": 2}, "2 questions unanswered"),
        ({"late_ms": {"count": 9, "p99": 20.5}}, "p99 of lateness 20.5 ms (at most 20)"),
        ({"late_ms": {"count": 0}}, "p99 of lateness None ms (at most 20)"),
        ({"answer_ms": {"p95": 600.0}}, ""),
        ({"answer_ms": {"count": 0}}, "no question was judged"),
        ({"own_late_ms": {"p99": 5.5}}, "undecided: the callers' own packets were 5.5 ms late (p99)"),
        ({"answer_ms": {"p95": 600.1}}, "p95 of answers 600.1 ms (alone 400.0)"),
    ],
)
def test_a_step_fails_for_the_first_thing_that_a_caller_would_notice(figures: dict[str, Any], fault: str):
    assert step(4, **figures).fault("browser", FIRST) == fault


def test_a_phone_line_is_judged_by_the_distance_from_its_grid():
    late = Step(2, {"held": 2, "refused": [], "pacing_error_ms": {"p99": 12.0}})
    assert late.fault("phone", late) == "p99 of lateness 12.0 ms (at most 10)"


def test_a_packet_is_late_above_the_bound_of_its_percentile():
    assert late_packets([0.0, 20.0, 20.1, 300.0]) == 2
    assert late_packets([]) == 0


def test_typed_turns_have_no_packets():
    assert not Step(2, {"held": 2, "refused": [], "answer_ms": {"p95": 9.0}, "unanswered": 0}).fault(
        "text", FIRST
    )


def test_the_knee_is_before_the_first_failure():
    steps = [step(1), step(2), step(4, held=3), step(8)]
    assert knee("browser", steps) == 2
    assert knee("browser", [step(1, held=0)]) == knee("browser", []) == 0
