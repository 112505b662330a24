"""Tokens of typed answers count for the tenant of the client, however the answer ends."""

from contextlib import aclosing
from pathlib import Path

import pytest
from pipecat.frames.frames import MetricsFrame
from pipecat.metrics.metrics import LLMTokenUsage, LLMUsageMetricsData

from parley.configs.deployment import Deployment
from parley.core.errors import EngineError
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.text.typed_turns import AnswerCommitted, AnswerPiece, CallsHandedOver, ClientTools, ask
from parley.protocols.client_protocol import ClientTool
from parley.protocols.openai_chat import ToolOffer
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel, ScriptedRow, Step, Use
from tests.unit.pipelines.test_typed_answers import OPEN, World, play

TOKENS = LLMTokenUsage(prompt_tokens=100, completion_tokens=20, total_tokens=120)
WEATHER = ToolOffer((ClientTool("weather", "Weather.", {"type": "object", "properties": {}}),))


def used() -> MetricsFrame:
    return MetricsFrame(data=[LLMUsageMetricsData(processor="llm", model="m", value=TOKENS)])


@pytest.mark.parametrize(
    ("rest", "end"),
    [
        ((), AnswerCommitted),
        ((Use("weather"),), CallsHandedOver),
        ((HANG,), AnswerPiece),
        ((HANG,), EngineError),
        ((RuntimeError("broken"),), EngineError),
    ],
    ids=["whole", "handed over", "left", "late", "failed"],
)
def test_tokens_of_an_answer_are_charged_once(tmp_path: Path, rest: tuple[Step, ...], end: type):
    prices = {"rows": [{"engine": "documents", "model": "m", "prompt_per_million_tokens": 10.0}]}
    limits = {"tokens_per_day": 1_000, "cost_per_day": 1.0}
    deployment = Deployment.model_validate({"server": {"tenants": {"others": limits}}, "prices": prices})

    async def scenario(world: World) -> None:
        plan = AnsweringPlan(ScriptedRow((used(), "We open ", *rest)), None, guarded=False)
        answering = LlmRuntime(deployment, plan, None)
        tenants = answering.usage.tenants
        tenants.start(world.store, {})
        last: object = None
        async with world.conversations.open() as conversation:
            turn = ask(conversation, answering, OPEN, answer_timeout_s=5.0, tools=ClientTools(offer=WEATHER))
            try:
                async with aclosing(turn):
                    async for last in turn:
                        if isinstance(last, end):
                            break
            except EngineError as error:
                last = error
        assert isinstance(last, end)
        used_up = {each.name: each.used for each in tenants.limits_of("others")}
        assert used_up["tokens_per_day"] == TOKENS.total_tokens
        assert used_up["cost_per_day"] == pytest.approx(0.001)
        [recorded] = await world.events(conversation.session_id, Kind.USAGE)
        payload = recorded.payload
        # The tokens of the answer have no price, so its cost is not known.
        assert (payload["scope"], payload["cost"], payload["known_cost"]) == ("typed", None, "0.001")
        await tenants.close()
        await answering.close()

    play(tmp_path, ScriptedLanguageModel(("unused",)), scenario)
