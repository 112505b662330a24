"""Embedding of a voice, against the same network in PyTorch."""

import numpy as np
import pytest

from parley.core.errors import EngineError, ShapeError
from parley.models.specialists.voice_encoder import LAYERS, MEL_BANDS, UNITS, VoiceEncoder
from tests.unit.models.specialists.test_prosody import voice


def weights(seed: int = 1) -> dict[str, np.ndarray]:
    """Return random weights of the size of the package's."""
    drawn = np.random.default_rng(seed)

    def tensor(*shape: int) -> np.ndarray:
        return drawn.normal(0, 0.05, shape).astype(np.float32)

    found = {"linear.weight": tensor(UNITS, UNITS), "linear.bias": tensor(UNITS)}
    for layer in range(LAYERS):
        found[f"lstm.weight_ih_l{layer}"] = tensor(4 * UNITS, UNITS if layer else MEL_BANDS)
        found[f"lstm.weight_hh_l{layer}"] = tensor(4 * UNITS, UNITS)
        found |= {f"lstm.bias_{part}_l{layer}": tensor(4 * UNITS) for part in ("ih", "hh")}
    return found


def test_the_embedding_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    known, audio = weights(), voice(seconds=1.6)
    encoder = VoiceEncoder(known)
    lstm = torch.nn.LSTM(MEL_BANDS, UNITS, LAYERS, batch_first=True)
    lstm.load_state_dict({name[5:]: torch.from_numpy(each) for name, each in known.items() if "lstm" in name})
    with torch.no_grad():
        _, (hidden, _) = lstm(torch.from_numpy(encoder.mel(audio))[None])
        raw = torch.relu(
            torch.from_numpy(known["linear.weight"]) @ hidden[-1][0] + torch.from_numpy(known["linear.bias"])
        )
    np.testing.assert_allclose(encoder.embed(audio), (raw / raw.norm()).numpy(), atol=1e-5)


def test_an_embedding_has_length_1_and_does_not_depend_on_the_level_of_a_soft_voice():
    encoder = VoiceEncoder(weights())
    soft, softer = (encoder.embed(voice(gain=gain)) for gain in (0.01, 0.002))
    assert np.linalg.norm(soft) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(soft, softer, atol=1e-4)


@pytest.mark.parametrize("audio", [np.zeros((2, 16_000), np.float32), np.zeros(399, np.float32)])
def test_what_is_no_stretch_is_refused(audio: np.ndarray):
    with pytest.raises(ShapeError):
        VoiceEncoder(weights()).embed(audio)


def test_weights_that_are_missing_or_of_another_network_are_refused():
    known = weights()
    with pytest.raises(EngineError, match="linear"):
        VoiceEncoder({name: each for name, each in known.items() if name != "linear.bias"})
    with pytest.raises(EngineError, match="tensor"):
        VoiceEncoder({**known, "linear.bias": np.zeros(3, np.float32)})
