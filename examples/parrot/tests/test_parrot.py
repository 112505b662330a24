"""Tests of the package: the contracts of Parley, and what is particular to a parrot."""

import numpy as np
import pytest
from loguru import logger
from parley_parrot.duplex import UNIT_SAMPLES, ParrotDuplexSettings, ParrotHost
from parley_parrot.observer import TurnCount
from parley_parrot.stt import ParrotSettings, ParrotStt
from parley_parrot.tool import opening_hours

from parley.contracts.omni_engine import OmniEngineContract
from parley.contracts.speech import question, silence, understand
from parley.contracts.speech_to_text import SpeechToTextContract
from parley.contracts.tools import ToolContract
from parley.core.call_events import AnswerHeard, TurnEnded
from parley.core.units import Vote
from parley.models.omni import Preparation
from parley.models.tools import Tool, ToolSettings
from parley.models.tools.function_tool import FunctionTool, arguments_model
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall


class TestRecogniser(SpeechToTextContract):
    """The contract of recognisers, and the phrase."""

    @pytest.fixture
    def engine(self) -> ParrotStt:
        return ParrotStt(ParrotSettings(phrase="Polly wants a cracker"))

    def test_it_hears_the_phrase_in_every_voice(self, engine: ParrotStt) -> None:
        assert understand(engine.open_stream(), question()).text == "polly wants a cracker"
        assert understand(engine.open_stream(), silence(500)).text == ""


class TestDuplexEngine(OmniEngineContract):
    """The contract of full-duplex engines, and the repetition."""

    @pytest.fixture
    def host(self) -> ParrotHost:
        return ParrotHost(ParrotDuplexSettings(silence_ms=160))

    def test_it_repeats_after_a_silence_and_yields_to_the_caller(self, host: ParrotHost) -> None:
        engine = host.open_engine()
        engine.prepare(Preparation())
        voice = np.full(UNIT_SAMPLES, 0.2, np.float32)
        quiet = np.zeros(UNIT_SAMPLES, np.float32)
        votes = []
        for unit in (voice, voice, voice, quiet, quiet, quiet, voice, quiet):
            engine.prefill(unit)
            votes.append(engine.generate().vote)
            engine.finalize()
        listen, speak = Vote.LISTEN, Vote.SPEAK
        assert votes == [listen, listen, listen, listen, speak, speak, Vote.YIELD, listen]


class TestTool(ToolContract):
    """The contract of tools."""

    @pytest.fixture
    def tool(self) -> Tool:
        settings = ToolSettings(name="opening_hours", description="Look up the hours.", idempotent=True)
        return FunctionTool(settings, opening_hours, arguments_model(opening_hours))

    @pytest.fixture
    def arguments(self) -> dict[str, str]:
        return {"day": "saturday"}


def test_the_observer_counts_turns_with_words() -> None:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]))
    try:
        events = CallEvents()
        observer = TurnCount(events, ObservedCall("session", "call", "webrtc"))
        for event in (TurnEnded(1, "hello"), AnswerHeard(2, 740), TurnEnded(3, "")):
            events.publish(event)
        observer.close()
    finally:
        logger.remove(sink)
    assert lines == ["turns: 1 over webrtc, slowest answer 740 ms"]
