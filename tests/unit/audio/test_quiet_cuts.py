import numpy as np

from parley.audio.quiet_cuts import quiet_cuts

RATE_HZ = 1_000


def test_a_long_recording_is_cut_in_its_pauses():
    samples = np.ones(25 * RATE_HZ, np.float32)
    for pause_s in (3, 8, 17):
        samples[pause_s * RATE_HZ : pause_s * RATE_HZ + 400] = 0.0
    parts = quiet_cuts(samples, RATE_HZ, least_s=5, most_s=10)
    assert parts[0][0] == 0 and parts[-1][1] == len(samples)
    assert all(before[1] == after[0] for before, after in zip(parts, parts[1:], strict=False))
    # The pause at 3 s would leave a part shorter than the least one.
    assert 8_000 < parts[0][1] < 8_400 and 17_000 < parts[1][1] < 17_400
    assert len(parts) == 3


def test_no_part_is_longer_than_the_most_without_any_pause():
    samples = np.ones(25 * RATE_HZ, np.float32)
    parts = quiet_cuts(samples, RATE_HZ, least_s=5, most_s=10)
    assert max(end - first for first, end in parts) <= 10 * RATE_HZ
    assert sum(end - first for first, end in parts) == len(samples)


def test_a_short_recording_is_one_part_and_an_empty_one_none():
    assert quiet_cuts(np.ones(900, np.float32), RATE_HZ, least_s=0.5, most_s=1) == [(0, 900)]
    assert quiet_cuts(np.zeros(0, np.float32), RATE_HZ, least_s=0.5, most_s=1) == []
