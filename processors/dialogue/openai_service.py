"""Pipecat's OpenAI service, set up for servers that are compatible but not OpenAI's.

Such servers know no ``developer`` role, and the retries of the SDK are bounded by the row instead of by the
server's ``retry-after``. Connections are given back when the pipeline ends; Pipecat leaves them to the
garbage collector. Everything else is Pipecat's.
"""

from typing import Any

from openai import AsyncOpenAI
from openai.types import CompletionUsage
from pipecat.services.openai.llm import OpenAILLMService

from parley.core.usage import Usage
from parley.processors.dialogue.connections import close_client
from parley.processors.dialogue.counted_answers import AnswerCount, counting


class OpenAiCompatibleService(OpenAILLMService):
    """OpenAI's service for another server.

    Args:
        timeout_s: timeout of the SDK's client.
        sdk_retries: retries of the SDK's client.
        kwargs: as in ``OpenAILLMService``.

    Attributes:
        sdk_client: the client that sends the requests.
        counted: tokens of the last answer outside of a pipeline.
    """

    supports_developer_role = False
    sdk_client: AsyncOpenAI
    counted: AnswerCount

    def __init__(self, *, timeout_s: float, sdk_retries: int, **kwargs: Any) -> None:
        # The base constructor calls create_client.
        self._limits: dict[str, Any] = {"timeout": timeout_s, "max_retries": sdk_retries}
        super().__init__(**kwargs)

    def create_client(self, *args: Any, **kwargs: Any) -> AsyncOpenAI:
        """Return Pipecat's client with our limits; the service makes one, and keeps it."""
        client: AsyncOpenAI = super().create_client(*args, **kwargs)
        self.sdk_client = client.with_options(**self._limits)
        return self.sdk_client

    async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
        """Answer a context outside the pipeline, and count its tokens; see the base class."""
        with counting(self.sdk_client.chat.completions, _usage_of) as self.counted:
            answer: str | None = await super().run_inference(*args, **kwargs)
            return answer

    async def cleanup(self) -> None:
        await super().cleanup()
        await close_client(self.sdk_client)


def _usage_of(reported: CompletionUsage) -> Usage:
    """Return the tokens of an answer; those of the cache are part of what was read."""
    details = reported.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    return Usage(
        prompt_tokens=max(0, reported.prompt_tokens - cached),
        cached_tokens=cached,
        completion_tokens=reported.completion_tokens,
    )
