from collections.abc import Callable

import numpy as np
import pytest

from parley.audio.echo_alignment import LEAD_MS, REACH_MS, EchoAlignment, Knowledge
from tests.speakerphone import FRAME, RATE_HZ, echo, spoken

BEGAN_US = 7_000_000


def aligned(
    far: np.ndarray, near: np.ndarray, *, late_ms: Callable[[float], float] = lambda at_s: 0.0
) -> tuple[EchoAlignment, np.ndarray, list[float]]:
    """Run a call; return the alignment, the reference that it gave, and the times of its jumps in seconds.

    ``late_ms`` is the delay of a frame by the second at which it was recorded.
    """
    alignment = EchoAlignment(RATE_HZ)
    given: list[np.ndarray] = []
    jumps: list[float] = []
    for at in range(0, len(far) - FRAME + 1, FRAME):
        at_us = BEGAN_US + at * 1_000_000 // RATE_HZ
        alignment.played(far[at : at + FRAME], at_us)
        place = alignment.arrived(FRAME, at_us + 10_000 + round(1_000 * late_ms(at / RATE_HZ)))
        one = alignment.frame(near[at : at + FRAME], place)
        given.append(one.far)
        if one.moved:
            jumps.append(at / RATE_HZ)
    return alignment, np.concatenate(given), jumps


def behind_ms(reference: np.ndarray, near: np.ndarray) -> float:
    """Return the lag of the strongest correlation of the last second, in ms."""
    size = 1 << 16
    tail = slice(len(reference) - RATE_HZ, len(reference))
    cross = np.conj(np.fft.rfft(reference[tail], size)) * np.fft.rfft(near[tail], size)
    lags = np.fft.irfft(cross / np.maximum(np.abs(cross), 1e-9))
    lag = int(np.argmax(lags))
    return 1000 * (lag if lag < size // 2 else lag - size) / RATE_HZ


def test_a_late_echo_lies_just_after_its_reference_after_one_jump() -> None:
    far = spoken(5)
    near = echo(far, 600.0)
    alignment, reference, jumps = aligned(far, near)
    assert alignment.knowledge is Knowledge.ECHO
    assert len(jumps) == 1
    assert abs(behind_ms(reference, near) - LEAD_MS) < 1


@pytest.mark.parametrize("first_ms", [20.0, 45.0, 90.0])
@pytest.mark.parametrize("delay_ms", [15.0, 200.0])
def test_frames_that_were_late_at_first_do_not_hide_the_echo(delay_ms: float, first_ms: float) -> None:
    far = spoken(5)
    near = echo(far, delay_ms)
    alignment, reference, _ = aligned(far, near, late_ms=lambda at_s: first_ms if at_s < 0.3 else 0.0)
    assert alignment.knowledge is Knowledge.ECHO
    assert REACH_MS[0] < behind_ms(reference, near) < REACH_MS[1]


def test_frames_that_come_earlier_later_on_leave_the_reference_where_it_was() -> None:
    far = spoken(8)
    near = echo(far, 100.0)
    alignment, reference, jumps = aligned(far, near, late_ms=lambda at_s: 40.0 if at_s < 4 else 0.0)
    assert alignment.knowledge is Knowledge.ECHO and len(jumps) == 1
    assert alignment.echo is not None and abs(alignment.echo.delay_ms - 100) < 3
    assert abs(behind_ms(reference, near) - LEAD_MS) < 1
    # No sample is missing and none comes twice.
    first = round(jumps[0] * RATE_HZ)
    given = reference[first:]
    played = round((90.0) * RATE_HZ / 1000)
    assert np.array_equal(given, far[first - played : first - played + len(given)])


def knows_after_ms(
    far: np.ndarray, near: np.ndarray, *, expected_ms: float = 0.0
) -> list[tuple[Knowledge, int]]:
    """Return the knowledge of the echo, and the ms from which it held."""
    alignment = EchoAlignment(RATE_HZ, expected_ms=expected_ms)
    known: list[tuple[Knowledge, int]] = []
    for at in range(0, len(far) - FRAME + 1, FRAME):
        at_us = BEGAN_US + at * 1_000_000 // RATE_HZ
        alignment.played(far[at : at + FRAME], at_us)
        alignment.frame(near[at : at + FRAME], alignment.arrived(FRAME, at_us + 10_000))
        if not known or known[-1][0] is not alignment.knowledge:
            known.append((alignment.knowledge, at * 1000 // RATE_HZ))
    return known


def test_a_headset_is_known_as_soon_as_an_echo_is_overdue() -> None:
    far = spoken(2)
    quiet = 3e-4 * np.random.default_rng(1).standard_normal(len(far)).astype(np.float32)
    (_, began_ms), (after_device, soon_ms) = knows_after_ms(far, quiet, expected_ms=60.0)
    assert (after_device, began_ms) == (Knowledge.NO_ECHO, 0)
    assert soon_ms < 400
    _, (without, later_ms) = knows_after_ms(far, quiet)
    assert without is Knowledge.NO_ECHO
    assert later_ms - soon_ms == 640


def test_someone_who_speaks_meanwhile_may_be_the_echo_until_much_was_played() -> None:
    far = spoken(5)
    noise = 0.1 * np.random.default_rng(2).standard_normal(len(far)).astype(np.float32)
    _, (known, at_ms) = knows_after_ms(far, noise, expected_ms=60.0)
    assert known is Knowledge.NO_ECHO
    assert 2_000 <= at_ms < 3_500


def test_an_echo_later_than_the_device_says_is_found_all_the_same() -> None:
    far = spoken(4)
    known = knows_after_ms(far, echo(far, 400.0), expected_ms=60.0)
    assert [one for one, _ in known] == [Knowledge.UNKNOWN, Knowledge.NO_ECHO, Knowledge.ECHO]
    assert known[-1][1] < 1_400


def test_a_near_echo_needs_no_jump() -> None:
    far = spoken(5)
    near = echo(far, 20.0)
    _, reference, jumps = aligned(far, near)
    assert jumps == []
    assert REACH_MS[0] < behind_ms(reference, near) < REACH_MS[1]


def test_drift_is_taken_out_without_a_jump() -> None:
    far = spoken(20)
    near = echo(far, 100.0, drift_ppm=200.0)
    _, reference, jumps = aligned(far, near)
    # 200 ppm are 4 ms in 20 s.
    assert len(jumps) == 1
    assert abs(behind_ms(reference, near) - LEAD_MS) < 0.5


def test_until_the_echo_is_found_nothing_is_known_and_without_one_it_is_none() -> None:
    far = spoken(4)
    quiet = 3e-4 * np.random.default_rng(6).standard_normal(len(far)).astype(np.float32)
    alignment = EchoAlignment(RATE_HZ)
    known: list[Knowledge] = []
    for at in range(0, len(far) - FRAME + 1, FRAME):
        at_us = BEGAN_US + at * 1_000_000 // RATE_HZ
        alignment.played(far[at : at + FRAME], at_us)
        one = alignment.frame(quiet[at : at + FRAME], alignment.arrived(FRAME, at_us + 10_000))
        assert one.played_lately or at < RATE_HZ // 2
        known.append(alignment.knowledge)
    assert known[0] is Knowledge.UNKNOWN
    assert known[-1] is Knowledge.NO_ECHO


def test_before_anything_is_played_there_is_nothing_to_be_heard() -> None:
    alignment = EchoAlignment(RATE_HZ)
    one = alignment.frame(np.zeros(FRAME, np.float32), alignment.arrived(FRAME, BEGAN_US))
    assert not one.played_lately
    assert not one.far.any()
