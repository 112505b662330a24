"""A call that has ended is freed by reference counting, whatever happened in it."""

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipecat.frames.frames import Frame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.utils.base_object import BaseObject

from parley.pipelines.call import Call, LiveCall
from parley.processors.duplex.engine_recogniser import EngineInput
from parley.telemetry.turns import TurnLog
from parley.turn_taking.barge_in.barge_in import BargeIn
from tests.sim.call import silence, simulate, voice

OF_A_CALL = (
    BaseObject,
    LLMContext,
    Frame,
    BargeIn,
    Call,
    LiveCall,
    TurnLog,
    EngineInput,
)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    """Count the objects of calls; shared frames that a library keeps for good are there before as well."""
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, OF_A_CALL))


QUESTION = (silence(500), voice(900), silence(3_000))


@pytest.mark.parametrize(
    "held",
    [
        {"caller": QUESTION},
        {"caller": QUESTION, "greeting": "Hello, how can I help you today?"},
        {"caller": (silence(500), voice(900), silence(1_500), voice(1_500), silence(2_000))},
        {"caller": QUESTION, "omni": ()},
        {"caller": QUESTION, "omni": (), "greeting": "Hello, how can I help you today?"},
        {"caller": QUESTION, "backchannel": {}},
        {"caller": QUESTION, "ask_back": {}, "confidence": 0.2},
        {"caller": QUESTION, "voicemail": {}},
    ],
    ids=[
        "answered",
        "greeted",
        "interrupted",
        "duplex",
        "duplex greeted",
        "backchannel",
        "asking the caller about",
        "voicemail",
    ],
)
def test_nothing_of_a_call_is_left_when_it_has_ended(held: dict[str, Any], tmp_path: Path):
    before = alive()
    simulate(held.pop("caller"), tmp_path, **held)
    assert alive() - before == Counter()
