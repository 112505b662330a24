import os
import random
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from parley.batch.decoding import AudioFileDecoder, RefusedSource
from parley.batch.settings import RATE_HZ, FileLimits
from tests.audio_files import ENCODERS, write_audio
from tests.voices import tone

SECONDS = 3


@pytest.fixture(scope="module")
def decoder():
    made = AudioFileDecoder(FileLimits(most_hours=0.01))
    yield made
    made.close()


def decoded(decoder: AudioFileDecoder, path: Path) -> np.ndarray:
    return np.concatenate(list(decoder.blocks(path)), axis=1)


def level(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(samples.astype(np.float64)))))


@pytest.mark.parametrize("suffix", ENCODERS)
def test_every_format_is_decoded_to_one_rate(decoder: AudioFileDecoder, tmp_path: Path, suffix: str):
    audio = decoded(decoder, write_audio(tmp_path / f"a{suffix}", tone(SECONDS * 1_000)))
    assert audio.dtype == np.int16
    assert audio.shape[0] == 1
    assert audio.shape[1] == pytest.approx(SECONDS * RATE_HZ, rel=0.05)
    assert level(audio) == pytest.approx(0.3 * 32_767 / 2**0.5, rel=0.1)
    assert decoder.cpu_ms > 0


def test_two_channels_stay_apart(decoder: AudioFileDecoder, tmp_path: Path):
    left, right = tone(1_000), bytes(2 * RATE_HZ)
    audio = decoded(decoder, write_audio(tmp_path / "a.flac", left, right))
    assert audio.shape == (2, RATE_HZ)
    assert audio[0].tobytes() == left
    assert not audio[1].any()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (random.Random(1).randbytes(50_000), "not audio"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "not audio"),
    ],
)
def test_a_file_that_is_not_audio_is_refused(
    decoder: AudioFileDecoder, tmp_path: Path, content: bytes, reason: str
):
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(RefusedSource, match=reason) as refused:
        decoded(decoder, path)
    assert not refused.value.may_succeed


def test_a_damaged_file_is_refused_and_the_next_one_decoded(decoder: AudioFileDecoder, tmp_path: Path):
    path = write_audio(tmp_path / "a.flac", tone(60_000 // 2))
    data = bytearray(path.read_bytes())
    half = len(data) // 2
    data[half:] = random.Random(2).randbytes(half)
    path.write_bytes(data)
    with pytest.raises(RefusedSource, match="damaged"):
        decoded(decoder, path)
    tolerant = AudioFileDecoder(FileLimits(least_share=0))
    assert decoded(tolerant, path).shape[1] == pytest.approx(15 * RATE_HZ, rel=0.1)
    tolerant.close()
    assert decoded(decoder, write_audio(tmp_path / "b.flac", tone(1_000))).shape == (1, RATE_HZ)


def test_links_pipes_and_folders_are_refused_without_being_read(decoder: AudioFileDecoder, tmp_path: Path):
    target = write_audio(tmp_path / "a.wav", tone(100))
    link, pipe, folder = tmp_path / "link.wav", tmp_path / "pipe.wav", tmp_path / "folder.wav"
    link.symlink_to(target)
    os.mkfifo(pipe)
    folder.mkdir()
    for path, reason in ((link, "a link"), (pipe, "not a regular"), (folder, "not a regular")):
        with pytest.raises(RefusedSource, match=reason):
            decoded(decoder, path)
    with pytest.raises(RefusedSource, match="cannot be opened"):
        decoded(decoder, tmp_path / "missing.wav")


def test_audio_that_does_not_end_is_refused_at_the_limit(decoder: AudioFileDecoder, tmp_path: Path):
    # 37 s, one more than the limit. Silence is nearly nothing in the file.
    path = write_audio(tmp_path / "a.flac", bytes(37 * RATE_HZ * 2))
    assert path.stat().st_size < 20_000
    with pytest.raises(RefusedSource, match=r"longer than 0\.01 h"):
        decoded(decoder, path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    path = write_audio(tmp_path / "a.wav", tone(1_000))
    decoder = AudioFileDecoder(FileLimits(most_gb=0.000_01))
    with pytest.raises(RefusedSource, match="larger than"):
        decoded(decoder, path)


def test_a_decoder_without_audio_is_killed_and_may_be_tried_again(tmp_path: Path):
    path = write_audio(tmp_path / "a.wav", tone(1_000))
    # No interpreter starts as quickly.
    decoder = AudioFileDecoder(FileLimits(decode_stall_s=0.001))
    with pytest.raises(RefusedSource, match="stalled") as refused:
        decoded(decoder, path)
    assert refused.value.may_succeed


def test_audio_that_is_not_taken_does_not_hold_the_next_file(decoder: AudioFileDecoder, tmp_path: Path):
    path = write_audio(tmp_path / "a.wav", tone(30_000))
    blocks = decoder.blocks(path)
    assert next(blocks).shape == (1, 10 * RATE_HZ)
    blocks.close()
    assert decoded(decoder, path).shape == (1, 30 * RATE_HZ)


def test_a_decoder_that_crashes_may_be_tried_again(decoder: AudioFileDecoder, tmp_path: Path):
    path = write_audio(tmp_path / "a.wav", tone(30_000))
    blocks = decoder.blocks(path)
    next(blocks)
    # The host, and the child that it has forked for the file.
    *_, child = psutil.Process().children(recursive=True)
    child.send_signal(signal.SIGSEGV)
    with pytest.raises(RefusedSource, match=r"crashed \(SIGSEGV\)") as refused:
        list(blocks)
    assert refused.value.may_succeed
    assert decoded(decoder, path).shape == (1, 30 * RATE_HZ)
