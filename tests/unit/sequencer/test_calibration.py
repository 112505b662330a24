import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.sequencer.calibration import CalibrationSettings, LatencyEstimate, LearntLatencies

SETTINGS = CalibrationSettings(window=5, max_step_us=1_000, max_latency_us=100_000)


def test_steady_samples_are_reached_and_kept():
    estimate = LatencyEstimate(80_000, SETTINGS)
    latencies_us = [estimate.observe(85_000) for _ in range(8)]
    assert latencies_us == [81_000, 82_000, 83_000, 84_000, 85_000, 85_000, 85_000, 85_000]


def test_stray_samples_do_not_move_a_steady_estimate():
    estimate = LatencyEstimate(50_000, SETTINGS)
    for _ in range(5):
        estimate.observe(50_000)
    assert [estimate.observe(stray_us) for stray_us in (90_000, 0, 50_000, 99_000)] == [50_000] * 4


def test_a_step_is_bounded_both_ways():
    estimate = LatencyEstimate(50_000, SETTINGS)
    assert estimate.observe(100_000) == 51_000
    estimate = LatencyEstimate(50_000, SETTINGS)
    assert estimate.observe(0) == 49_000


def test_samples_from_before_the_event_and_absurd_ones_count_as_the_bounds():
    # One sample is its own median, so a step that is wide enough reaches it.
    wide = SETTINGS.model_copy(update={"max_step_us": 100_000})
    assert LatencyEstimate(50, wide).observe(-5) == 0
    assert LatencyEstimate(50, wide).observe(10**9) == 100_000


@pytest.mark.parametrize("stated_us", [-1, 100_001])
def test_a_latency_that_cannot_be_is_refused(stated_us: int):
    with pytest.raises(ValueError, match="outside 0 to 100000"):
        LatencyEstimate(stated_us, SETTINGS)


@given(st.integers(0, 100_000), st.integers(3_000, 90_000), st.lists(st.integers(-50, 50), min_size=150))
def test_noisy_samples_are_followed_to_within_their_noise(stated_us: int, true_us: int, noise_us: list[int]):
    estimate = LatencyEstimate(stated_us, SETTINGS)
    for each_us in noise_us:
        estimate.observe(true_us + each_us)
    assert abs(estimate.latency_us - true_us) <= 50


def test_a_prior_takes_the_place_of_what_was_stated_with_the_first_sample_and_not_before():
    estimate = LatencyEstimate(80_000, SETTINGS, prior_us=30_000)
    assert estimate.latency_us == 80_000
    assert [estimate.observe(33_000) for _ in range(4)] == [31_000, 32_000, 33_000, 33_000]


@pytest.mark.parametrize("prior_us", [-1, 100_001])
def test_a_prior_that_cannot_be_is_refused(prior_us: int):
    with pytest.raises(ValueError, match="outside 0 to 100000"):
        LatencyEstimate(0, SETTINGS, prior_us)


def test_what_was_learnt_is_kept_by_engine_and_stream_up_to_a_number():
    latencies = LearntLatencies(remembered=2)
    assert latencies.prior_us("ears", "stt") is None
    latencies.learnt("ears", "stt", 1)
    latencies.learnt("eyes", "vision", 2)
    latencies.learnt("ears", "stt", 3)
    assert latencies.prior_us("ears", "stt") == 3
    latencies.learnt("other ears", "stt", 4)
    received = [
        latencies.prior_us(*key) for key in (("ears", "stt"), ("other ears", "stt"), ("eyes", "vision"))
    ]
    assert received == [3, 4, None]
