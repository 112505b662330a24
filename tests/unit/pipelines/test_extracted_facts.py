"""Facts of a session are extracted where the deployment says so."""

from pathlib import Path

import pytest

from parley.configs.deployment import Deployment
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.engines.plan import AnsweringPlan
from parley.pipelines.sessions import open_conversations
from parley.processors.dialogue.services import Documents, DocumentsSettings
from tests.fakes.scripted_llm import ScriptedLanguageModel


@pytest.mark.parametrize("extracts", [None, False, True])
async def test_facts_are_extracted_only_where_the_deployment_says_so(tmp_path: Path, extracts: bool | None):
    remembering: dict[str, object] = {"store": {"url": f"sqlite:///{tmp_path}/sessions.db"}}
    if extracts is not None:
        remembering["extract_facts"] = extracts
    deployment = Deployment.model_validate({"remembering": remembering})
    plan = AnsweringPlan(Documents(DocumentsSettings()), None, False)
    answering = LlmRuntime(deployment, plan, ScriptedLanguageModel("Thank you."))
    try:
        async with (
            open_conversations(deployment, answering) as conversations,
            conversations.open() as conversation,
        ):
            await conversation.user_turn("My name is Ada.", transport="text")
            expected = {"name": "Ada"} if extracts else {}
            assert conversation.state.values == conversation.view().state.values == expected
            assert (await conversations.view(conversation.session_id)).state.values == expected
    finally:
        await answering.close()
