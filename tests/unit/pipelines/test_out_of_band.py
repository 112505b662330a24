"""Answers outside of a conversation: one that fails is reported, and each is counted in the costs."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.core.call_events import EngineUsed
from parley.core.client_rules import ClientRules
from parley.core.grants import ClientIdentity, Grants
from parley.core.usage import Usage
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.engines.engines import Engines
from parley.pipelines.sockets.client_checks import permitted
from parley.pipelines.sockets.out_of_band import OutOfBandAnswers
from parley.processors.dialogue.counted_answers import CountedText
from parley.protocols.client_protocol import Happening, OutOfBandAnswer, OutOfBandRequest
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time


async def _granted(_identity: object) -> bool:
    return True


async def _fails(*_given: object, **_named: object) -> CountedText:
    raise ValueError("a fault of a vendor's library")


async def _answers(*_given: object, **_named: object) -> CountedText:
    return CountedText("Joy.", "model-1", SPENT)


SPENT = Usage(prompt_tokens=20, completion_tokens=2)
FAILED = OutOfBandAnswer("one", fault="the answer failed")


@pytest.mark.parametrize(
    ("infer", "answer", "spent"),
    [
        (_fails, FAILED, ("", Usage(unreported_requests=1))),
        (_answers, OutOfBandAnswer("one", "Joy.", usage=SPENT), ("model-1", SPENT)),
    ],
)
def test_each_answer_is_reported_and_counted_also_one_that_fails_in_any_way(
    infer: Any, answer: OutOfBandAnswer, spent: tuple[str, Usage], tmp_path: Path
):
    async def scenario() -> tuple[list[Happening], list[EngineUsed]]:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
        reported: list[Happening] = []
        used: list[EngineUsed] = []
        answering = SimpleNamespace(infer_counted=infer, usage=SimpleNamespace(try_take=_granted))
        deployment = SimpleNamespace(bot=SimpleNamespace(system_prompt=""))
        engines: Any = SimpleNamespace(answering=answering, deployment=deployment)
        try:
            async with Conversations(store, compactor=Compactor()).open() as conversation:
                call = Call(conversation, "webrtc", LiveCall(conversation.clock))
                call.events.subscribe(EngineUsed, used.append)
                answers = OutOfBandAnswers(cast(Engines, engines), call, reported.append)
                await answers.begin(OutOfBandRequest("one", "Name the mood.", (("user", "glad"),)))
                while not reported:
                    await asyncio.sleep(0)
                await answers.close()
        finally:
            await store.close()
        return reported, used

    reported, used = virtual_time.run(scenario())
    assert reported == [answer]
    assert [(each.model, each.usage, each.is_out_of_band) for each in used] == [(*spent, True)]


@pytest.mark.parametrize(
    ("instructions", "role", "is_text"),
    [(None, "user", False), ("Name the mood.", "user", True), (None, "system", True)],
)
def test_text_of_the_client_in_such_a_request_takes_the_deployments_tools(
    instructions: str | None, role: str, is_text: bool
):
    grants = Grants(instructions=True)
    rules = ClientRules(ClientIdentity("app:user", "10.0.0.1", grants))
    request = OutOfBandRequest("one", instructions, ((role, "glad"),))
    assert permitted(request, rules) == request
    assert rules.permits("refund") is not is_text
