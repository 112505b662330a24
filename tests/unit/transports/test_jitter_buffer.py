"""Packets of a caller, in every order."""

import numpy as np
import pytest
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket
from hypothesis import given
from hypothesis import strategies as st

from parley.transports.speech_encoder import SpeechEncoder
from parley.transports.webrtc.jitter_buffer import (
    CALM_PACKETS,
    LONGEST_HOLD,
    RESTART,
    LowDelayJitterBuffer,
    install,
    joinable,
    joined,
)

TICKS = 960
# 20 ms of SILK, mono, one frame.
SILK_20 = 1 << 3
OPUS, PCMU = 111, 0


def packet(number: int, data: bytes | None = None, payload_type: int = OPUS) -> RtpPacket:
    made = RtpPacket(payload_type=payload_type, sequence_number=number & 0xFFFF, timestamp=number * TICKS)
    made._data = bytes((SILK_20, number & 0xFF)) if data is None else data  # type: ignore[attr-defined]
    return made


def numbers(frame: JitterFrame | None) -> list[int]:
    """Return the numbers of the packets in a frame, modulo 256."""
    if frame is None:
        return []
    if frame.data[0] & 3 == 0:
        return [frame.data[1]]
    count = frame.data[1] & 0x3F
    return list(frame.data[2 + count - 1 :])


def leave(buffer: LowDelayJitterBuffer, *arriving: int) -> list[list[int]]:
    return [numbers(buffer.add(packet(number))[1]) for number in arriving]


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


def test_a_packet_without_audio_is_not_decoded():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0)
    assert buffer.add(packet(1, b"")) == (False, None)
    assert leave(buffer, 2) == [[2]]


def test_packets_that_cannot_be_joined_leave_one_by_one():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 2, 1)
    assert buffer.add(packet(4, b"\x48four")) == (False, None)
    assert buffer.add(packet(3, b"\x08three"))[1].data == b"\x08three"  # type: ignore[union-attr]
    assert buffer.add(packet(5, b"\x08five"))[1].data == b"\x48four"  # type: ignore[union-attr]


def test_other_codecs_are_joined_as_they_are():
    buffer = LowDelayJitterBuffer()
    leave(buffer, 0, 2, 1)
    assert buffer.add(packet(4, b"\x01\x02", PCMU)) == (False, None)
    assert buffer.add(packet(3, b"\xff\x00", PCMU))[1].data == b"\xff\x00\x01\x02"  # type: ignore[union-attr]


@given(st.lists(st.integers(0, 60), max_size=120))
def test_whatever_comes_leaves_once_and_in_order(arriving: list[int]):
    buffer = LowDelayJitterBuffer()
    left = [number for frame in leave(buffer, *arriving) for number in frame]
    assert left == sorted(set(left))
    assert set(left) <= set(arriving)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_joined_packets_decode_to_the_same_audio(count: int):
    at = np.arange(48_000)
    sound = (8_000 * np.sin(at * 0.05 + at**2 * 1e-6)).astype("<i2").tobytes()
    opus = SpeechEncoder(48_000)
    size = opus.packet_bytes
    packets = [opus.encode(sound[first : first + size]) for first in range(0, 30 * size, size)]
    apart, together = OpusDecoder(), OpusDecoder()
    one = [apart.decode(JitterFrame(data, 0))[0].to_ndarray() for data in packets]
    groups = [packets[first : first + count] for first in range(0, len(packets), count)]
    other = [together.decode(JitterFrame(joined(group), 0))[0].to_ndarray() for group in groups]
    assert all(joinable(group) for group in groups)
    assert max(len(data) for data in packets) > 60
    np.testing.assert_array_equal(np.hstack(one), np.hstack(other))


def test_long_packets_carry_their_length_in_two_bytes():
    packets = [bytes((SILK_20,)) + bytes((place,)) * 400 for place in (1, 2)]
    # 400 = 4 * 37 + 252
    assert joined(packets) == bytes((SILK_20 | 3, 0x82, 252, 37)) + b"\x01" * 400 + b"\x02" * 400


@pytest.mark.parametrize(
    "packets",
    [
        [b""],
        [b"\x08a", b"\x48b"],
        [b"\x09ab"],
        [bytes((19 << 3,)) + b"a"] * 7,
        [bytes((3 << 3,)) + b"a"] * 3,
    ],
    ids=["empty", "configurations", "two frames", "140 ms of CELT", "180 ms of SILK"],
)
def test_what_is_not_one_packet_is_not_joined(packets: list[bytes]):
    assert not joinable(packets)


async def test_the_receiver_of_this_aiortc_takes_it():
    receiver = RTCRtpReceiver("audio", _Transport())
    install(receiver)
    buffer = receiver._RTCRtpReceiver__jitter_buffer
    assert isinstance(buffer, LowDelayJitterBuffer)
    install(receiver)
    assert receiver._RTCRtpReceiver__jitter_buffer is buffer


class _Transport:
    """The part of a DTLS transport that a receiver uses before it starts."""

    state = "connected"
