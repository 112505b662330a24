"""Tool choice of a client in the questions to a language model.

A choice holds for the first question about a turn. After a tool's result the model decides by itself, unless
the client has chosen for the reply to that result: Parley answers a result on its own, so that a model that
has to call a tool each time would never say anything.
"""

from collections.abc import Callable
from typing import Any

from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.processors.pipecat_internals import ask_with
from parley.protocols.client_protocol import SessionUpdate, ToolChoice


def required_tool(choice: ToolChoice) -> Any:
    """Return the ``tool_choice`` of a question, in OpenAI's form; None where the model decides by itself."""
    if not choice.is_required:
        return None
    return "required" if choice.name is None else {"type": "function", "function": {"name": choice.name}}


class QuestionToolChoice:
    """Choice of the client of a call in each question to one service.

    Args:
        requested: returns the settings that the client requests now.
    """

    def __init__(self, requested: Callable[[], SessionUpdate]) -> None:
        self._requested = requested
        # By identity: the same choice for the next reply is another one.
        self._used: ToolChoice | None = None

    async def on_frame(self, _service: object, frame: Frame) -> None:
        """Handle every frame before the service gets it."""
        if not isinstance(frame, LLMContextFrame):
            return
        requested, context = self._requested(), frame.context
        choice = for_reply = requested.reply_choice
        if _answers_result(context):
            if for_reply is self._used:
                return
        elif for_reply is None:
            choice = requested.choice
        if choice is None or (required := required_tool(choice)) is None:
            return
        offered = context.tools.standard_tools if isinstance(context.tools, ToolsSchema) else []
        if choice.name not in (None, *(tool.name for tool in offered)) or not offered:
            # Withdrawn meanwhile; a provider refuses a question that demands what it does not offer.
            return
        self._used = for_reply
        ask_with(frame, LLMContext(context.get_messages(), tools=context.tools, tool_choice=required))


def _answers_result(context: LLMContext) -> bool:
    messages = context.get_messages()
    return bool(messages) and isinstance(messages[-1], dict) and messages[-1].get("role") == "tool"
