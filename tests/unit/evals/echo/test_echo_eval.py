"""The evaluation of echo control: its rooms, its figures, and one short run."""

import json
from pathlib import Path

import numpy as np
import pytest

from parley.evals.echo.__main__ import main
from parley.evals.echo.calls import ROWS, Scene, erle_db, record
from parley.evals.echo.measure import scenes, starts
from parley.evals.echo.rooms import (
    RATE_HZ,
    EchoPath,
    Speakerphone,
    at_level,
    distorted,
    echo_of,
    impulse_response,
    noise,
)


def click(samples: int = RATE_HZ) -> np.ndarray:
    sound = np.zeros(samples, np.float32)
    sound[1_000] = 0.5
    return sound


@pytest.mark.parametrize("delay_ms", [20.0, 600.0])
def test_the_echo_comes_when_it_should(delay_ms: float) -> None:
    phone = Speakerphone(1, delay_ms, direct_db=20.0, distortion_db=None)
    loudest = int(np.argmax(np.abs(echo_of(click(), phone))))
    assert abs(loudest - 1_000 - 16 * delay_ms) <= 2


def test_a_fast_clock_takes_more_samples() -> None:
    sound = np.zeros(20 * RATE_HZ, np.float32)
    sound[19 * RATE_HZ] = 0.5
    same, fast = (
        int(np.argmax(np.abs(echo_of(sound, Speakerphone(1, 50.0, ppm, direct_db=20.0, distortion_db=None)))))
        for ppm in (0.0, 200.0)
    )
    assert fast - same == pytest.approx(19.05 * RATE_HZ * 200e-6, abs=2)


def test_a_room_dies_away_and_is_the_same_for_the_same_seed() -> None:
    phone = Speakerphone(3, 50.0, reverb_ms=250.0)
    path = impulse_response(phone)
    assert np.vdot(path, path) == pytest.approx(1.0)
    early, late = path[800:1_600], path[4_800:5_600]
    fallen_db = 10 * np.log10(np.vdot(early, early) / np.vdot(late, late))
    assert fallen_db == pytest.approx(60.0, abs=4)
    assert np.array_equal(path, impulse_response(phone))
    assert not np.array_equal(path, impulse_response(Speakerphone(4, 50.0, reverb_ms=250.0)))


def test_distortion_is_as_loud_as_it_says() -> None:
    sound = np.random.default_rng(5).standard_normal(RATE_HZ) * 0.1
    bent = distorted(sound, -30.0)
    linear = sound * np.vdot(bent, sound) / np.vdot(sound, sound)
    rest = bent - linear
    assert 10 * np.log10(np.vdot(rest, rest) / np.vdot(linear, linear)) == pytest.approx(-30.0, abs=0.5)


def talk() -> np.ndarray:
    rng = np.random.default_rng(7)
    loudness = 0.1 * (np.sin(np.arange(3 * RATE_HZ) / 2_000) > 0)
    return (loudness * rng.standard_normal(3 * RATE_HZ)).astype(np.float32)


def in_pieces(path: EchoPath, sound: np.ndarray, *, pieces: tuple[int, ...] = (320,)) -> np.ndarray:
    heard, at, turn = [], 0, 0
    while at < len(sound):
        piece = sound[at : at + pieces[turn % len(pieces)]]
        heard.append(path.hear(piece))
        at, turn = at + len(piece), turn + 1
    return np.concatenate(heard)


@pytest.mark.parametrize("pieces", [(320,), (160, 1_000, 7)])
@pytest.mark.parametrize("delay_ms", [40.0, 250.0])
def test_an_echo_in_pieces_is_that_of_the_whole(delay_ms: float, pieces: tuple[int, ...]) -> None:
    phone, sound = Speakerphone(3, delay_ms), talk()
    whole = at_level(echo_of(sound, phone), -36.0)
    heard = in_pieces(EchoPath(phone, sound, -36.0), sound, pieces=pieces)
    assert np.mean((heard - whole) ** 2) < 1e-8 * np.mean(whole**2)


def test_what_is_played_lower_comes_back_lower_and_silence_rings_out() -> None:
    phone, sound = Speakerphone(3, 60.0, reverb_ms=150.0), talk()
    full = in_pieces(EchoPath(phone, sound, -36.0), sound)
    path = EchoPath(phone, sound, -36.0)
    lower = in_pieces(path, sound * 10 ** (-12 / 20))
    assert 10 * np.log10(np.mean(full**2) / np.mean(lower**2)) == pytest.approx(12.0, abs=0.1)
    assert np.abs(in_pieces(path, np.zeros(RATE_HZ, np.float32))[RATE_HZ // 2 :]).max() < 1e-4


def test_an_echo_in_pieces_has_one_clock_and_room_for_its_filters() -> None:
    for phone in (Speakerphone(3, 60.0, drift_ppm=50.0), Speakerphone(3, 20.0)):
        with pytest.raises(ValueError, match="no drift"):
            EchoPath(phone, talk(), -36.0)


def test_levels_are_those_of_the_scene() -> None:
    scene = Scene(Speakerphone(6, 50.0), echo_dbfs=-30.0, noise_dbfs=-70.0, near_over_echo_db=12.0)
    sound = 0.1 * np.random.default_rng(6).standard_normal(2 * RATE_HZ).astype(np.float32)
    call = record(scene, sound, sound)
    assert erle_db(call.near, call.echo) == pytest.approx(12.0, abs=1.0)
    assert 10 * np.log10(np.mean(noise(RATE_HZ, -70.0, 1) ** 2)) == pytest.approx(-70.0, abs=0.1)
    assert 10 * np.log10(np.mean(at_level(sound, -20.0) ** 2)) == pytest.approx(-20.0, abs=0.1)


def test_half_the_amplitude_is_6_db() -> None:
    sound = np.random.default_rng(7).standard_normal(1_000).astype(np.float32)
    assert erle_db(sound, sound / 2) == pytest.approx(6.02, abs=0.01)


def test_scenes_cover_the_delays_and_drifts_and_follow_the_seed() -> None:
    first = list(scenes(1, 2))
    assert {round(scene.phone.delay_ms) // 20 for scene in first} == {1, 4, 10, 20, 30}
    assert {scene.phone.drift_ppm for scene in first} == {0.0, 200.0}
    assert first == list(scenes(1, 2))
    assert first != list(scenes(2, 2))
    assert list(starts(1, 5, with_caller=True)) == list(starts(1, 5, with_caller=True))


def test_a_short_run_writes_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "out.json"
    arguments = ["--rooms", "0", "--starts", "2", "--barge-ins", "1", "--seed", "3", "--json", str(written)]
    assert main(arguments) == 0
    result = json.loads(written.read_text())
    assert result["seed"] == 3
    assert set(result["starts"]) == set(ROWS)
    # Without echo control the bot hears itself; otherwise the run would measure nothing.
    assert result["starts"]["none"]["voice_activity"] == 2
    assert result["starts"]["parley"] == {"starts": 2, "voice_activity": 0, "self_interruptions": 0}
    assert result["barge_in"]["parley"]["found_within_1_s"] == 1
    assert "seed 3" in capsys.readouterr().out


def test_an_unknown_row_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "none,better", "--rooms", "0", "--starts", "0", "--barge-ins", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
