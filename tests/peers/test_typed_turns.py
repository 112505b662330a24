"""Typed turns over a provider that misbehaves."""

from pathlib import Path

import pytest

from parley.core.errors import EngineError
from parley.pipelines.text.typed_turns import AnswerCommitted, ask
from parley.session_store.events import Kind
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_summaries import LLM, conversation

WHOLE = ["We open ", "at ten."]


@pytest.mark.parametrize("fault", [{"drop_after": 1}, {"error_after": 1}], ids=["drops", "reports an error"])
async def test_half_an_answer_is_no_answer_and_asking_again_gives_the_whole_one(tmp_path: Path, fault: dict):
    async with (
        OpenAiServer([Turn(WHOLE, **fault), Turn(WHOLE)]) as server,
        conversation(LLM["openai_compatible"][1].format(url=server.url), tmp_path) as (held, answering),
    ):
        with pytest.raises(EngineError):
            async for _ in ask(held, answering, "When do you open?", key="k"):
                pass
        async for event in ask(held, answering, "When do you open?", key="k"):
            last = event
        assert isinstance(last, AnswerCommitted)
        replies = [event.payload for event in held.events if event.kind is Kind.BOT_TURN]
        assert [(reply["text"], reply["truncated"]) for reply in replies][-1] == ("We open at ten.", False)
        assert all(reply["truncated"] for reply in replies[:-1])
        assert len([event for event in held.events if event.kind is Kind.USER_TURN]) == 1
