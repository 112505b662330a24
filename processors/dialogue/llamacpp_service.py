"""The compatible service for the llama.cpp server of this process.

The server has another address after each start of its child, so it is looked up before each request. So is
the length of the dialogue, which only the server can count: an answer has room for its longest length, or for
half of the context. Sessions are summarised before they are longer (``pipelines.sessions``). A dialogue that
is still too long, because of a tool's result or a client's prompt, is sent without its oldest turns, and the
model is notified. An answer that the context ends is an error, so that the fallback closes its sentence.
llama.cpp reads a tool choice that is no text as "auto": one function is required by offering it alone.
Closing the request, which an interruption does, ends the generation. Everything else is the base class's.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

from loguru import logger
from openai import AsyncStream, BaseModel
from openai.types.chat import ChatCompletionChunk
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.adapters.llm.services.open_ai_adapter import openai_is_given
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage

from parley.core.errors import EngineError
from parley.core.prompt_notes import PromptNotes, merge_notes, parse_notes, write_notes
from parley.models.llm.llamacpp.server import LlamaCppServer
from parley.models.llm.llamacpp.settings import ENGINE, ServerAddress
from parley.processors.dialogue.openai_service import OpenAiCompatibleService

# Share of its limit to which a too long dialogue is shortened: the rest is for two or three turns until it is
# shortened again, because each shortening is read anew.
KEPT_SHARE = 0.65
MOST_COUNTS = 4
LEFT_OUT = "What was said between this and the next message is not shown: it was too long."


class _Counted(BaseModel):
    """Answer of ``/v1/chat/completions/input_tokens``."""

    input_tokens: int


class LlamaCppService(OpenAiCompatibleService):
    """``OpenAiCompatibleService`` for the process's own llama.cpp server.

    Args:
        server: the server of the process.
        timeout_s: timeout of the SDK's client.
        kwargs: as in ``OpenAiCompatibleService``.
    """

    def __init__(self, *, server: LlamaCppServer, timeout_s: float, **kwargs: Any) -> None:
        # The address and the key are set before each request.
        super().__init__(
            api_key="none", base_url="http://127.0.0.1", timeout_s=timeout_s, sdk_retries=0, **kwargs
        )
        self._server = server
        # Messages of the dialogue that are not sent any more, and its length when they were left out.
        self._left_out = self._of = 0

    async def get_chat_completions(self, context: LLMContext) -> AsyncStream[ChatCompletionChunk]:
        """Send the request; shorten a dialogue that leaves no room for an answer. See the base class.

        Raises:
            EngineError: the server does not run, or the last turn alone leaves no room.
        """
        endpoint = await self._connect()
        settings: Any = self.settings
        max_tokens: int = settings.max_tokens
        most_tokens = endpoint.most_tokens(max_tokens)
        sent = with_readable_choice(self._shortened(context))
        for _ in range(MOST_COUNTS):
            tokens = await self._tokens_of(sent)
            if tokens <= most_tokens:
                stream = await super().get_chat_completions(sent)
                if tokens + max_tokens <= endpoint.context_tokens:
                    return stream
                return cast("AsyncStream[ChatCompletionChunk]", _EndedByContext(stream))
            shorter = without_oldest(sent.get_messages(), KEPT_SHARE * most_tokens / tokens)
            if shorter is None:
                break
            sent = with_readable_choice(self._leave_out(context, shorter))
        raise EngineError(
            f"a turn leaves no room for an answer in a context of {endpoint.context_tokens} tokens",
            engine=ENGINE,
        )

    async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
        """Answer a context outside the pipeline; see the base class."""
        await self._connect()
        answer: str | None = await super().run_inference(*args, **kwargs)
        return answer

    async def _tokens_of(self, context: LLMContext) -> int:
        """Return the length of a request by the server, with its template, tools and instruction."""
        settings: Any = self.settings
        asked = await self.get_llm_adapter().get_llm_invocation_params(
            context,
            system_instruction=settings.system_instruction,
            convert_developer_to_user=not self.supports_developer_role,
        )
        body = {name: value for name, value in asked.items() if openai_is_given(value)}
        counted = await self.sdk_client.post("/chat/completions/input_tokens", body=body, cast_to=_Counted)
        return counted.input_tokens

    def _shortened(self, context: LLMContext) -> LLMContext:
        """Return the part that is sent of a dialogue that was shortened before and has only grown since."""
        messages = context.get_messages()
        start = _head(messages) + self._left_out
        if len(messages) < self._of or start >= len(messages) or _role(messages[start]) != "user":
            self._left_out = self._of = 0
        if not self._left_out:
            return context
        return _like(context, _from(messages, start))

    def _leave_out(self, context: LLMContext, kept: list[LLMContextMessage]) -> LLMContext:
        """Record how much of a dialogue is not sent from here on, and return the rest."""
        whole = len(context.get_messages())
        self._left_out, self._of = whole - len(kept), whole
        logger.warning(
            f"{self}: the dialogue leaves no room for an answer; its {self._left_out} oldest messages are "
            "left out from now on"
        )
        return _like(context, kept)

    async def _connect(self) -> ServerAddress:
        endpoint = await self._server.endpoint()
        self.sdk_client.base_url = endpoint.base_url
        self.sdk_client.api_key = endpoint.key
        return endpoint


class _EndedByContext:
    """Stream of an answer that may be longer than its room, which is an error.

    Args:
        stream: stream of the server.
    """

    def __init__(self, stream: AsyncStream[ChatCompletionChunk]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        """Pass the pieces on.

        Raises:
            EngineError: the context is full.
        """
        async for chunk in self._stream:
            yield chunk
            if chunk.choices and chunk.choices[0].finish_reason == "length":
                raise EngineError("the context was used up within an answer", engine=ENGINE)

    async def close(self) -> None:
        """End the request."""
        await self._stream.close()


def without_oldest(messages: list[LLMContextMessage], share: float) -> list[LLMContextMessage] | None:
    """Return a dialogue without its oldest turns.

    Leading system messages stay. The rest begins with a user's message, so that no answer and no result of a
    tool stands without its question. Notes before the first message stay before the rest, and state that
    something is missing.

    Args:
        messages: oldest first.
        share: share of all text that may stay.

    Returns:
        The messages, or None when there is nothing to leave out.
    """
    head = _head(messages)
    sizes = [_size(message) for message in messages]
    starts = [at for at in range(head + 1, len(messages)) if _role(messages[at]) == "user"]
    if not starts:
        return None
    room = share * sum(sizes) - sum(sizes[:head])
    start = next((at for at in starts if sum(sizes[at:]) <= room), starts[-1])
    return _from(messages, start)


def _from(messages: list[LLMContextMessage], start: int) -> list[LLMContextMessage]:
    """Return a dialogue from the user's message at ``start`` on, with its system messages and all notes."""
    head = _head(messages)
    notes = PromptNotes()
    for message in messages[head:start]:
        if _role(message) == "user":
            notes = merge_notes(notes, parse_notes(_text(message))[0])
    summary = notes.summary.removesuffix(LEFT_OUT).rstrip()
    front = write_notes(replace(notes, summary=f"{summary}\n{LEFT_OUT}", opened=False))
    return [*messages[:head], _noted(front, messages[start]), *messages[start + 1 :]]


