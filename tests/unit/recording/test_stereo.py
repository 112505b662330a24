from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile

from parley.core.errors import MediaError
from parley.recording.stereo import WINDOW_MS, Side, StereoRecording


def pcm(value: int, samples: int) -> bytes:
    return np.full(samples, value, dtype="<i2").tobytes()


def read(path: Path) -> np.ndarray:
    return soundfile.read(path, dtype="int16")[0]


def test_sides_share_one_time_line_and_gaps_are_silence(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    recording.place(Side.CALLER, 0, pcm(5, 10))
    recording.place(Side.BOT, 20, pcm(7, 10))
    recording.close()
    stereo = read(tmp_path / "call.wav")
    assert stereo.shape == (30, 2)
    assert (stereo[:10, 0] == 5).all()
    assert (stereo[10:, 0] == 0).all()
    assert (stereo[20:, 1] == 7).all()


def test_old_audio_is_written_out_and_memory_stays_flat(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    for second in range(120):
        recording.place(Side.CALLER, second * 1_000, pcm(second + 1, 1_000))
        recording.settle()
        recording.write()
        assert len(recording._open) <= 2 * WINDOW_MS
    recording.close()
    stereo = read(tmp_path / "call.wav")
    assert len(stereo) == 120_000
    assert [int(stereo[second * 1_000 + 500, 0]) for second in (0, 60, 119)] == [1, 61, 120]


def test_a_piece_before_the_window_is_cut_to_what_is_still_open(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    recording.place(Side.CALLER, 0, pcm(1, 15_000))
    recording.settle()
    recording.write()
    recording.place(Side.BOT, 4_000, pcm(9, 2_000))
    recording.close()
    bot = read(tmp_path / "call.wav")[:, 1]
    assert (bot[:5_000] == 0).all()
    assert (bot[5_000:6_000] == 9).all()


def test_a_piece_longer_than_the_window_fits(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    recording.place(Side.BOT, 100, pcm(3, 50_000))
    recording.close()
    assert len(read(tmp_path / "call.wav")) == 50_100


def test_a_write_that_comes_after_the_end_of_the_call_changes_nothing(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    recording.place(Side.CALLER, 0, pcm(1, 15_000))
    recording.settle()
    recording.close()
    recording.write()
    assert len(read(tmp_path / "call.wav")) == 15_000


def test_pieces_are_placed_while_another_thread_writes(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    with ThreadPoolExecutor(2) as threads:
        for second in range(60):
            recording.place(Side.CALLER, second * 1_000, pcm(second + 1, 1_000))
            recording.settle()
            threads.submit(recording.write)
    recording.close()
    assert [int(value) for value in read(tmp_path / "call.wav")[500::1_000, 0]] == list(range(1, 61))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_an_error_that_names_the_file():
    recording = StereoRecording(Path("/dev/full"), rate_hz=1_000)
    recording.place(Side.CALLER, 0, pcm(1, 50_000))
    with pytest.raises(MediaError, match="/dev/full"):
        recording.close()
