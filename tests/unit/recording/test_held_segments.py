"""Segments of a caller on their way to the disk, until their words are decided."""

import numpy as np
import pytest

from parley.recording.held_segments import LAG_MS, MOST_HELD, TONE_LEVEL, HeldSegments
from parley.recording.track import SEGMENT_MS, AudioSegment

RATE_HZ = 8_000


def segment(number: int, level: int = 1_000) -> AudioSegment:
    samples = np.full(SEGMENT_MS * RATE_HZ // 1_000, level, "<i2")
    return AudioSegment(number, RATE_HZ, samples.tobytes(), SEGMENT_MS)


def samples_of(one: AudioSegment) -> np.ndarray:
    return np.frombuffer(one.pcm, "<i2")


def test_what_has_no_voice_passes_unchanged_once_a_voice_could_be_detected():
    held, first = HeldSegments("silence"), segment(0)
    assert held.pass_on([first], SEGMENT_MS + LAG_MS - 1) == []
    assert held.pass_on([], SEGMENT_MS + LAG_MS) == [first]


def test_nothing_of_an_undecided_voice_passes_before_it_is_settled():
    held = HeldSegments("silence")
    held.hold(4_000)
    assert held.pass_on([segment(0), segment(1)], 30_000) == []
    held.settle([(4_000, 6_500)])
    one, other = held.pass_on([], 30_000)
    assert not samples_of(one)[32_000:].any() and samples_of(one)[:32_000].all()
    assert not samples_of(other)[:12_000].any() and samples_of(other)[12_000:].all()
    assert held.facts() == {"redacted": [{"start_ms": 4_000, "length_ms": 2_500}]}


def test_the_oldest_passes_without_audio_when_too_many_wait():
    held = HeldSegments("silence")
    held.hold(0)
    passed = held.pass_on([segment(number) for number in range(MOST_HELD + 2)], 90_000)
    assert [each.number for each in passed] == [0, 1]
    assert not any(samples_of(each).any() for each in passed)
    assert held.waiting == MOST_HELD


def test_what_is_never_decided_is_redacted_at_the_end_of_the_call():
    held = HeldSegments("silence")
    held.hold(6_000)
    one, other = held.pass_on([segment(0), segment(1)], 11_000, is_last=True)
    assert samples_of(one).all()
    assert samples_of(other)[:8_000].all() and not samples_of(other)[8_000:].any()


@pytest.mark.parametrize("replaced_by", ["silence", "tone"])
def test_the_replacement_has_nothing_of_the_audio(replaced_by):
    held = HeldSegments(replaced_by)
    held.settle([(1_000, 2_000)])
    (one,) = held.pass_on([segment(0, level=20_000)], 30_000)
    stretch = samples_of(one)[RATE_HZ : 2 * RATE_HZ]
    peak = round(TONE_LEVEL * 32_767) if replaced_by == "tone" else 0
    assert abs(int(np.abs(stretch).max()) - peak) <= 1
    assert abs(float(stretch.mean())) < 1
