"""Pipecat's Anthropic service with cache breakpoints before passages, whose connections are given back.

Pipecat drops the tool choice of a context here; it is sent in Claude's form.

Claude keeps a prompt up to each breakpoint, and finds it again only where a later request has the same text.
Pipecat's adapter marks the system prompt and the last two messages of the user. Passages of documents
(``passages``) precede the last question and are in no later request, so that nothing after them is found
again; the end of the history before them is marked too. That is four breakpoints at most, as many as Claude
takes.

Pipecat leaves the connections to the garbage collector, and each call and each typed turn has a client of its
own. Everything else is Pipecat's.
"""

from collections.abc import Iterable
from typing import Any, cast

from anthropic.types.beta import BetaUsage
from pipecat.adapters.llm.services.anthropic_adapter import AnthropicLLMAdapter, AnthropicLLMInvocationParams
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.anthropic.llm import AnthropicLLMService

from parley.core.passage_notes import is_passages
from parley.core.usage import Usage
from parley.processors.dialogue.connections import close_client
from parley.processors.dialogue.counted_answers import AnswerCount, counting
from parley.processors.pipecat_internals import sdk_client


class ClaudeAdapter(AnthropicLLMAdapter):
    """``AnthropicLLMAdapter`` that also marks the end of the history, and sends the tool choice."""

    async def get_llm_invocation_params(
        self, context: LLMContext, *args: Any, **kwargs: Any
    ) -> AnthropicLLMInvocationParams:
        """Return the parameters of a request; see the base class."""
        params = await super().get_llm_invocation_params(context, *args, **kwargs)
        if kwargs.get("enable_prompt_caching", args[:1] == (True,)):
            _mark_history(params["messages"])
        if (choice := _claude_choice(context.tool_choice)) is not None and params["tools"]:
            # The service passes on every field of the request.
            cast(dict[str, Any], params)["tool_choice"] = choice
        return params


class ClaudeService(AnthropicLLMService):
    """``AnthropicLLMService`` with ``ClaudeAdapter`` that closes its client with the pipeline.

    Attributes:
        counted: tokens of the last answer outside of a pipeline.
    """

    adapter_class = ClaudeAdapter
    counted: AnswerCount

    async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
        """Answer a context outside the pipeline, and count its tokens; see the base class."""
        with counting(sdk_client(self).beta.messages, _usage_of) as self.counted:
            answer: str | None = await super().run_inference(*args, **kwargs)
            return answer

    async def cleanup(self) -> None:
        await super().cleanup()
        await close_client(sdk_client(self))


def _usage_of(reported: BetaUsage) -> Usage:
    """Return the tokens of an answer; those of the cache come in addition to what was read."""
    return Usage(
        prompt_tokens=reported.input_tokens,
        cached_tokens=reported.cache_read_input_tokens or 0,
        cache_write_tokens=reported.cache_creation_input_tokens or 0,
        completion_tokens=reported.output_tokens,
    )


def _claude_choice(choice: object) -> dict[str, str] | None:
    """Return a tool choice of OpenAI's form in Claude's; None for one that leaves the model free."""
    if choice in ("required", "none"):
        return {"type": "any" if choice == "required" else "none"}
    if isinstance(choice, dict):
        return {"type": "tool", "name": str(choice["function"]["name"])}
    return None


def _mark_history(messages: Iterable[Any]) -> None:
    """Mark the last block before the newest passages as a breakpoint; none without passages."""
    last = before_passages = None
    for message in messages:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        for block in message["content"]:
            if message["role"] == "user" and block["type"] == "text" and is_passages(block["text"]):
                before_passages = last
            last = block
    if before_passages is not None:
        before_passages["cache_control"] = {"type": "ephemeral"}
