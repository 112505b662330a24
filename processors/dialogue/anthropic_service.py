"""Pipecat's Anthropic service that gives its connections back when its pipeline ends.

Pipecat leaves them to the garbage collector, and each call and each typed turn has a client of its own.
Everything else is Pipecat's.
"""

from pipecat.services.anthropic.llm import AnthropicLLMService

from parley.processors.dialogue.connections import close_client
from parley.processors.pipecat_internals import sdk_client


class ClaudeService(AnthropicLLMService):
    """``AnthropicLLMService`` that closes its client with the pipeline."""

    async def cleanup(self) -> None:
        await super().cleanup()
        await close_client(sdk_client(self))
