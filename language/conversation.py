"""Interface of the rules for questions about the conversation itself. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from parley.language.facts import ExtractedFacts


@dataclass(frozen=True, slots=True)
class Recalled:
    """Answer from the conversation.

    Attributes:
        text: ready to speak.
        sure: the question is certainly about the conversation; else a document that fits takes precedence.
    """

    text: str
    sure: bool


@dataclass(frozen=True, slots=True)
class KnownConversation:
    """Content of a conversation.

    Attributes:
        facts: statements of the caller about themselves, oldest first, including the last message's.
        intent: reason of the call; None when not stated.
        summary: of the turns before the first message; empty when there are none.
        said: messages of the caller before the last one, oldest first.
        new: additions of the caller's last message.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    intent: str | None = None
    summary: str = ""
    said: Sequence[str] = ()
    new: ExtractedFacts = ExtractedFacts()


class ConversationRules(Protocol):
    """Rules for questions about the conversation, in one language."""

    def recall(
        self, known: KnownConversation, words: Sequence[str], topics: Sequence[str], /
    ) -> Recalled | None:
        """Return the answer when ``words`` ask about the conversation, else None."""
        ...

    def acknowledge(self, known: KnownConversation, /) -> Recalled | None:
        """Return the answer to the statements of the last message; None when it states nothing."""
        ...


class NoConversation:
    """Rules of a language that has none: no question is about the conversation."""

    def recall(
        self, known: KnownConversation, words: Sequence[str], topics: Sequence[str], /
    ) -> Recalled | None:
        """Return None."""
        return None

    def acknowledge(self, known: KnownConversation, /) -> Recalled | None:
        """Return None."""
        return None
