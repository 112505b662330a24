"""Interface of the rules for facts: what a person states about themselves, and which questions they ask.

The names of the facts are the same in every language, because other modules store facts by them. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

NOTE = "note"
NAME = "name"
HOME = "home"
ORIGIN = "origin"
WORK = "work"
BORN = "born"
AGE = "age"
CALL_BACK = "call back"


@dataclass(frozen=True, slots=True)
class Statement:
    """Fact that a person stated about themselves.

    Attributes:
        name: attribute of the person: "name", "account number", "dog".
        value: digits joined, names capitalised, otherwise as it was said.
        sure: true when such a sentence is only said in order to be remembered; false for "my dog is sick".
        words: part of the utterance that states it.
    """

    name: str
    value: str
    sure: bool
    words: str


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """Facts and purpose that an utterance adds to what is known.

    Attributes:
        facts: name -> value, new or changed; "note 2" is the second thing to remember.
        intent: "a lost card", "to close my account", "because I lost my card"; or None.
        sure: true when any of the statements is sure, and for a correction.
        rest: the utterance without its statements.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    intent: str | None = None
    sure: bool = False
    rest: str = ""


class FactRules(Protocol):
    """Rules for facts of one language."""

    def extract_facts(
        self, text: str, facts: Mapping[str, str], recent: Sequence[str] = (), /
    ) -> ExtractedFacts:
        """Return what ``text`` adds to ``facts``.

        Args:
            text: one turn of the person.
            facts: known before, name -> value.
            recent: names of the facts that were stated last, the newest first; a correction refers to one of
                them.
        """
        ...

    def statements(self, text: str, /) -> tuple[Statement, ...]:
        """Return the statements of ``text`` in order; of several about the same fact, only the last."""
        ...

    def asks(self, text: str, /) -> bool:
        """Return whether ``text`` holds a question."""
        ...

    def find_fact(self, names: Iterable[str], asked: str, /) -> str | None:
        """Return the name among ``names`` that "my ``asked``" refers to, or None."""
        ...

    def is_own(self, name: str, /) -> bool:
        """Return whether ``name`` is an attribute that only the person can state, such as "phone number"."""
        ...


class NoFacts:
    """Rules of a language that has none: nothing is a fact, and only a question mark asks."""

    def extract_facts(
        self, text: str, facts: Mapping[str, str], recent: Sequence[str] = (), /
    ) -> ExtractedFacts:
        """Return that nothing was stated."""
        return ExtractedFacts(rest=" ".join(text.split()))

    def statements(self, text: str, /) -> tuple[Statement, ...]:
        """Return no statement."""
        return ()

    def asks(self, text: str, /) -> bool:
        """Return whether a sentence is written as a question."""
        return "?" in text

    def find_fact(self, names: Iterable[str], asked: str, /) -> str | None:
        """Return ``asked`` when it is one of the names."""
        return asked if asked in set(names) else None

    def is_own(self, name: str, /) -> bool:
        """Return that the name says nothing."""
        return False


def is_note(name: str) -> bool:
    """Return whether ``name`` is one of "note", "note 2", ..."""
    return name.partition(" ")[0] == NOTE
