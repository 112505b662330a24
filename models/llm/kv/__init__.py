"""Cache of a conversation between its turns, with digests that identify its content."""

from collections.abc import Sequence
from typing import Any, Protocol

from parley.core.registry import Registry, Row
from parley.models.llm import LanguageModel, Message
from parley.models.llm.kv.dialogue import GenerationResult, Prefilled


class Replies(LanguageModel, Protocol):
    """Language model of one conversation, which keeps its context between turns.

    Attributes:
        prefilled: cache use of the last answer. None before the first.
        answered: the last answer, once it is complete or broken off; None before.
    """

    prefilled: Prefilled | None
    answered: GenerationResult | None

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """Read a dialogue whose answer is requested later: a ``reply`` to the same dialogue continues from
        there.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        ...

    @property
    def reads_ahead(self) -> bool:
        """True when ``read_ahead`` is useful: tokens that were read in vain can be taken back."""
        ...

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """Read a dialogue that may continue; the next call reads only the addition.

        A background operation: questions have priority, and it stops for them or does nothing.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        ...

    def close(self) -> None:
        """End the conversation and discard its cache. Returns at once."""
        ...


# Weights of a process, from which ``Replies`` are made.
CAUSAL: Registry[Any] = Registry(
    "causal model",
    {
        "transformers": Row(
            "parley.models.llm.kv.causal:CausalLm", "any causal model of transformers", extra="local-llm"
        )
    },
)
