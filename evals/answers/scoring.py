"""Judge an answer of the embedded answerer by required and forbidden content. Pure.

Texts are compared in lower case, without punctuation and with numbers as digits, so that "nine until five"
and "9 until 5" are the same. A fact is a run of words; alternatives are separated by bars.

- An answer to a question is right when it has all facts, none of the wrong ones and nothing of the reverse.
- An answer to anything else (noise, another language, a request for a person, a question that the documents
  do not cover) is right when it has its facts and no statement of the documents.
- An answer longer than ``MOST_WORDS`` is wrong: it is too long to listen to.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from parley.language import find_language

MOST_WORDS = 65
# A run of the documents' words of this length in an answer is one of their statements.
STATEMENT_WORDS = 5
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[a-z]+\d[a-z0-9]*|[a-z]+(?:'[a-z]+)?")


class Kind(StrEnum):
    """Kinds of golden questions."""

    FACT = "fact"
    NUMBER = "number"
    NEGATION = "negation"
    FOLLOW_UP = "follow_up"
    COMPARE = "compare"
    HUMAN = "human"
    FAREWELL = "farewell"
    COMMAND = "command"
    NOISE = "noise"
    LANGUAGE = "language"
    UNKNOWN = "unknown"


FROM_DOCUMENTS = frozenset({Kind.FACT, Kind.NUMBER, Kind.NEGATION, Kind.FOLLOW_UP, Kind.COMPARE})
NOT_UNDERSTOOD = frozenset({Kind.NOISE, Kind.LANGUAGE})


@dataclass(frozen=True, slots=True)
class Golden:
    """Question with the facts by which its answer is judged.

    Attributes:
        documents: name of the document set.
        kind: see ``Kind``.
        turns: words of the caller, turn by turn. The last one is judged.
        facts: all of them must be in the answer.
        wrong: facts that answer another question.
        reversed: statements of the opposite.
    """

    documents: str
    kind: Kind
    turns: tuple[str, ...]
    facts: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    reversed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of one answer."""

    is_right: bool
    is_reversed: bool
    is_fact_for_noise: bool


def words_of(text: str) -> list[str]:
    """Return the comparable words of a text."""
    plain = text.lower().replace("\u2019", "'").replace("-", " ").replace("%", " percent ")
    return find_language("en").numbers.with_digits([word.replace(",", "") for word in _WORD.findall(plain)])


def holds(text: str, fact: str) -> bool:
    """Return whether a text has the words of a fact, or of an alternative of it, in a row."""
    padded = f" {' '.join(words_of(text))} "
    return any(f" {' '.join(words_of(option))} " in padded for option in fact.split("|"))


class Statements:
    """Runs of words of a document set, to find its statements in an answer."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs = {run for text in texts for run in _runs(words_of(text))}

    def occur_in(self, answer: str) -> bool:
        """Return whether the answer contains a statement of the documents."""
        return not self._runs.isdisjoint(_runs(words_of(answer)))


def judge(golden: Golden, answer: str, statements: Statements) -> Verdict:
    """Return the verdict on an answer."""
    has_facts = all(holds(answer, fact) for fact in golden.facts)
    is_reversed = any(holds(answer, fact) for fact in golden.reversed)
    is_wrong = any(holds(answer, fact) for fact in golden.wrong) or len(answer.split()) > MOST_WORDS
    says_statement = statements.occur_in(answer)
    is_right = has_facts and not is_reversed and not is_wrong
    if golden.kind not in FROM_DOCUMENTS:
        is_right = is_right and not says_statement
    return Verdict(is_right, is_reversed, golden.kind in NOT_UNDERSTOOD and says_statement)


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + STATEMENT_WORDS]) for at in range(len(words) - STATEMENT_WORDS + 1)}
