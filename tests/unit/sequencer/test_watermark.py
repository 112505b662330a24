import pytest

from parley.sequencer.calibration import CalibrationSettings
from parley.sequencer.watermark import StreamState, UnknownStreamError, Watermarks


def joined(*latencies_us: int, at_us: int = 1_000) -> Watermarks[None]:
    """Return streams s0, s1, ... with these latencies."""
    watermarks: Watermarks[None] = Watermarks(
        stall_us=500, remembered=2, calibration=CalibrationSettings(max_latency_us=1_000)
    )
    for number, latency_us in enumerate(latencies_us):
        watermarks.join(f"s{number}", latency_us, at_us)
    return watermarks


def test_the_slowest_active_stream_sets_the_watermark():
    assert joined(80, 200, 0).lowest(1_000) == (800, 1)


def test_of_streams_at_the_same_moment_the_one_that_joined_first_sets_it():
    assert joined(80, 200, 200).lowest(1_000) == (800, 1)


def test_without_streams_there_is_no_watermark():
    assert joined().lowest(0) is None


def test_a_stalled_stream_does_not_set_the_watermark_and_does_again_when_it_is_heard_of():
    watermarks = joined(80, 200)
    watermarks["s0"].heard_us = watermarks["s0"].watermark_us = 1_400
    assert watermarks.lowest(1_500) == (800, 1)
    assert watermarks.lowest(1_501) == (1_400, 0)
    assert watermarks.state("s1", 1_501) is StreamState.STALLED
    watermarks["s1"].heard_us = 1_600
    assert watermarks.lowest(1_601) == (800, 1)


def test_a_stream_that_left_sets_no_watermark_and_keeps_its_rank_when_it_is_back():
    watermarks = joined(80, 200)
    watermarks.leave("s0")
    assert watermarks.lowest(1_000) == (800, 1)
    assert watermarks.state("s0", 1_000) is StreamState.LEFT
    watermarks.join("s0", 200, 1_000)
    assert watermarks.lowest(1_000) == (800, 0)


def test_leaving_twice_or_without_having_joined_changes_nothing():
    watermarks = joined(80)
    watermarks.leave("s0")
    watermarks.leave("s0")
    watermarks.leave("nobody")
    assert watermarks.lowest(1_000) is None


def test_only_the_last_streams_that_left_are_known():
    watermarks = joined(0, 0, 0)
    for name in ("s0", "s1", "s2"):
        watermarks.leave(name)
    with pytest.raises(UnknownStreamError):
        watermarks["s0"]
    assert watermarks["s1"].order == 1


def test_a_stream_that_came_back_is_not_forgotten_while_others_leave():
    watermarks = joined(0, 0, 0, 0)
    watermarks.leave("s0")
    watermarks.join("s0", 0, 1_000)
    for name in ("s1", "s2", "s3"):
        watermarks.leave(name)
    assert watermarks.state("s0", 1_000) is StreamState.ACTIVE


def test_what_some_streams_have_passed_does_not_ask_the_others():
    watermarks = joined(80, 200, 0)
    assert watermarks.passed_us(["s0", "s2", "nobody"], 1_000) == 920
    watermarks.leave("s0")
    assert watermarks.passed_us(["s0", "s2"], 1_000) == 1_000
    assert watermarks.passed_us(["s0"], 1_000) is None


def test_an_impossible_latency_leaves_no_stream_behind():
    watermarks = joined()
    with pytest.raises(ValueError):
        watermarks.join("s0", -1, 0)
    with pytest.raises(UnknownStreamError):
        watermarks["s0"]
