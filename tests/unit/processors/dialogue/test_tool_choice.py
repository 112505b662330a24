"""Choice of a client between tools, in the questions of one turn."""

from typing import Any

from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import NOT_GIVEN, LLMContext

from parley.processors.dialogue.tool_choice import QuestionToolChoice
from parley.protocols.client_protocol import SessionUpdate, ToolChoice

REQUIRED, NAMED = ToolChoice(is_required=True), ToolChoice(is_required=True, name="weather")
TURN: Any = {"role": "user", "content": "How is the weather?"}
RESULT: Any = {"role": "tool", "tool_call_id": "1", "content": "sunny"}


class Client:
    def __init__(self) -> None:
        self.requested = SessionUpdate()
        self._choice = QuestionToolChoice(lambda: self.requested)

    async def question(self, *messages: Any) -> object:
        """Return the choice in a question about these messages; None where the model decides."""
        tools = ToolsSchema([FunctionSchema("weather", "Weather.", {}, [])])
        frame = LLMContextFrame(LLMContext(list(messages), tools=tools))
        await self._choice.on_frame(None, frame)
        choice = frame.context.tool_choice
        return None if choice is NOT_GIVEN else choice


async def test_a_result_is_answered_with_words_whatever_the_session_requires():
    client = Client()
    client.requested = SessionUpdate(choice=REQUIRED)
    assert await client.question(TURN) == "required"
    assert await client.question(TURN, RESULT) is None
    client.requested = SessionUpdate(choice=REQUIRED, reply_choice=NAMED)
    assert await client.question(TURN) == {"type": "function", "function": {"name": "weather"}}
    # Parley answers on its own, while the reply's choice still stands.
    assert await client.question(TURN, RESULT) is None
    # A request without a choice: the session's has not been used yet.
    client.requested = SessionUpdate(choice=REQUIRED)
    assert await client.question(TURN, RESULT) is None
    assert await client.question(TURN) == "required"


async def test_a_result_whose_reply_has_to_call_again_calls_once():
    client = Client()
    client.requested = SessionUpdate(reply_choice=NAMED)
    assert await client.question(TURN) is not None
    client.requested = SessionUpdate(reply_choice=ToolChoice(is_required=True, name="weather"))
    assert await client.question(TURN, RESULT) is not None
    assert await client.question(TURN, RESULT, RESULT) is None


async def test_a_reply_may_be_free_where_the_session_requires_a_call():
    client = Client()
    client.requested = SessionUpdate(choice=REQUIRED, reply_choice=ToolChoice())
    assert await client.question(TURN) is None
