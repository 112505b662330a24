"""What every turn completeness model promises, the fake included."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from core.errors import ShapeError
from core.media import pcm16_to_float
from models.turn import TURN, TurnCompleteness
from models.turn.smart_turn import SmartTurn
from tests.fakes.turn import ScriptedTurn
from tests.voices import say, silence

MODELS: dict[str, Callable[[], TurnCompleteness]] = {"smart_turn": SmartTurn, "scripted": ScriptedTurn}


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


def test_a_finished_question_is_complete(model: TurnCompleteness) -> None:
    assert model.estimate(turn()).complete > 0.5


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
