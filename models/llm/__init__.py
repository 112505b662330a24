"""Language models: take a dialogue, return pieces of spoken text.

Asynchronous, because every useful engine waits for a socket or a thread. Cancelling the iteration stops the
engine.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from parley.core.passage_notes import CitedPassage
from parley.core.registry import Registry, Row


@dataclass(frozen=True, slots=True)
class Message:
    """Message of the dialogue. Messages are ordered oldest first; ``system`` comes first when there
    is one.
    """

    role: Literal["system", "user", "assistant"]
    text: str


class LanguageModel(Protocol):
    """Language model that all calls share; the state of one call is in the messages."""

    def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Stream the answer to the last user message, in pieces that join to the whole text.

        Raises EngineError when the engine fails, also in the middle.
        """
        ...


@runtime_checkable
class CitingModel(Protocol):
    """Language model that can name the passages of its answers."""

    async def cited(self, answer: str) -> tuple[CitedPassage, ...]:
        """Return the passages that an answer of this model consists of, in the order in which they are said.

        Raises EngineError when they cannot be looked up in time.
        """
        ...


LLM: Registry[LanguageModel] = Registry(
    "llm engine",
    {
        "documents": Row(
            "parley.models.llm.documents:DocumentLlm", "answers from the deployment's own documents, no key"
        ),
    },
    is_extensible=False,
)
