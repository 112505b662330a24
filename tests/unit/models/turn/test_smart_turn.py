import hashlib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3

from parley.core.errors import EngineError, ShapeError
from parley.core.media import pcm16_to_float
from parley.models.turn.network import LOGITS, SECOND_LAYER, LinearScore
from parley.models.turn.smart_turn import FILLER_FEATURES, FRAMES, LogMel, SmartTurn
from tests.tiny_networks import save_network
from tests.voices import say, silence

TURNS = {
    "question": pcm16_to_float(say("what is the fee for an overdraft") + silence(200)),
    "fragment": pcm16_to_float(say("what is the fee for an overdraft"))[:12_000],
    "long": np.tile(pcm16_to_float(say("what is the fee for an overdraft")), 6),
    "one sample": np.array([0.25], dtype=np.float32),
    "silence": np.zeros(16_000, dtype=np.float32),
}


@pytest.fixture(scope="module")
def model() -> SmartTurn:
    return SmartTurn()


@pytest.fixture(scope="module")
def reference() -> LocalSmartTurnAnalyzerV3:
    return LocalSmartTurnAnalyzerV3(cpu_count=1)


@pytest.mark.parametrize("name", list(TURNS))
def test_the_probability_equals_the_reference(
    name: str, model: SmartTurn, reference: LocalSmartTurnAnalyzerV3
) -> None:
    expected = reference._predict_endpoint(TURNS[name])["probability"]
    assert model.estimate(TURNS[name]).complete == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("samples", [127_441, 127_600, 127_639, 127_640, 127_641, 127_800, 128_000])
def test_frames_at_the_edge_of_the_padding_are_transformed(samples: int) -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)
    padded = np.concatenate((np.zeros(128_000 - samples, dtype=np.float32), audio))
    assert np.allclose(LogMel()(audio), LogMel()(padded), atol=1e-6)
    assert LogMel()(audio).shape == (80, FRAMES)


def test_a_network_that_cannot_take_the_features_is_an_engine_error(tmp_path: Path) -> None:
    weights = tmp_path / "weights.onnx"
    shape = [1, 3, 3]
    save_network(
        weights,
        [
            helper.make_node("Identity", ["input_features"], [LOGITS]),
            helper.make_node("Neg", ["input_features"], [SECOND_LAYER]),
        ],
        [helper.make_tensor_value_info("input_features", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, shape)],
    )
    line = LinearScore(
        np.zeros(FILLER_FEATURES, np.float32), 0.0, hashlib.sha256(weights.read_bytes()).hexdigest()
    )
    line.save(tmp_path / "line.npz")
    with pytest.raises(EngineError, match="the network failed"):
        SmartTurn(weights=weights, filler=tmp_path / "line.npz").estimate(np.zeros(16_000, dtype=np.float32))
    with pytest.raises(EngineError, match="for another network"):
        SmartTurn(weights=weights)


def test_audio_of_two_channels_is_refused(model: SmartTurn) -> None:
    with pytest.raises(ShapeError):
        model.estimate(np.zeros((2, 16_000), dtype=np.float32))
