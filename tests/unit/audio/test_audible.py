"""Audible edges on signals whose edges are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.audio.audible import (
    AudibleMeter,
    audible_spans,
    first_audible,
    is_loud,
    is_loud_pcm16,
    last_audible,
)
from parley.core.errors import ShapeError

RATE_HZ = 16_000
HOP = 160


def tone(samples: int, dbfs: float = -12.0) -> np.ndarray:
    """Return a 400 Hz tone with the given RMS that starts at its crest: its first sample is its loudest."""
    phase = 2 * np.pi * 400 * np.arange(samples) / RATE_HZ
    return (np.cos(phase) * np.sqrt(2) * 10 ** (dbfs / 20)).astype(np.float32)


def placed(start: int, length: int, *, total: int = RATE_HZ, dbfs: float = -12.0) -> np.ndarray:
    signal = np.zeros(total, dtype=np.float32)
    signal[start : start + length] = tone(length, dbfs)
    return signal


@pytest.mark.parametrize("start", [0, 1, 79, 80, 159, 160, 4_001, 7_777])
@pytest.mark.parametrize("length", [480, 1_601, 5_555])
def test_edges_are_exact_within_one_window(start: int, length: int) -> None:
    (span,) = audible_spans(placed(start, length), RATE_HZ)
    assert 0 <= span.first - start < HOP
    assert 0 <= start + length - 1 - span.last < HOP


def test_edges_of_a_loud_sound_are_exact_within_a_millisecond() -> None:
    (span,) = audible_spans(placed(4_037, 3_000), RATE_HZ)
    assert abs(span.first - 4_037) <= 16
    assert abs(span.last - 7_036) <= 16


def test_silence_has_no_edges() -> None:
    silence = np.zeros(RATE_HZ, dtype=np.float32)
    assert first_audible(silence, RATE_HZ) is None
    assert last_audible(silence, RATE_HZ) is None
    assert audible_spans(silence[:0], RATE_HZ) == []


def test_faint_noise_before_the_voice_is_not_audible() -> None:
    noise = np.random.default_rng(1).normal(0, 10 ** (-55 / 20), RATE_HZ).astype(np.float32)
    signal = noise + placed(8_000, 4_000)
    assert abs((first_audible(signal, RATE_HZ) or 0) - 8_000) < HOP


@pytest.mark.parametrize(("dbfs", "heard"), [(-44.0, True), (-46.0, False)])
def test_threshold_lies_at_minus_45_dbfs_rms(dbfs: float, heard: bool) -> None:
    assert bool(audible_spans(placed(1_600, 1_600, dbfs=dbfs), RATE_HZ)) is heard


def test_a_click_shorter_than_the_window_is_not_audible() -> None:
    assert audible_spans(placed(1_605, 100), RATE_HZ) == []


def test_a_gap_of_50_ms_separates_two_sounds() -> None:
    signal = placed(1_600, 1_600) + placed(4_000, 1_600)
    assert len(audible_spans(signal, RATE_HZ)) == 2


@pytest.mark.parametrize("shift", [1, 37, 80, 159])
def test_edges_move_exactly_with_the_sound(shift: int) -> None:
    rise = np.linspace(0, 1, 4_000, dtype=np.float32) * tone(4_000)
    at = [np.concatenate((np.zeros(1_600 + by, dtype=np.float32), rise)) for by in (0, shift)]
    first, moved = (first_audible(signal, RATE_HZ) for signal in at)
    assert first is not None
    assert moved == first + shift


def test_a_packet_is_loud_by_its_rms() -> None:
    assert is_loud(tone(320, dbfs=-44.0))
    assert not is_loud(tone(320, dbfs=-46.0))
    assert not is_loud(np.zeros(0, dtype=np.float32))


@pytest.mark.parametrize(("level_dbfs", "loud"), [(-44, True), (-46, False), (-90, False)])
def test_a_packet_of_16_bit_audio_is_loud_by_the_same_level(level_dbfs: float, loud: bool) -> None:
    samples = np.tile([1, -1], 160) * 32_768 * 10 ** (level_dbfs / 20)
    assert is_loud_pcm16(samples.astype("<i2").tobytes()) is loud
    assert not is_loud_pcm16(b"")


@pytest.mark.parametrize("bad", [np.zeros((2, 10), dtype=np.float32), np.zeros(10, dtype=np.int16)])
def test_wrong_arrays_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ShapeError):
        audible_spans(bad, RATE_HZ)
    with pytest.raises(ShapeError):
        AudibleMeter(RATE_HZ).feed(bad)


@settings(max_examples=40, deadline=None)
@given(
    levels=st.lists(st.sampled_from([0.0, 0.003, 0.02, 0.3]), min_size=1, max_size=30),
    pieces=st.lists(st.integers(1, 700), min_size=1, max_size=20),
    seed=st.integers(0, 9),
)
def test_stream_in_any_pieces_has_the_edges_of_the_whole(
    levels: list[float], pieces: list[int], seed: int
) -> None:
    noise = np.random.default_rng(seed).uniform(-1, 1, len(levels) * HOP).astype(np.float32)
    signal = noise * np.repeat(np.array(levels, dtype=np.float32), HOP)
    meter = AudibleMeter(RATE_HZ)
    position, turn = 0, 0
    while position < signal.size:
        step = pieces[turn % len(pieces)]
        meter.feed(signal[position : position + step])
        position, turn = position + step, turn + 1
    assert meter.first_audible == first_audible(signal, RATE_HZ)
    assert meter.last_audible == last_audible(signal, RATE_HZ)


def test_meter_says_whether_it_sounds_now() -> None:
    meter = AudibleMeter(RATE_HZ)
    meter.feed(placed(0, 1_600, total=1_600))
    assert meter.sounding
    meter.feed(np.zeros(HOP, dtype=np.float32))
    assert not meter.sounding
    assert meter.samples_seen == 1_760
