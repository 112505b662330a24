"""Wait for the end of all that an engine has to say."""

import asyncio

import numpy as np
import pytest
from pipecat.frames.frames import Frame, TTSStartedFrame

from parley.core.units import Vote
from parley.models.omni import Preparation, UnitResult
from parley.processors.duplex.contents import Contents
from parley.processors.duplex.conversation import EngineConversation
from parley.processors.duplex.outlet import Outlet, Way
from parley.processors.duplex.settings import DuplexTuning
from parley.processors.duplex.voice import EngineVoice
from parley.runtime.event_stream import CallEvents
from tests import virtual_time


async def _nothing(_frame: Frame | None = None) -> None:
    pass


async def _prepare() -> Preparation:
    return Preparation("Be kind.")


def conversation() -> tuple[EngineConversation, Contents]:
    """Return a conversation before its first engine, for which contents wait."""
    events, settings = CallEvents(), DuplexTuning()
    contents = Contents(16_000, lambda _content: None)
    voice = EngineVoice(
        *(_nothing, events),
        settings=settings.voice,
        playout=None,
        keeps_apart=lambda: False,
        interrupt=_nothing,
    )
    way = Way(_nothing, _nothing, _nothing)
    return EngineConversation(events, way, Outlet(contents=contents), settings, _prepare, voice), contents


async def ended_after_s(waiting: "asyncio.Task[None]") -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await waiting
    return round(loop.time() - began_s, 3)


@pytest.mark.parametrize("has_content", [False, True])
def test_all_is_said_when_no_content_is_left(has_content: bool):
    async def scenario() -> float:
        held, contents = conversation()
        if has_content:
            contents.take(TTSStartedFrame(context_id="a"), captures=held.captures)
            assert held.is_waiting
            asyncio.get_running_loop().call_later(1.0, held.interrupt)
        return await ended_after_s(asyncio.create_task(held.until_all_is_said()))

    assert virtual_time.run(scenario()) == (1.0 if has_content else 0.0)


def test_all_is_said_when_the_voice_is_silent():
    async def scenario() -> float:
        held, _ = conversation()
        held.voice.begin(16_000, unit_ms=200)
        speaking = asyncio.create_task(held.voice.run())
        held.voice.say(
            UnitResult(Vote.SPEAK, text="Yes.", audio=np.full(3_200, 0.5, np.float32), end_of_turn=True)
        )
        after_s = await ended_after_s(asyncio.create_task(held.until_all_is_said()))
        speaking.cancel()
        return after_s

    # The pieces leave ahead of their time.
    assert 0.1 <= virtual_time.run(scenario()) <= 0.2
