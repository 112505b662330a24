"""What a model keeps of a conversation between its turns, and the proof of what that is."""

from collections.abc import Sequence
from typing import Any, Protocol

from core.registry import Registry, Row
from models.llm import LanguageModel, Message
from models.llm.kv.dialogue import Answered, Prefilled


class Replies(LanguageModel, Protocol):
    """The language model of one conversation, which remembers what it has read of it.

    Attributes:
        prefilled: of the last answer: how much was in the cache. None before the first.
        answered: what the last answer was, once it is complete or broken off; None before.
    """

    prefilled: Prefilled | None
    answered: Answered | None

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """Read a dialogue whose answer is asked for later: a ``reply`` to the same goes on from there.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        ...

    @property
    def reads_ahead(self) -> bool:
        """Whether it is worth while to ``read_ahead``: what was read and is not asked can be taken back."""
        ...

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """Read a dialogue that may go on: the next one reads what it has more. Nobody waits for it.

        Whoever has a question goes first: it stops for them, or does nothing.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        ...

    def close(self) -> None:
        """The conversation is over: nothing of it is kept. Returns at once."""
        ...


# Weights that a process has; ``Replies`` are made of them.
CAUSAL: Registry[Any] = Registry(
    "causal model",
    {
        "transformers": Row(
            "models.llm.kv.causal:CausalLm", "any causal model of transformers", extra="local-llm"
        )
    },
)
