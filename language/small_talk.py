"""Interface of the rules for small talk, and for the words around a question. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_WORD = re.compile(r"\w+(?:'\w+)?")


@dataclass(frozen=True, slots=True)
class SmallTalkIntent:
    """Kind of small talk.

    Attributes:
        name: name of the kind.
        phrases: phrases of callers, lower case without punctuation.
        answers: ready to speak; ``{name}`` is the agent, ``{topics}`` a spoken list of topics.
        similar: similar wordings have the same meaning. False for commands, where "why do you start over" is
            a question.
    """

    name: str
    phrases: tuple[str, ...]
    answers: tuple[str, ...]
    similar: bool = True


class SmallTalkRules(Protocol):
    """Rules for small talk of one language."""

    def spoken_words(self, text: str, /) -> list[str]:
        """Return the lower-case words of a text, without punctuation."""
        ...

    def question_words(self, words: Sequence[str], /) -> list[str]:
        """Return the words without greetings, thanks and hesitation around the question.

        Never empty unless ``words`` is.
        """
        ...

    def is_noise(self, words: Sequence[str], /) -> bool:
        """Return whether the words cannot be a question: hesitation, or single letters."""
        ...

    def exact_intent(self, words: Sequence[str], /) -> SmallTalkIntent | None:
        """Return the intent that has exactly these words as a phrase."""
        ...

    def phrases(self) -> tuple[str, ...]:
        """Return the phrases with which similar wordings may be compared."""
        ...

    def phrase_intent(self, number: int, /) -> SmallTalkIntent:
        """Return the intent of the phrase with this number in ``phrases``."""
        ...


class NoSmallTalk:
    """Rules of a language that has none: everything is a question."""

    def spoken_words(self, text: str, /) -> list[str]:
        """Return the lower-case words of a text, without punctuation."""
        return _WORD.findall(text.lower().replace("\u2019", "'"))

    def question_words(self, words: Sequence[str], /) -> list[str]:
        """Return all words."""
        return list(words)

    def is_noise(self, words: Sequence[str], /) -> bool:
        """Return whether there are no words."""
        return not words

    def exact_intent(self, words: Sequence[str], /) -> SmallTalkIntent | None:
        """Return None."""
        return None

    def phrases(self) -> tuple[str, ...]:
        """Return no phrase."""
        return ()

    def phrase_intent(self, number: int, /) -> SmallTalkIntent:
        """Raise an error: there is no phrase."""
        raise IndexError(number)
