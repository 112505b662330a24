"""The callers' voices."""

import wave
from pathlib import Path

import numpy as np
import pytest

from parley.audio.audible import audible_spans, last_audible
from parley.core.errors import MediaError
from parley.evals.harness.questions import Utterance
from parley.evals.harness.speech import (
    FRAME_SAMPLES,
    PEAK,
    RATE_HZ,
    Speakers,
    decode,
    encode,
    framed,
    trimmed,
)


def test_pause_between_two_parts_is_the_planned_one(tmp_path: Path) -> None:
    spoken = Speakers(tmp_path).speak(Utterance(("i lost my card and,", "help me"), 500, "flite", "rms", 0))
    spans = audible_spans(spoken.pcm.astype(np.float32) / 32768, RATE_HZ)
    longest = max(b.first - a.last for a, b in zip(spans, spans[1:], strict=False))
    assert longest == pytest.approx(500 * RATE_HZ // 1000, abs=RATE_HZ // 40)
    assert len(spoken.packets) == spoken.pcm.size // FRAME_SAMPLES


def test_second_time_comes_from_the_cache(tmp_path: Path) -> None:
    utterance = Utterance(("good morning",), 0, "flite", "awb", 0)
    first = Speakers(tmp_path).speak(utterance)
    (file,) = tmp_path.glob("*.wav")
    written = file.stat().st_mtime_ns
    assert np.array_equal(Speakers(tmp_path).speak(utterance).pcm, first.pcm)
    assert file.stat().st_mtime_ns == written


def test_voice_is_cut_at_its_edges_and_set_to_the_level() -> None:
    samples = np.zeros(RATE_HZ, dtype=np.float32)
    samples[10_000:30_000] = 0.1 * np.cos(np.arange(20_000) / 10)
    voice = trimmed(samples)
    assert voice.size == pytest.approx(20_000, abs=480)
    assert np.abs(voice).max() == pytest.approx(PEAK * 32767, abs=1)
    assert framed(voice).size % FRAME_SAMPLES == 0


def test_silent_voice_is_refused() -> None:
    with pytest.raises(MediaError):
        trimmed(np.zeros(1_000, dtype=np.float32))


def test_one_packet_per_frame() -> None:
    assert len(encode(np.zeros(FRAME_SAMPLES * 7, dtype=np.int16))) == 7


def test_what_is_on_the_line_lies_where_it_was_said() -> None:
    voice = np.random.default_rng(1).normal(0, 3_000, RATE_HZ // 2)
    # A band that the codec keeps.
    smooth = np.convolve(voice, np.ones(24) / 24, "same")
    pcm = framed(np.rint(smooth * 4).clip(-32_768, 32_767).astype(np.int16))
    carried = decode(encode(pcm))
    assert carried.shape == pcm.shape and carried.dtype == np.int16
    shifts = range(-480, 481)
    said = pcm[5_000:20_000].astype(np.float64)
    likeness = [float(said @ carried[5_000 + shift : 20_000 + shift]) for shift in shifts]
    assert abs(shifts[int(np.argmax(likeness))]) <= 2


def test_the_line_carries_the_level_and_a_soft_last_sound(tmp_path: Path) -> None:
    # The "k" is 1 dB above what is audible.
    spoken = Speakers(tmp_path).speak(Utterance(("how do i deposit a check",), 0, "flite", "rms", 0))
    (file,) = tmp_path.glob("*.wav")
    with wave.open(str(file), "rb") as cached:
        said = framed(np.frombuffer(cached.readframes(cached.getnframes()), dtype=np.int16))
    power = [float(np.mean(pcm.astype(np.float64) ** 2)) for pcm in (said, spoken.pcm)]
    assert abs(10 * np.log10(power[1] / power[0])) < 0.3
    before, behind = (last_audible(pcm / 32_768, RATE_HZ) for pcm in (said, spoken.pcm))
    assert before is not None and behind is not None
    assert abs(before - behind) * 1000 / RATE_HZ < 10
