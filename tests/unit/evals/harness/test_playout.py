"""The caller's audio for frames that arrive at given times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.evals.harness.playout import HeardFrame, lateness_us, place

RATE_HZ = 16_000
FRAME = 320


def frame(at_ms: int, level: int = 8_000) -> HeardFrame:
    return HeardFrame(at_ms * 1000, np.full(FRAME, level, dtype=np.int16))


def loud(pcm: np.ndarray) -> list[tuple[int, int]]:
    """Return the audible intervals in milliseconds."""
    flips = np.flatnonzero(np.diff(np.concatenate(([0], pcm != 0, [0]))))
    return [(int(a) // 16, int(b) // 16) for a, b in zip(flips[::2], flips[1::2], strict=True)]


def test_punctual_frames_play_where_they_arrived_and_seamlessly() -> None:
    out = place([frame(100), frame(120), frame(140)], RATE_HZ, 0, 300_000)
    assert loud(out.pcm) == [(100, 160)]
    assert out.underruns == ()
    assert out.pcm.size == 4_800


def test_late_frame_is_a_gap_of_its_true_length() -> None:
    out = place([frame(100), frame(120), frame(190), frame(191)], RATE_HZ, 0, 400_000)
    assert loud(out.pcm) == [(100, 140), (190, 230)]
    assert [(gap.position // 16, gap.samples // 16) for gap in out.underruns] == [(140, 50)]


def test_burst_plays_in_sequence_and_loses_nothing() -> None:
    out = place([frame(100), frame(100), frame(101)], RATE_HZ, 0, 300_000)
    assert loud(out.pcm) == [(100, 160)]


def test_delay_of_a_burst_does_not_stay_in_the_time_line() -> None:
    late_burst = [frame(100), frame(200), frame(200), frame(200), frame(200), frame(200)]
    silence = [frame(at_ms, level=0) for at_ms in range(220, 400, 20)]
    out = place([*late_burst, *silence, frame(400)], RATE_HZ, 0, 600_000)
    assert loud(out.pcm) == [(100, 120), (200, 300), (400, 420)]


def test_origin_cuts_and_end_limits() -> None:
    out = place([frame(50), frame(100), frame(290)], RATE_HZ, 100_000, 300_000)
    assert loud(out.pcm) == [(0, 20), (190, 200)]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_audible_frames_are_never_dropped_or_shortened(waits_ms: list[int]) -> None:
    at_ms = np.cumsum(waits_ms)
    frames = [frame(int(at)) for at in at_ms]
    out = place(frames, RATE_HZ, 0, 10_000_000)
    assert np.count_nonzero(out.pcm) == FRAME * len(frames)


def test_lateness_is_against_the_earliest_packet() -> None:
    stamps = [960 * index for index in range(5)]
    arrivals = [1_000_000, 1_020_000, 1_047_000, 1_060_000, 1_079_000]
    assert lateness_us(arrivals, stamps, 48_000) == [1_000, 1_000, 8_000, 1_000, 0]


def test_lateness_survives_the_wrap_of_the_timestamp() -> None:
    first = (1 << 32) - 960
    assert lateness_us([0, 20_000, 45_000], [first, 0, 960], 48_000) == [0, 0, 5_000]


def test_sender_that_starts_over_gets_a_new_zero() -> None:
    stamps = [0, 960, 480_000_000, 480_000_960]
    assert lateness_us([0, 21_000, 40_000, 65_000], stamps, 48_000) == [0, 1_000, 0, 5_000]
