"""Packets of a caller, in every order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.transports.webrtc.jitter_buffer import (
    CALM_PACKETS,
    LONGEST_HOLD,
    RESTART,
    LowDelayJitterBuffer,
)
from parley.transports.webrtc.rtp import RtpAudio

TICKS = 960
OPUS = 111


def packet(number: int) -> RtpAudio:
    return RtpAudio(number & 0xFFFF, number * TICKS, 1, OPUS, bytes((number & 0xFF,)))


def leave(buffer: LowDelayJitterBuffer, *arriving: int) -> list[list[int]]:
    """Return the numbers of the packets that leave at each arrival, modulo 256."""
    return [[due.packet.payload[0] for due in buffer.add(packet(number))] for number in arriving]


def test_what_is_in_order_goes_on_at_once():
    assert leave(LowDelayJitterBuffer(), *range(5)) == [[0], [1], [2], [3], [4]]


def test_numbers_begin_anew_after_65535():
    assert leave(LowDelayJitterBuffer(), 65_534, 65_535, 65_536, 65_537) == [[254], [255], [0], [1]]


def test_a_lost_packet_delays_nothing():
    assert leave(LowDelayJitterBuffer(), 0, 1, 3, 4) == [[0], [1], [3], [4]]


def test_packets_that_overtook_each_other_once_are_put_in_order_afterwards():
    buffer = LowDelayJitterBuffer()
    # The first late packet is dropped; from then on the buffer waits for reordered ones.
    assert leave(buffer, 0, 2, 1, 3) == [[0], [2], [], [3]]
    assert buffer.hold == 1
    assert leave(buffer, 5, 4, 6) == [[], [4, 5], [6]]


def test_what_comes_back_from_waiting_leaves_no_delay():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 2, 1)
    # 3 is lost: the buffer waits one packet for it, then both leave and the next ones are on time.
    assert leave(buffer, 4, 5, 6, 7) == [[], [4, 5], [6], [7]]


def test_a_calm_line_is_trusted_again():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 3, 1)
    assert buffer.hold == 2
    leave(buffer, *range(4, 4 + CALM_PACKETS))
    assert buffer.hold == 1


def test_nothing_is_waited_for_longer_than_the_limit():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 30, 1)
    assert buffer.hold == LONGEST_HOLD
    assert leave(buffer, 32, 33, 34, 35, 36) == [[], [], [], [], [32, 33, 34, 35, 36]]


def test_a_duplicate_is_dropped_and_teaches_nothing():
    buffer = LowDelayJitterBuffer()
    assert leave(buffer, 0, 1, 1, 0, 2) == [[0], [1], [], [], [2]]
    assert buffer.hold == 0


@pytest.mark.parametrize("jump", [RESTART + 2, -RESTART - 2])
def test_a_stream_that_begins_anew_is_followed(jump: int):
    buffer = LowDelayJitterBuffer()
    leave(buffer, 1_000)
    assert leave(buffer, 1_000 + jump, 1_001 + jump) == [[(1_000 + jump) & 255], [(1_001 + jump) & 255]]


def test_lost_packets_are_counted_before_the_one_that_follows():
    buffer = LowDelayJitterBuffer()
    assert [[due.lost for due in buffer.add(packet(number))] for number in (0, 1, 4, 5)] == [
        [0],
        [0],
        [2],
        [0],
    ]


def test_none_is_lost_before_a_stream_that_begins_anew():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 2, 1)
    assert leave(buffer, 4) == [[]]
    assert [due.lost for due in buffer.add(packet(4_000))] == [0]


@given(st.lists(st.integers(0, 60), max_size=120))
def test_whatever_comes_leaves_once_and_in_order(arriving: list[int]):
    buffer = LowDelayJitterBuffer()
    left = [number for frame in leave(buffer, *arriving) for number in frame]
    assert left == sorted(set(left))
    assert set(left) <= set(arriving)
