"""Audio of a recorded caller as detectors heard it, and the pauses that were the caller's own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.recording.heard_audio import HeardAudio, as_heard
from parley.recording.track import SideTrack
from tests.unit.recording.test_track import PACKET, PACKET_US, RATE_HZ, numbered, place_all

QUIET = np.full(PACKET, 30, "<i2").tobytes()


def heard_of(pieces: list[tuple[bytes, int]]) -> tuple[HeardAudio, SideTrack]:
    """Return what a replay plays of a live caller whose pieces came at these times."""
    track = SideTrack()
    whole = place_all(track, pieces).astype(np.float32)
    heard = as_heard(whole, track.seams)
    assert track.first_sample is not None
    return HeardAudio(heard.samples[track.first_sample :], heard.pauses), track


def test_a_machine_that_was_late_has_changed_nothing_of_what_was_heard():
    said = [QUIET if 100 <= n < 150 else numbered(n * PACKET) for n in range(250)]
    # From the third packet on everything comes 300 ms late, and in time again when the caller is quiet.
    pieces = [(pcm, n * PACKET_US + (300_000 if 3 <= n < 80 else 0)) for n, pcm in enumerate(said)]
    heard, track = heard_of(pieces)
    assert track.trimmed_ms > 250 and track.seams
    expected = np.frombuffer(b"".join(said), "<i2").astype(np.float32)
    assert len(heard.samples) == len(expected)
    # Quiet pieces that were left out are silence.
    assert np.array_equal(heard.samples[expected != 30], expected[expected != 30])
    assert heard.pauses == ()


def test_a_pause_in_which_nothing_came_stays_a_pause():
    pieces = [(numbered(n * PACKET), n * PACKET_US + (2_000_000 if n >= 60 else 0)) for n in range(120)]
    heard, _ = heard_of(pieces)
    assert heard.samples.astype("<i2").tobytes() == numbered(0, 120 * PACKET)
    assert heard.pauses == ((60 * PACKET, 2 * RATE_HZ),)


def test_what_is_left_of_a_lateness_at_the_end_is_a_pause_and_the_rest_is_not():
    track = np.concatenate((np.ones(100), np.zeros(50), np.ones(100))).astype(np.float32)
    # 50 late, of which 20 were made up for.
    heard = as_heard(track, [(150, 50), (200, -20)])
    assert heard.pauses == ((100, 30),)
    assert heard.samples.tolist() == [*[1.0] * 150, *[0.0] * 20, *[1.0] * 50]


@pytest.mark.parametrize("seam", [(-5, 3), (2, 5), (500, 10), (500, -10), (10, -1_000_000)])
def test_a_seam_that_is_no_part_of_the_track_is_left_out(seam: tuple[int, int]):
    track = np.arange(100, dtype=np.float32)
    heard = as_heard(track, [seam])
    assert np.array_equal(heard.samples, track) and heard.pauses == ()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-10, 120), st.integers(-200, 200)), max_size=8))
def test_seams_from_elsewhere_change_no_length_beyond_twice_the_track(seams: list[tuple[int, int]]):
    heard = as_heard(np.ones(100, np.float32), seams)
    assert len(heard.samples) <= 200
    assert all(count > 0 for _, count in heard.pauses)
    places = [place for place, _ in heard.pauses]
    assert places == sorted(places)
