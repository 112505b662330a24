"""Figures read from recordings whose edges are known."""

from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import MediaError
from parley.evals.harness.recording import WAV_RATE_HZ, measure, write_stereo

MS = WAV_RATE_HZ // 1000


def track(*stretches_ms: tuple[int, int], total_ms: int = 6_000) -> np.ndarray:
    pcm = np.zeros(total_ms * MS, dtype=np.int16)
    for start, end in stretches_ms:
        phase = 2 * np.pi * 400 * np.arange((end - start) * MS) / WAV_RATE_HZ
        pcm[start * MS : end * MS] = 9_000 * np.cos(phase)
    return pcm


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    return tmp_path / "call.wav"


@pytest.mark.parametrize("answer_ms", [1_600, 1_653, 2_007])
def test_voice_to_voice_is_exact_within_a_hop(wav: Path, answer_ms: int) -> None:
    write_stereo(wav, track((500, 1_500)), track((answer_ms, 3_000)))
    (turn,) = measure(wav, [400 * MS])
    assert turn.voice_to_voice_us is not None
    assert abs(turn.voice_to_voice_us - (answer_ms - 1_500) * 1000) <= 10_000
    assert turn.cut_in is None
    assert not turn.unanswered


def test_bot_in_the_callers_pause_is_a_cut_in(wav: Path) -> None:
    write_stereo(wav, track((500, 1_000), (1_600, 2_200)), track((1_300, 1_900), (2_700, 3_500)))
    (turn,) = measure(wav, [400 * MS])
    assert turn.cut_in is not None
    assert abs(turn.cut_in - 1_300 * MS) <= 10 * MS
    assert turn.voice_to_voice_us is None
    assert not turn.unanswered


def test_bot_that_waits_through_the_pause_does_not_cut_in(wav: Path) -> None:
    write_stereo(wav, track((500, 1_000), (1_600, 2_200)), track((2_700, 3_500)))
    (turn,) = measure(wav, [400 * MS])
    assert turn.cut_in is None
    assert turn.voice_to_voice_us == pytest.approx(500_000, abs=10_000)


def test_rest_of_an_earlier_answer_is_not_a_cut_in(wav: Path) -> None:
    write_stereo(wav, track((500, 1_500)), track((100, 700), (1_900, 2_500)))
    (turn,) = measure(wav, [400 * MS])
    assert turn.cut_in is None
    assert turn.voice_to_voice_us == pytest.approx(400_000, abs=10_000)


def test_silent_bot_leaves_the_turn_unanswered(wav: Path) -> None:
    write_stereo(wav, track((500, 1_500), (3_500, 4_500)), track((5_000, 5_500)))
    first, second = measure(wav, [400 * MS, 3_400 * MS])
    assert first.unanswered
    assert first.voice_to_voice_us is None
    assert second.voice_to_voice_us == pytest.approx(500_000, abs=10_000)


def test_turn_without_a_caller_is_refused(wav: Path) -> None:
    write_stereo(wav, track(), track((1_000, 2_000)))
    with pytest.raises(MediaError, match="no audible caller"):
        measure(wav, [0])


def test_not_a_wav_is_refused(wav: Path) -> None:
    wav.write_bytes(b"no audio")
    with pytest.raises(MediaError, match="not a WAV"):
        measure(wav, [0])
