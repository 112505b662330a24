"""The packets of a control call by WebRTC as pieces of audio."""

import pytest

from parley.evals.abuse.controls import SETTLE_S, packets_audio
from parley.evals.abuse.gaps import largest_ms

STEP = 960


def lasting(first_stamp: int, at_s: list[float]) -> list[int]:
    return [(first_stamp + number * STEP) % 2**32 for number in range(len(at_s))]


@pytest.mark.parametrize("first", [0, 2**32 - 2 * STEP])
def test_a_gap_between_packets_is_measured_across_the_end_of_32_bits(first):
    at_s = [SETTLE_S + each for each in (0.0, 0.02, 0.04, 0.13, 0.15)]
    stretch = packets_audio([round(at * 1e6) for at in at_s], lasting(first, at_s), connected_us=0)
    assert largest_ms([stretch]) == pytest.approx(70.0)


def test_the_first_second_of_a_call_is_not_measured():
    at_s = [0.0, 0.9, SETTLE_S, SETTLE_S + 0.02]
    stretch = packets_audio([round(at * 1e6) for at in at_s], lasting(5, at_s), connected_us=0)
    assert [arrival.at_s for arrival in stretch] == pytest.approx(at_s[2:])


def test_a_call_without_packets_has_no_audio():
    assert packets_audio([], [], connected_us=0) == []
