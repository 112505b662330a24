"""Pipecat's own OpenAI Realtime service connected to Parley: a foreign pipeline as the client."""

import pytest

from tests.peers.foreign.pipecat_client import main
from tests.peers.realtime_caller import PCM_HZ, at_rate
from tests.peers.server import RunningServer
from tests.peers.test_openai_realtime import MAINLY_CASCADE, QUESTION, forecaster
from tests.voices import say

__all__ = ["forecaster"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_a_spoken_conversation_with_a_tool_and_an_interruption(forecaster: RunningServer, model: str):
    question, stop = (at_rate(say(text), PCM_HZ) for text in (QUESTION, "Stop, please tell me the price."))
    seen = await main(forecaster.url, question, stop, model, last="Sunday")
    assert seen["errors"] == []
    assert seen["called"] == ["Paris"]
    assert seen["heard"][0] == "what are your opening hours" and len(seen["heard"]) >= 2
    assert "sunny in Paris" in seen["words"] and seen["interrupted"]
    assert seen["loudest"] > 3_000
