"""Contract of the models that judge whether a short utterance claims the turn.

They are the shipped network and a linear model.
"""

import threading
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import EngineError, ShapeError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.turns import sounds
from parley.models.keyword_spotting.floor import FEATURES, LINE_FILE, FloorEncoder, FloorJudge, sounding
from parley.models.keyword_spotting.pocketsphinx import CommandSettings, PocketsphinxCommands
from parley.models.pipecat_data import pipecat_file
from parley.models.turn.network import LinearScore
from tests.listening import understand, understood_in_a_child
from tests.voices import say, silence


@pytest.fixture(scope="module")
def judge() -> FloorJudge:
    return FloorJudge()


def heard(text: str, voice: str) -> np.ndarray:
    return pcm16_to_float(silence(200) + say(text, voice) + silence(150))


VOICES = ("rms", "slt", "awb", "kal16")


def share_that_claims(judge: FloorJudge, texts: tuple[str, ...]) -> float:
    return float(np.mean([judge.log_odds(heard(text, voice)) > 0 for text in texts for voice in VOICES]))


def test_a_caller_who_says_something_wants_the_floor_more_than_a_caller_who_listens(
    judge: FloorJudge,
) -> None:
    # The first two phrases were not in the fit.
    claims = share_that_claims(judge, ("tell me the fee", "the other account", "how much is it", "no wait"))
    assert claims >= 0.9
    assert share_that_claims(judge, ("yeah", "okay", "right", "uh huh", "i see")) <= 0.2


def test_a_hum_and_a_cough_want_nothing(judge: FloorJudge) -> None:
    rng = np.random.default_rng(77)
    assert np.mean([judge.log_odds(sounds.hum(rng)) > 0 for _ in range(20)]) <= 0.1
    assert np.mean([judge.log_odds(sounds.cough(rng)) > 0 for _ in range(20)]) <= 0.1


@pytest.mark.parametrize("gain_db", [-20, -6])
def test_loudness_and_silence_around_it_change_little(judge: FloorJudge, gain_db: float) -> None:
    voice = heard("the other account", "rms")
    # Cut at whole frames: the offset of the first frame changes the result by some tenths.
    padded = np.pad(voice, (1_920, 3_200)) * np.float32(10 ** (gain_db / 20))
    assert judge.log_odds(padded) == pytest.approx(judge.log_odds(voice), abs=0.3)


@pytest.mark.parametrize("samples", [1, 100, 480, 64_000])
def test_any_length_and_silence_have_finite_odds(judge: FloorJudge, samples: int) -> None:
    rng = np.random.default_rng(samples)
    odds = judge.log_odds(rng.standard_normal(samples).astype(np.float32) * 0.1)
    assert odds is not None and np.isfinite(odds)
    assert judge.log_odds(np.zeros(samples, np.float32)) is None


def test_what_is_not_audio_is_refused(judge: FloorJudge) -> None:
    for audio in (np.zeros((2, 100), np.float32), np.zeros(0, np.float32)):
        with pytest.raises(ShapeError):
            judge.log_odds(audio)


def test_two_threads_hear_what_one_does(judge: FloorJudge) -> None:
    voices = [heard(text, "rms") for text in ("okay", "tell me the fee")]
    alone = [judge.log_odds(voice) for voice in voices]
    found: dict[int, list[float]] = {}

    def listen(place: int) -> None:
        found[place] = [judge.log_odds(voices[place]) for _ in range(5)]

    threads = [threading.Thread(target=listen, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == {place: [alone[place]] * 5 for place in range(2)}


def test_a_network_without_the_layer_does_not_load(tmp_path: Path) -> None:
    silero = pipecat_file("audio", "vad", "data", "silero_vad.onnx")
    with pytest.raises(EngineError, match="cannot load"):
        FloorEncoder(silero)
    with pytest.raises(EngineError, match="cannot load"):
        FloorEncoder(tmp_path / "none.onnx")


def test_a_line_belongs_to_its_network(tmp_path: Path) -> None:
    kept = LinearScore.load(LINE_FILE, features=FEATURES, network=FloorEncoder().network, engine="floor")
    LinearScore(kept.weights, kept.bias, "0" * 64).save(tmp_path / "other.npz")
    with pytest.raises(EngineError, match="another network"):
        FloorJudge(tmp_path / "other.npz")


def test_only_what_sounds_is_listened_to() -> None:
    voice = np.full(3_200, 0.1, np.float32)
    found = sounding(np.concatenate((np.zeros(4_000, np.float32), voice, np.zeros(4_000, np.float32))))
    assert 3_200 <= len(found) <= 3_200 + 8 * 160
    assert len(sounding(np.zeros(4_000, np.float32))) == 4_000


def test_the_spotter_says_it_and_can_be_told_not_to() -> None:
    pcm = float_to_pcm16(heard("tell me the fee", "rms"))
    spotter, silent = PocketsphinxCommands(), PocketsphinxCommands(CommandSettings(floor=False))
    assert (understand(spotter.open_stream(), pcm).floor_log_odds or 0) > 0
    assert understand(silent.open_stream(), pcm).floor_log_odds is None


async def test_it_crosses_to_the_server_from_a_child_process() -> None:
    pcm = float_to_pcm16(heard("tell me the fee", "rms"))
    said = await understood_in_a_child(
        "parley.models.keyword_spotting.pocketsphinx:PocketsphinxCommands", CommandSettings(), pcm
    )
    assert said.floor_log_odds == pytest.approx(FloorJudge().log_odds(pcm16_to_float(pcm)), abs=1e-3)
