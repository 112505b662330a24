from pathlib import Path

import numpy as np
import soundfile

from recording.stereo import WINDOW_MS, Side, StereoRecording


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
        recording.flush()
        assert len(recording._open) <= 2 * WINDOW_MS
    recording.close()
    stereo = read(tmp_path / "call.wav")
    assert len(stereo) == 120_000
    assert [int(stereo[second * 1_000 + 500, 0]) for second in (0, 60, 119)] == [1, 61, 120]


def test_a_piece_before_the_window_is_cut_to_what_is_still_open(tmp_path: Path):
    recording = StereoRecording(tmp_path / "call.wav", rate_hz=1_000)
    recording.place(Side.CALLER, 0, pcm(1, 15_000))
    recording.flush()
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