def _noted(front: str, message: LLMContextMessage) -> LLMContextMessage:
    """Return a user's message with text before it."""
    assert isinstance(message, dict)
    content: Any = message["content"]
    noted = (
        f"{front}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": front}, *content]
    )
    return cast("LLMContextMessage", {**message, "content": noted})


def _like(context: LLMContext, messages: list[LLMContextMessage]) -> LLMContext:
    """Return a context with the tools of another one."""
    return LLMContext(messages, tools=context.tools, tool_choice=context.tool_choice)


def with_readable_choice(context: LLMContext) -> LLMContext:
    """Return a context whose choice of one function is a text: that function alone, which is required."""
    choice, tools = context.tool_choice, context.tools
    if not isinstance(choice, dict) or not isinstance(tools, ToolsSchema):
        return context
    name = cast("dict[str, Any]", choice)["function"]["name"]
    chosen = [tool for tool in tools.standard_tools if tool.name == name]
    return LLMContext(context.get_messages(), tools=ToolsSchema(chosen), tool_choice="required")


def _head(messages: list[LLMContextMessage]) -> int:
    """Return the number of leading system messages."""
    head = 0
    while head < len(messages) and _role(messages[head]) in ("system", "developer"):
        head += 1
    return head


def _text(message: LLMContextMessage) -> str:
    """Return the text of a message; of one in parts, the first one's."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""


def _role(message: LLMContextMessage) -> str:
    return str(message["role"]) if isinstance(message, dict) else ""


def _size(message: LLMContextMessage) -> int:
    """Return the length of a message in characters, to which tokens are roughly proportional."""
    return len(str(message))
