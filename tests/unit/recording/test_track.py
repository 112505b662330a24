"""Pieces of audio on the time line of a call."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.recording.track import SEGMENT_MS, AudioSegment, SideTrack

RATE_HZ = 16_000
PACKET = RATE_HZ // 50
PACKET_US = 20_000


def numbered(first: int, count: int = PACKET) -> bytes:
    """Return samples that count up, so that each has its place in the source."""
    return (np.arange(first, first + count) % 30_000 + 1).astype("<i2").tobytes()


def joined(segments: list[AudioSegment]) -> np.ndarray:
    """Return the track as one array."""
    end = max(each.number * each.length_ms * RATE_HZ // 1_000 + len(each.pcm) // 2 for each in segments)
    whole = np.zeros(end, "<i2")
    for each in segments:
        start = each.number * each.length_ms * RATE_HZ // 1_000
        whole[start : start + len(each.pcm) // 2] = np.frombuffer(each.pcm, "<i2")
    return whole


def place_all(track: SideTrack, pieces: list[tuple[bytes, int]]) -> np.ndarray:
    segments = []
    for pcm, start_us in pieces:
        segments += track.place(pcm, RATE_HZ, start_us)
    return joined([*segments, *track.finish()])


def test_a_stream_is_cut_every_five_seconds_and_nothing_of_it_is_missing():
    packets = 12 * 50
    pieces = [(numbered(n * PACKET), n * PACKET_US) for n in range(packets)]
    track, segments = SideTrack(), []
    for pcm, start_us in pieces:
        segments += track.place(pcm, RATE_HZ, start_us)
    assert [each.number for each in segments] == [0, 1]
    assert all(len(each.pcm) == SEGMENT_MS * RATE_HZ // 1_000 * 2 for each in segments)
    whole = joined([*segments, *track.finish()])
    assert whole.tobytes() == b"".join(pcm for pcm, _ in pieces)


def test_a_pause_is_silence_of_its_length_and_writes_no_empty_segment():
    track = SideTrack()
    segments = track.place(numbered(0), RATE_HZ, 100_000)
    for at_us in range(0, 60_000_000, 1_000_000):
        segments += track.advance(at_us)
    segments += track.place(numbered(PACKET), RATE_HZ, 63_000_000)
    segments += track.finish()
    assert [each.number for each in segments] == [0, 12]
    whole = joined(segments)
    sounds = np.flatnonzero(whole)
    assert sounds[0] == RATE_HZ // 10
    assert sounds[PACKET] == 63 * RATE_HZ


def test_a_silent_side_is_written_when_its_segment_is_over():
    track = SideTrack()
    assert track.place(numbered(0), RATE_HZ, 4_000_000) == []
    assert track.advance(5_300_000) == []
    (segment,) = track.advance(5_600_000)
    assert segment.number == 0 and len(segment.pcm) == 2 * (4 * RATE_HZ + PACKET)


def test_a_backlog_after_a_stall_leaves_no_gap():
    before = [(numbered(n * PACKET), n * PACKET_US) for n in range(100)]
    # 400 ms without a packet, then all at once.
    stalled = [(numbered(n * PACKET), 2_400_000) for n in range(100, 120)]
    after = [(numbered(n * PACKET), n * PACKET_US) for n in range(121, 200)]
    on_time = [(numbered(120 * PACKET), 2_400_000)]
    whole = place_all(SideTrack(), [*before, *stalled, *on_time, *after])
    assert whole.tobytes() == numbered(0, 200 * PACKET)


def test_packets_that_are_a_few_milliseconds_late_stay_together():
    late_us = [0, 3_000, 9_000, 14_000, 1_000] * 20
    pieces = [(numbered(n * PACKET), n * PACKET_US + late) for n, late in enumerate(late_us)]
    assert place_all(SideTrack(), pieces).tobytes() == numbered(0, 100 * PACKET)


def test_a_missing_packet_of_a_reply_is_silence_of_its_length():
    pieces = [(numbered(n * PACKET), n * PACKET_US) for n in range(50) if n != 25]
    whole = place_all(SideTrack(is_live=False), pieces)
    assert not whole[25 * PACKET : 26 * PACKET].any()
    assert whole[26 * PACKET :].tobytes() == numbered(26 * PACKET, 24 * PACKET)


@pytest.mark.parametrize("ppm", [-200, 200])
def test_the_clock_of_a_device_stays_within_20_ms_over_ten_minutes(ppm: int):
    track, segments, worst_ms = SideTrack(), list[AudioSegment](), 0.0
    for n in range(50 * 600):
        start_us = round(n * PACKET_US * (1 + ppm / 1_000_000))
        segments += track.place(numbered(0), RATE_HZ, start_us)
        worst_ms = max(worst_ms, abs(track.end_ms - start_us / 1_000 - 20))
    assert worst_ms <= 20


def test_a_client_that_sends_faster_than_real_time_loses_nothing():
    pieces = [(numbered(n * PACKET), n * 1_000) for n in range(600)]
    whole = place_all(SideTrack(is_live=False), pieces)
    assert np.trim_zeros(whole, "f").tobytes() == numbered(0, 600 * PACKET)


def test_audio_that_was_not_played_is_cut_off():
    track = SideTrack(is_live=False)
    for n in range(50):
        track.place(numbered(n * PACKET), RATE_HZ, n * PACKET_US)
    track.cut(700_000)
    whole = joined(track.finish())
    assert whole.tobytes() == numbered(0, 35 * PACKET)


def test_audio_of_another_rate_is_refused_and_counted():
    track = SideTrack()
    track.place(numbered(0), RATE_HZ, 0)
    track.place(numbered(0), 8_000, 20_000)
    assert track.refused_ms == 40
    assert len(joined(track.finish())) == PACKET


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(-100_000, 7_000_000)), min_size=1, max_size=60))
def test_whatever_arrives_keeps_its_order_and_no_sample_is_recorded_twice(
    pieces: list[tuple[int, int]],
):
    track, at_us, first, segments = SideTrack(is_live=False), 0, 0, list[AudioSegment]()
    for count, step_us in pieces:
        at_us += step_us
        segments += track.place(numbered(first, count), RATE_HZ, at_us)
        segments += track.advance(at_us)
        first += count
    segments += track.finish()
    assert [each.number for each in segments] == sorted({each.number for each in segments})
    if first:
        whole = joined(segments)
        assert whole[whole != 0].tobytes() == numbered(0, first)


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "dropped_ms"),
    [
        (4_000, 7_000, 1_000),
        (4_500, 6_600, 500),
        (11_000, 15_500, 0),
        (4_800, 6_000, 200),
        (6_000, 9_000, 0),
        (7_000, 7_900, 0),
        (4_000, 22_000, 1_000),
        (9_000, 30_000, 1_000),
    ],
)
@pytest.mark.parametrize("burst_ms", [0, 4])
def test_a_stall_over_a_boundary_shifts_nothing_that_comes_after_it(
    from_ms: int, until_ms: int, dropped_ms: int, burst_ms: int
):
    track, segments, now_ms, look_ms = SideTrack(), list[AudioSegment](), 0, 1_000
    packets = 2_500
    for n in range(packets):
        come_ms = 20 * n + 20
        is_late = from_ms < come_ms < until_ms
        # The backlog comes at once, or a packet every ``burst_ms``.
        now_ms = max(now_ms + burst_ms, until_ms if is_late else come_ms)
        while look_ms <= now_ms:
            segments += track.advance(look_ms * 1_000)
            look_ms += 1_000
        segments += track.place(numbered(n * PACKET), RATE_HZ, now_ms * 1_000 - PACKET_US)
    whole = joined([*segments, *track.finish()])
    expected = np.frombuffer(numbered(0, packets * PACKET), "<i2").copy()
    start = from_ms * RATE_HZ // 1_000
    expected[start : start + dropped_ms * RATE_HZ // 1_000] = 0
    assert np.array_equal(whole, expected)
    dropped = track.dropped()
    assert sum(each.length_ms for each in dropped) == dropped_ms
    if dropped:
        assert (dropped[0].start_ms, dropped[0].reason) == (from_ms, "it came after its segment was closed")
        assert track.dropped() == []


def test_a_live_source_that_sends_faster_than_it_speaks_is_bounded_and_then_in_its_place_again():
    track, segments = SideTrack(), list[AudioSegment]()
    # A minute within a second, and then in real time.
    for n in range(50 * 60):
        segments += track.place(numbered(0), RATE_HZ, 60_000_000 + n * 333)
    for n in range(50 * 60):
        segments += track.place(numbered(0), RATE_HZ, 61_000_000 + n * PACKET_US)
    segments += track.finish()
    assert abs(track.end_ms - 121_000) <= 35
    assert sum(each.length_ms for each in track.dropped()) > 20_000


@pytest.mark.parametrize("late_ms", [100, 700, 2_500])
@pytest.mark.parametrize("faster", [2, 8])
def test_a_source_that_was_late_for_seconds_loses_no_word_and_is_in_its_place_after_a_pause(
    late_ms: int, faster: float
):
    """The machine is late with everything for two seconds, and makes up for it while the caller speaks."""
    track, segments, now_us = SideTrack(), list[AudioSegment](), 0.0
    packets, silent = 50 * 20, range(50 * 9, 50 * 12)
    quiet = np.full(PACKET, 30, "<i2").tobytes()
    said = [quiet if n in silent else numbered(n * PACKET) for n in range(packets)]
    for n, pcm in enumerate(said):
        come_us = (n + 1) * PACKET_US
        late_us = late_ms * 1_000 if 50 * 3 <= n < 50 * 5 else 0
        # What waits comes faster than it was spoken, and nothing comes before it was.
        now_us = max(now_us + PACKET_US / faster, come_us + late_us)
        segments += track.place(pcm, RATE_HZ, round(now_us) - PACKET_US)
    whole = joined([*segments, *track.finish()])
    assert track.dropped() == []
    words = whole[(whole != 0) & (whole != 30)]
    # A piece is lost at most, as if the clock were fast.
    assert len(words) >= (packets - len(silent)) * PACKET - 30 * RATE_HZ // 1_000
    assert abs(track.end_ms - packets * 20) <= 20
    last = b"".join(said[silent.stop :])
    assert last in whole.tobytes()
