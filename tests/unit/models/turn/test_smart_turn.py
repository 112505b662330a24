import numpy as np
import pytest
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3

from core.media import pcm16_to_float
from models.turn.smart_turn import FRAMES, LogMel, SmartTurn
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
    assert model.probability(TURNS[name]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("samples", [127_441, 127_600, 127_639, 127_640, 127_641, 127_800, 128_000])
def test_frames_at_the_edge_of_the_padding_are_transformed(samples: int) -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)
    padded = np.concatenate((np.zeros(128_000 - samples, dtype=np.float32), audio))
    assert np.allclose(LogMel()(audio), LogMel()(padded), atol=1e-6)
    assert LogMel()(audio).shape == (80, FRAMES)
