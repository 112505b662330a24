"""The compatible service for the llama.cpp server of this process.

The server has another address after each start of its child, so it is looked up before each request. A
dialogue that does not fit into the context is sent again without its oldest turns: the server refuses it and
says how long it is, and only the server can count the tokens of a template. Closing the request, which an
interruption does, ends the generation. Everything else is the base class's.
"""

from typing import Any

from loguru import logger
from openai import AsyncStream, BadRequestError
from openai.types.chat import ChatCompletionChunk
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage

from models.llm.llamacpp.server import LlamaCppServer
from processors.dialogue.openai_service import OpenAiCompatibleService

TOO_LONG = "exceed_context_size_error"
# Of the context, for what is sent again: the rest is room for the answer, and for two or three turns until it
# is shortened again, because each shortening is read anew.
KEPT_SHARE = 0.6
MOST_CUTS = 3


class LlamaCppService(OpenAiCompatibleService):
    """Args: server: the process's own; the rest as in ``OpenAiCompatibleService``."""

    def __init__(self, *, server: LlamaCppServer, timeout_s: float, **kwargs: Any) -> None:
        # The address and the key are set before each request.
        super().__init__(
            api_key="none", base_url="http://127.0.0.1", timeout_s=timeout_s, sdk_retries=0, **kwargs
        )
        self._server = server
        # Messages of the dialogue that are not sent any more, and how many it had when they were left out.
        self._left_out = self._of = 0

    async def get_chat_completions(self, context: LLMContext) -> AsyncStream[ChatCompletionChunk]:
        """See the base class. Sends less of a dialogue that is too long.

        Raises:
            EngineError: the server does not run.
            openai.BadRequestError: the last turn alone is too long.
        """
        whole = context.get_messages()
        context = self._shortened(context)
        for _ in range(MOST_CUTS):
            await self._connect()
            try:
                return await super().get_chat_completions(context)
            except BadRequestError as error:
                share = _fitting_share(error)
                kept = None if share is None else without_oldest(context.get_messages(), share)
                if kept is None:
                    raise
                self._left_out, self._of = len(whole) - len(kept), len(whole)
                logger.info(
                    f"{self}: the dialogue is longer than the context, {self._left_out} messages left out"
                )
                context = LLMContext(kept, tools=context.tools, tool_choice=context.tool_choice)
        await self._connect()
        return await super().get_chat_completions(context)

    async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
        """See the base class."""
        await self._connect()
        answer: str | None = await super().run_inference(*args, **kwargs)
        return answer

    def _shortened(self, context: LLMContext) -> LLMContext:
        """Return what is sent of a dialogue that was shortened before and has only grown since."""
        messages = context.get_messages()
        start = _head(messages) + self._left_out
        if len(messages) < self._of or start >= len(messages) or _role(messages[start]) != "user":
            self._left_out = self._of = 0
        if not self._left_out:
            return context
        kept = [*messages[: _head(messages)], *messages[start:]]
        return LLMContext(kept, tools=context.tools, tool_choice=context.tool_choice)

    async def _connect(self) -> None:
        endpoint = await self._server.endpoint()
        self._client.base_url = endpoint.base_url
        self._client.api_key = endpoint.key


def _fitting_share(error: BadRequestError) -> float | None:
    """Return which share of the dialogue would fit, or None when its length is not what was wrong."""
    body = error.body if isinstance(error.body, dict) else {}
    if body.get("type") != TOO_LONG:
        return None
    room, needed = body.get("n_ctx"), body.get("n_prompt_tokens")
    return KEPT_SHARE * room / needed if room and needed else None


def without_oldest(messages: list[LLMContextMessage], share: float) -> list[LLMContextMessage] | None:
    """Return a dialogue without its oldest turns.

    System messages in front stay, and what is left begins with a user's message, so that no answer and no
    result of a tool stands without its question.

    Args:
        messages: oldest first.
        share: of all text that may stay.

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
    return [*messages[:head], *messages[start:]]


def _head(messages: list[LLMContextMessage]) -> int:
    """Return how many system messages are in front."""
    head = 0
    while head < len(messages) and _role(messages[head]) in ("system", "developer"):
        head += 1
    return head


def _role(message: LLMContextMessage) -> str:
    return str(message["role"]) if isinstance(message, dict) else ""


def _size(message: LLMContextMessage) -> int:
    """Return the length of a message in characters, which tokens are roughly proportional to."""
    return len(str(message))
