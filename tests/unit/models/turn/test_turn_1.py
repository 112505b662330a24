"""turn-1-mini and turn-1 on randomly initialised networks with the published inputs and outputs."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from pydantic import ValidationError

from parley.core.errors import ConfigError, EngineError, ModelFileError, ShapeError
from parley.models.turn import TURN
from parley.models.turn.turn_1 import Turn1, Turn1Mini, Turn1MiniSettings, Turn1Settings
from tests.tiny_turn_1 import FRAME, STATES, STEP, save_turn_1, save_turn_1_mini


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("turn")
    save_turn_1_mini(root / "turn-1-mini.step.onnx")
    save_turn_1(root / "turn-1.onnx")
    return root


@pytest.fixture(scope="module")
def mini(folder: Path) -> Turn1Mini:
    return Turn1Mini(Turn1MiniSettings(folder=folder))


def large(folder: Path) -> Turn1:
    return Turn1(Turn1Settings(folder=folder, device="cpu"))


def noise(samples: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.1, samples).astype(np.float32)


def streamed(file: Path, audio: np.ndarray) -> np.ndarray:
    """Return the probability of each frame of whole steps, as the makers describe the stream."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    state = {f"state_{name}": np.zeros(shape, np.float32) for name, shape in STATES.items()}
    found = []
    for start in range(0, len(audio) - STEP + 1, STEP):
        feed = {"audio": audio[None, start : start + STEP], **state}
        results = dict(
            zip((each.name for each in session.get_outputs()), session.run(None, feed), strict=True)
        )
        found.append(results["probs"])
        state = {f"state_{name}": results[f"new_state_{name}"] for name in STATES}
    return np.concatenate(found)


@pytest.mark.parametrize("frames", [1, 7, 8, 9, 24, 61])
def test_the_estimate_is_that_of_the_last_frame_of_a_stream(mini: Turn1Mini, folder: Path, frames: int):
    audio = noise(10 * STEP)
    expected = streamed(folder / "turn-1-mini.step.onnx", audio)
    # A few samples more, less than a frame.
    heard = audio[: frames * FRAME + 100]
    assert mini.estimate(heard).complete == pytest.approx(expected[frames - 1], abs=1e-6)
    assert np.ptp(expected) > 0.1


def test_what_was_heard_first_stays_in_the_state(mini: Turn1Mini):
    audio = noise(3 * STEP)
    other = np.concatenate([noise(STEP, seed=2), audio[STEP:]])
    assert mini.estimate(audio) != mini.estimate(other)


def test_nothing_heard_is_no_end_of_a_turn(mini: Turn1Mini, folder: Path):
    assert mini.estimate(noise(FRAME - 1)).complete == 0.0
    assert large(folder).estimate(noise(0)).complete == 0.0


def test_only_the_newest_eight_seconds_are_heard(mini: Turn1Mini, folder: Path):
    long = noise(12 * 16_000)
    for model in (mini, large(folder)):
        assert model.estimate(long) == model.estimate(long[-8 * 16_000 :])


def test_a_fixed_number_of_samples_is_padded_in_front(tmp_path: Path):
    save_turn_1(tmp_path / "turn-1.onnx", samples=8 * 16_000)
    audio = noise(3 * 16_000)
    whole = np.pad(audio, (5 * 16_000, 0))
    model = large(tmp_path)
    assert model.estimate(audio) == model.estimate(whole)
    assert model.estimate(audio) != model.estimate(noise(3 * 16_000, seed=2))


def test_the_published_folder_and_its_small_variant_are_found(tmp_path: Path):
    (tmp_path / "onnx").mkdir()
    save_turn_1_mini(tmp_path / "onnx" / "turn-1-mini.step.int8dyn.onnx", seed=3)
    chosen = Turn1MiniSettings(folder=tmp_path, variant="int8")
    assert chosen.file.parent == tmp_path / "onnx"
    assert 0.0 < Turn1Mini(chosen).estimate(noise(STEP)).complete < 1.0
    with pytest.raises(ModelFileError, match=r"turn_1_mini.*turn-1-mini\.step\.onnx.*p99lab/turn-1-mini"):
        Turn1MiniSettings(folder=tmp_path).check()


def test_a_missing_graph_says_what_to_do(tmp_path: Path):
    with pytest.raises(ModelFileError, match=r"'turn_1' needs .*turn-1\.onnx.*docs/reference/weights\.md"):
        Turn1Settings(folder=tmp_path).check()
    with pytest.raises(ValidationError, match="folder"):
        Turn1MiniSettings.model_validate({})


def test_another_graph_is_refused(tmp_path: Path):
    save_turn_1_mini(tmp_path / "turn-1-mini.step.onnx", without="v")
    with pytest.raises(EngineError, match="not a graph of turn-1-mini"):
        Turn1Mini(Turn1MiniSettings(folder=tmp_path))
    save_turn_1_mini(tmp_path / "turn-1.onnx")
    with pytest.raises(EngineError, match="does not map"):
        large(tmp_path)
    (tmp_path / "turn-1.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match="cannot load"):
        large(tmp_path)


def test_a_device_that_is_not_there_is_named(folder: Path):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("there is one")
    with pytest.raises(EngineError, match="onnxruntime-gpu"):
        Turn1(Turn1Settings(folder=folder))


def test_a_network_that_gives_no_number_fails(tmp_path: Path):
    save_turn_1(tmp_path / "turn-1.onnx")
    with pytest.raises(EngineError, match="no probability"):
        large(tmp_path).estimate(np.full(16_000, np.nan, np.float32))


def test_audio_of_two_channels_is_refused(mini: Turn1Mini, folder: Path):
    for model in (mini, large(folder)):
        with pytest.raises(ShapeError):
            model.estimate(np.zeros((2, STEP), np.float32))


def test_both_are_rows(folder: Path):
    mini = TURN.create("turn_1_mini", Turn1MiniSettings(folder=folder))
    assert isinstance(mini, Turn1Mini)
    with pytest.raises(ConfigError, match="smart_turn, turn_1, turn_1_mini"):
        TURN.row("turn_2")
