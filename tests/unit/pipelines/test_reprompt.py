"""Conditions under which the bot asks again after a noise."""

import pytest
from pipecat.frames.frames import Frame, TTSSpeakFrame

from parley.core.call_events import BotTurnEnded, CallEvent, FloorTaken, TurnEnded
from parley.pipelines.pipeline_input import PipelineInput
from parley.pipelines.voice.reprompt import Reprompt
from parley.processors.turns.floor import Floor
from parley.runtime.event_stream import CallEvents
from tests import virtual_time

CUT, WHOLE = BotTurnEnded(0, "One two", True), BotTurnEnded(0, "One two three.", False)
NOISE, WORDS = TurnEnded(0, ""), TurnEnded(0, "what is it")


def said(
    *events: CallEvent,
    phrase: str = "Pardon?",
    cut_off: bool = False,
) -> list[str]:
    async def scenario() -> list[str]:
        stream, pipeline, frames = CallEvents(), PipelineInput(), list[Frame]()

        async def take(frame: Frame) -> None:
            frames.append(frame)

        pipeline.open(take)
        Reprompt(stream, Floor(stream), pipeline, phrase, was_wait_cut_off=lambda: cut_off)
        for event in events:
            stream.publish(event)
        await pipeline.flush()
        return [frame.text for frame in frames if isinstance(frame, TTSSpeakFrame)]

    return virtual_time.run(scenario())


@pytest.mark.parametrize("events", [(CUT, NOISE), (WHOLE, CUT, NOISE)])
def test_a_noise_that_cut_a_reply_is_asked_about(events: tuple[CallEvent, ...]):
    assert said(*events) == ["Pardon?"]


def test_a_noise_that_cut_off_the_wait_for_an_answer_is_asked_about():
    assert said(NOISE, cut_off=True) == ["Pardon?"]


@pytest.mark.parametrize("events", [(NOISE,), (WHOLE, NOISE), (CUT, WORDS), (CUT, WORDS, NOISE)])
def test_who_took_nothing_from_the_bot_or_said_something_is_not_asked(events: tuple[CallEvent, ...]):
    assert said(*events) == []


def test_a_noisy_room_is_asked_once_until_someone_speaks():
    assert said(CUT, NOISE, CUT, NOISE) == ["Pardon?"]
    assert said(CUT, NOISE, WORDS, CUT, NOISE) == ["Pardon?", "Pardon?"]


def test_a_reply_that_is_about_to_be_resumed_explains_the_silence():
    assert said(CUT, FloorTaken(0), NOISE) == []


def test_without_a_phrase_nothing_is_said():
    assert said(CUT, NOISE, phrase="") == []
