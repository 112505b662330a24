"""Contract (``parley.contracts``) of all turn completeness models, the fake included."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.contracts.turn_completeness import TurnCompletenessContract, turn
from parley.models.turn import TURN, TurnCompleteness
from parley.models.turn.smart_turn import SmartTurn
from parley.models.turn.turn_1 import Turn1, Turn1Mini, Turn1MiniSettings, Turn1Settings
from tests.fakes.turn import ScriptedTurn
from tests.tiny_turn_1 import save_turn_1, save_turn_1_mini


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


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(TURN.names()) <= MODELS.keys()


@pytest.mark.parametrize("name", TRAINED)
def test_a_finished_question_is_complete(name: str) -> None:
    assert MODELS[name]().estimate(turn()).complete > 0.5


class TestTurnCompleteness(TurnCompletenessContract):
    """The contract, on every one."""
