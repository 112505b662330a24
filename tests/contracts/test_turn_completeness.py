"""Contract of all turn completeness models, the fake included."""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ShapeError
from parley.core.media import pcm16_to_float
from parley.models.turn import TURN, TurnCompleteness
from parley.models.turn.smart_turn import SmartTurn
from parley.models.turn.turn_1 import Turn1, Turn1Mini, Turn1MiniSettings, Turn1Settings
from tests.fakes.turn import ScriptedTurn
from tests.tiny_turn_1 import save_turn_1, save_turn_1_mini
from tests.voices import say, silence


def turn_1_mini() -> TurnCompleteness:
    with tempfile.TemporaryDirectory() as folder:
        save_turn_1_mini(Path(folder) / "turn-1-mini.step.onnx")
        return Turn1Mini(Turn1MiniSettings(folder=Path(folder)))


def turn_1() -> TurnCompleteness:
    with tempfile.TemporaryDirectory() as folder:
        save_turn_1(Path(folder) / "turn-1.onnx")
        return Turn1(Turn1Settings(folder=Path(folder), device="cpu"))


MODELS: dict[str, Callable[[], TurnCompleteness]] = {
    "smart_turn": SmartTurn,
    "scripted": ScriptedTurn,
    "turn_1_mini": turn_1_mini,
    "turn_1": turn_1,
}
# The others have random weights here; the trained ones are distributed by their owners.
TRAINED = ("smart_turn", "scripted")


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> TurnCompleteness:
    return MODELS[request.param]()


def turn(text: str = "how do i block a lost card") -> np.ndarray:
    return pcm16_to_float(say(text) + silence(200))


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(TURN.names()) <= MODELS.keys()


@pytest.mark.parametrize("samples", [0, 1, 160, 16_000])
def test_any_length_has_a_probability(model: TurnCompleteness, samples: int) -> None:
    assert 0.0 <= model.estimate(turn()[:samples]).complete <= 1.0


@pytest.mark.parametrize("name", TRAINED)
def test_a_finished_question_is_complete(name: str) -> None:
    assert MODELS[name]().estimate(turn()).complete > 0.5


def test_a_long_turn_is_cut_from_the_front(model: TurnCompleteness) -> None:
    long = np.tile(turn(), 6)
    assert len(long) > model.max_samples
    assert model.estimate(long) == model.estimate(long[-model.max_samples :])


def test_audio_of_another_shape_is_refused(model: TurnCompleteness) -> None:
    with pytest.raises(ShapeError):
        model.estimate(np.zeros((1, 16_000), dtype=np.float32))


def test_the_input_is_not_changed(model: TurnCompleteness) -> None:
    audio = turn()
    before = audio.copy()
    model.estimate(audio)
    assert np.array_equal(audio, before)


def test_calls_may_overlap(model: TurnCompleteness) -> None:
    audio = turn()
    alone = model.estimate(audio)
    heard: list[float] = []
    threads = [threading.Thread(target=lambda: heard.append(model.estimate(audio))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [alone] * 3
