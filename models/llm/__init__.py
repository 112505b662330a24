"""Language models: take a dialogue, return pieces of spoken text.

Asynchronous, because every useful engine waits for a socket or a thread. Cancelling the iteration stops the
engine.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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


LLM: Registry[LanguageModel] = Registry(
    "llm engine",
    {
        "documents": Row(
            "parley.models.llm.documents:DocumentLlm", "answers from the deployment's own documents, no key"
        ),
    },
    is_extensible=False,
)
