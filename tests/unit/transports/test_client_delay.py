"""The delay of audio to the caller, from RTCP reports."""

import math

import pytest

from parley.transports.webrtc.client_delay import ClientDelay


@pytest.mark.parametrize(
    ("round_trip_ms", "jitter_ms", "delay_ms"),
    [
        pytest.param(1, 0, 60, id="the same machine"),
        pytest.param(40, 2, 80, id="the same town"),
        pytest.param(120, 10, 120, id="another country"),
        pytest.param(120, 30, 170, id="a wireless line that jitters"),
        pytest.param(600, 100, 620, id="a satellite"),
        pytest.param(2_000, 500, 1_000, id="no more than a second"),
    ],
)
def test_the_first_report_is_half_the_round_trip_and_the_buffer(
    round_trip_ms: int, jitter_ms: int, delay_ms: int
):
    estimate = ClientDelay()
    told_ms = estimate.report(round_trip_s=round_trip_ms / 1000, jitter_s=jitter_ms / 1000)
    assert told_ms == estimate.delay_ms == delay_ms


def test_nothing_is_known_before_the_first_report():
    assert ClientDelay().delay_ms is None


@pytest.mark.parametrize(
    ("round_trip_s", "jitter_s"),
    [
        (None, 0.0), (0.1, None), (0.0, 0.0), (-0.1, 0.0), (2.001, 0.0), (math.nan, 0.0), (math.inf, 0.0),
        (0.1, -0.001), (0.1, 2.001), (0.1, math.nan),
    ],
)  # fmt: skip
def test_a_report_that_makes_no_sense_changes_nothing(round_trip_s: float | None, jitter_s: float | None):
    fresh, known = ClientDelay(), ClientDelay()
    known.report(round_trip_s=0.2, jitter_s=0.0)
    assert fresh.report(round_trip_s=round_trip_s, jitter_s=jitter_s) is None
    assert known.report(round_trip_s=round_trip_s, jitter_s=jitter_s) is None
    assert (fresh.delay_ms, known.delay_ms) == (None, 160)


def test_one_stray_report_moves_the_estimate_by_a_quarter():
    estimate = ClientDelay()
    estimate.report(round_trip_s=0.1, jitter_s=0.0)
    assert estimate.report(round_trip_s=0.5, jitter_s=0.0) == 110 + 50


def test_a_line_that_has_changed_is_followed_within_a_few_reports():
    estimate = ClientDelay()
    estimate.report(round_trip_s=0.1, jitter_s=0.0)
    told_ms = [estimate.report(round_trip_s=0.5, jitter_s=0.0) for _ in range(12)]
    assert told_ms == sorted(told_ms)  # type: ignore[type-var]  # none of them is None
    assert 300 < estimate.delay_ms <= 310  # type: ignore[operator]
