"""The inner layers of smart-turn's network, and linear models on them."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from parley.core.errors import EngineError
from parley.models.pipecat_data import pipecat_file
from parley.models.turn.network import LOGITS, SECOND_LAYER, THIRD_LAYER, LinearScore, Network, averaged
from parley.models.turn.onnx_graph import with_output
from parley.models.turn.smart_turn import LogMel

GOLDEN = Path(__file__).parents[3] / "golden"


def test_the_network_gives_its_layers_and_what_it_gave_before() -> None:
    path = pipecat_file("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")
    mel = np.random.default_rng(1).standard_normal((80, 800)).astype(np.float32)
    before = onnxruntime.InferenceSession(path).run(None, {"input_features": mel[None]})[0][0]
    network = Network([SECOND_LAYER, THIRD_LAYER], engine="test")
    complete, second, third = network.run([LOGITS, SECOND_LAYER, THIRD_LAYER], mel)
    assert np.allclose(complete, before, atol=1e-5)
    assert second.shape == third.shape == (400, 384)
    assert not np.allclose(second, third)


@pytest.mark.parametrize(
    "name", ["heard_truth/said.flac", "heard_truth/other.flac", "sounds/wait.wav", "sounds/cough-1.wav"]
)
def test_recorded_audio_is_scored_as_by_the_network_of_the_wheel(name: str) -> None:
    path = pipecat_file("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")
    audio, rate_hz = soundfile.read(GOLDEN / name, dtype="float32")
    assert rate_hz == 16_000
    plain = onnxruntime.InferenceSession(with_output(path.read_bytes(), SECOND_LAYER))
    network = Network([SECOND_LAYER], engine="test")
    for end in (len(audio) // 3, len(audio) // 2, len(audio)):
        mel = LogMel()(audio[:end])
        expected = plain.run([LOGITS, SECOND_LAYER], {"input_features": mel[None]})
        for value, reference in zip(network.run([LOGITS, SECOND_LAYER], mel), expected, strict=True):
            assert np.allclose(value, reference[0], rtol=0, atol=1e-3)


def test_a_network_without_the_layer_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot load"):
        Network(
            [SECOND_LAYER], weights=pipecat_file("audio", "vad", "data", "silero_vad.onnx"), engine="test"
        )
    with pytest.raises(EngineError, match="cannot load"):
        Network([], weights=tmp_path / "none.onnx", engine="test")


def test_a_network_that_cannot_take_the_features_fails() -> None:
    with pytest.raises(EngineError, match="failed"):
        Network([], engine="test").run([LOGITS], np.zeros((3, 3), np.float32))


def test_states_are_averaged_part_by_part() -> None:
    states = np.repeat(np.arange(6, dtype=np.float32), 2)[:, None] * np.ones((1, 2), np.float32)
    assert averaged(states, 3).tolist() == [0.5, 0.5, 2.5, 2.5, 4.5, 4.5]


def test_a_line_is_kept_and_a_broken_file_is_none(tmp_path: Path) -> None:
    line = LinearScore(np.arange(4, dtype=np.float32), -0.5, "ab")
    line.save(tmp_path / "line.npz")
    loaded = LinearScore.load(tmp_path / "line.npz", features=4, network="ab", engine="test")
    assert np.array_equal(loaded.weights, line.weights) and (loaded.bias, loaded.network) == (-0.5, "ab")
    assert loaded.log_odds(np.ones(4, np.float32)) == 5.5
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    for name, features, network in (
        ("broken.npz", 4, "ab"),
        ("missing.npz", 4, "ab"),
        ("line.npz", 5, "ab"),
        ("line.npz", 4, "cd"),
    ):
        with pytest.raises(EngineError):
            LinearScore.load(tmp_path / name, features=features, network=network, engine="test")
