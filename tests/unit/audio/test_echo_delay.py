"""The echo of played speech is found with its delay and drift, and no echo is found where there is none."""

import numpy as np
import pytest

from parley.audio.echo_delay import DelayTracker, EchoDelay
from parley.core.media import pcm16_to_float
from tests.speakerphone import FRAME, RATE_HZ, echo, spoken
from tests.voices import say, silence


def track(far: np.ndarray, near: np.ndarray) -> list[tuple[float, EchoDelay]]:
    tracker = DelayTracker(RATE_HZ)
    found: list[tuple[float, EchoDelay]] = []
    for at in range(0, len(far) - FRAME + 1, FRAME):
        estimate = tracker.feed(far[at : at + FRAME], near[at : at + FRAME])
        if estimate is not None:
            found.append(((at + FRAME) / RATE_HZ, estimate))
    return found


@pytest.mark.parametrize("delay_ms", [3.0, 60.0, 310.4, 600.0])
def test_the_echo_is_found_within_half_a_second_of_sound(delay_ms: float) -> None:
    far = spoken(3)
    found = track(far, echo(far, delay_ms))
    assert found[0][0] < 0.6 + delay_ms / 1000
    assert all(one.delay_ms == pytest.approx(delay_ms, abs=0.1) for _, one in found)


def test_speech_after_a_cough_is_not_taken_for_noise() -> None:
    """The microphone has the bot only, without a pause, and a cough at first."""
    sentence = 0.4 * pcm16_to_float(say("you can block a lost card in the app or at any branch", "slt"))
    far = np.concatenate((np.zeros(RATE_HZ // 2, np.float32), sentence))
    near = echo(far, 80.0)
    cough = slice(RATE_HZ * 6 // 10, RATE_HZ)
    near[cough] += 0.3 * np.random.default_rng(1).standard_normal(cough.stop - cough.start).astype(np.float32)
    assert track(far, near)[0][0] < 2.2


@pytest.mark.parametrize("drift_ppm", [0.0, 200.0, -120.0])
def test_the_drift_of_the_clocks_is_found(drift_ppm: float) -> None:
    far = spoken(15)
    found = track(far, echo(far, 80.0, drift_ppm=drift_ppm))
    assert found[-1][1].drift_ppm == pytest.approx(drift_ppm, abs=15)


def test_a_caller_without_an_echo_is_no_echo() -> None:
    far = spoken(8)
    caller = np.resize(
        pcm16_to_float(say("i would like to know what it costs to use my card abroad", "rms") + silence(400)),
        len(far),
    ).astype(np.float32)
    assert track(far, caller) == []


@pytest.mark.parametrize("earlier_ms", [20, 45, 150, 500])
def test_places_that_are_put_right_leave_no_echo_where_none_is(earlier_ms: int) -> None:
    # The microphone's positions were too late, and so was the echo; then both are correct.
    earlier, true_ms = earlier_ms * RATE_HZ // 1000, 60.0
    far = spoken(8)
    near = echo(far, true_ms)
    tracker, half = DelayTracker(RATE_HZ), 4 * RATE_HZ
    found: list[tuple[int, EchoDelay]] = []
    for at in range(0, len(far) - FRAME + 1, FRAME):
        if at == half:
            tracker.shifted(earlier / RATE_HZ)
        ahead = at + earlier if at < half else at
        played = far[ahead : ahead + FRAME] if ahead + FRAME <= len(far) else np.zeros(FRAME, np.float32)
        estimate = tracker.feed(played, near[at : at + FRAME])
        if estimate is not None:
            found.append((at, estimate))
    late_ms = [one.delay_ms for at, one in found if at >= half]
    assert late_ms and all(each == pytest.approx(true_ms, abs=2) for each in late_ms)
    if true_ms + earlier_ms < 700:
        assert found[0][1].delay_ms == pytest.approx(true_ms + earlier_ms, abs=2)


def test_noise_before_the_echo_comes_is_no_echo() -> None:
    far = spoken(2)
    for seed in range(10):
        noise = 6e-4 * np.random.default_rng(seed).standard_normal(len(far))
        assert track(far, noise.astype(np.float32)) == []


def test_a_delay_beyond_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="longest_ms"):
        DelayTracker(RATE_HZ, longest_ms=800)
