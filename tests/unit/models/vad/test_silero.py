from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from pipecat.audio.vad.silero import SileroVADAnalyzer

from parley.core.errors import EngineError, ShapeError
from parley.core.media import pcm16_to_float
from parley.models.vad.silero import SileroSettings, SileroVad
from tests.tiny_networks import save_network
from tests.voices import say

NEVER = SileroSettings(reset_after_ms=0)
WINDOW = 512


def windows(audio: np.ndarray) -> np.ndarray:
    return audio[: len(audio) // WINDOW * WINDOW].reshape(-1, WINDOW)


def speech() -> np.ndarray:
    return windows(pcm16_to_float(say("how do i block a lost card please")))


def music(duration_s: int) -> np.ndarray:
    chooser = np.random.default_rng(0)
    seconds = np.arange(4_000) / 16_000
    notes = []
    for _ in range(duration_s * 4):
        hz = 220 * 2 ** (chooser.integers(0, 24) / 12)
        notes.append(0.1 * sum(np.sin(2 * np.pi * hz * k * seconds) / k for k in (1, 2, 3, 4)))
    return windows(np.concatenate(notes).astype(np.float32))


def first_voice(detector: SileroVad, before: np.ndarray) -> int:
    """Return the windows from the beginning of speech to the fourth window of voice in a row."""
    stream = detector.open_stream()
    for window in before:
        stream.probability(window)
    run = 0
    for count, window in enumerate(speech()):
        run = run + 1 if stream.probability(window) > 0.7 else 0
        if run == 4:
            return count
    return len(speech())


def test_probabilities_equal_those_of_the_reference() -> None:
    reference = SileroVADAnalyzer(sample_rate=16_000)
    reference.set_sample_rate(16_000)
    stream = SileroVad(NEVER).open_stream()
    for window in speech()[:50]:
        expected = float(reference.voice_confidence((window * 32_768).astype("<i2").tobytes())[0])
        assert stream.probability(window) == pytest.approx(expected, abs=1e-6)


def test_a_voice_after_music_is_noticed_in_half_a_second() -> None:
    after_music = first_voice(SileroVad(), music(30))
    assert after_music * 32 < 500
    assert after_music <= first_voice(SileroVad(NEVER), music(30))


def test_long_silence_does_not_delay_a_voice() -> None:
    quiet = np.zeros((1_000, WINDOW), dtype=np.float32)
    assert first_voice(SileroVad(), quiet) - first_voice(SileroVad(), quiet[:10]) <= 2


def test_speech_is_never_forgotten_in_the_middle() -> None:
    audio = np.tile(speech(), (4, 1))
    with_resets, without = SileroVad().open_stream(), SileroVad(NEVER).open_stream()
    differences = [abs(with_resets.probability(w) - without.probability(w)) for w in audio]
    assert max(differences) == 0


def test_a_network_that_cannot_take_the_window_is_an_engine_error(tmp_path: Path) -> None:
    weights = tmp_path / "weights.onnx"
    save_network(
        weights,
        [
            helper.make_node(kind, [name], [f"{name}_out"])
            for kind, name in (("Relu", "input"), ("Relu", "state"))
        ]
        + [helper.make_node("Identity", ["sr"], ["sr_out"])],
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 1, 3]),
            helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("input_out", TensorProto.FLOAT, [1, 3]),
            helper.make_tensor_value_info("state_out", TensorProto.FLOAT, [2, 1, 3]),
        ],
    )
    stream = SileroVad(weights=weights).open_stream()
    with pytest.raises(EngineError, match="voice activity detection failed"):
        stream.probability(np.zeros(WINDOW, dtype=np.float32))


@pytest.mark.parametrize("shape", [(WINDOW - 1,), (1, WINDOW), (0,)])
def test_a_window_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    stream = SileroVad().open_stream()
    with pytest.raises(ShapeError):
        stream.probability(np.zeros(shape, dtype=np.float32))
