"""The evaluation of echo control: its rooms, its figures, and one short run."""

import json
from pathlib import Path

import numpy as np
import pytest

from evals.echo.__main__ import main
from evals.echo.calls import ROWS, Scene, erle_db, record
from evals.echo.measure import scenes, starts
from evals.echo.rooms import RATE_HZ, Speakerphone, at_level, distorted, echo_of, impulse_response, noise


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
    # Without echo control the bot hears itself; the run would measure nothing if it did not.
    assert result["starts"]["none"]["voice_activity"] == 2
    assert result["starts"]["parley"] == {"starts": 2, "voice_activity": 0, "self_interruptions": 0}
    assert result["barge_in"]["parley"]["found_within_1_s"] == 1
    assert "seed 3" in capsys.readouterr().out


def test_an_unknown_row_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "none,better", "--rooms", "0", "--starts", "0", "--barge-ins", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
