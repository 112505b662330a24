"""Document retrieval: finds the passages that answer a question."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from parley.core.passage_notes import CitedPassage, QuotedPassage

_KEY_WORDS = 4


@dataclass(frozen=True, slots=True)
class SpeakableStatement:
    """Smallest piece of a document that is true when it is spoken by itself.

    Attributes:
        text: a sentence, an item of a list with the words that lead to it, or a cell with its row and column.
        bare: an item without the words that lead to it, a cell without its row; empty for anything else.
        row, column, value: of a cell; empty for anything else.
    """

    text: str
    bare: str = ""
    row: str = ""
    column: str = ""
    value: str = ""

    @property
    def lead(self) -> str:
        """Words before the bare ones; neighbours with the same lead share it when spoken."""
        return self.text.removesuffix(self.bare) if self.bare else ""

    @property
    def key(self) -> str:
        """Entry that the statement explains: the name of a row, or a few words before a colon."""
        before, colon, _ = self.text.partition(": ")
        if self.row:
            return self.row
        return before if colon and len(before.split()) <= _KEY_WORDS and not self.bare else ""


@dataclass(frozen=True, slots=True)
class Passage:
    """Paragraph, list or table row of the deployment's documents.

    Attributes:
        text: its whole text, markdown removed.
        title: the heading above it.
        source: the document's own name ("the Northwind fee schedule").
        above: the headings above the title, outermost first, without the document's own name.
        statements: its statements, in order; empty for sentences of a text.
        form: "text", "list", "steps" (an ordered list) or "row" (of a table).
        lead: the words that lead to a list; empty where there are none.
        table: number of the table in its document that a row belongs to, from 1; 0 for anything else.
        columns: headings of that table, that of the row's name first.
        number: place in its document, from 1.
    """

    text: str
    title: str
    source: str
    above: tuple[str, ...] = ()
    statements: tuple[SpeakableStatement, ...] = ()
    form: str = "text"
    lead: str = ""
    table: int = 0
    columns: tuple[str, ...] = ()
    number: int = field(default=1, compare=False)

    @property
    def cited(self) -> CitedPassage:
        """Name of the passage for readers of an answer."""
        return self.quoted().cited

    def quoted(self, *, most_chars: int | None = None) -> QuotedPassage:
        """Return the passage as a model reads it, cut to ``most_chars``."""
        heading = ", ".join((*self.above, self.title))
        return QuotedPassage(self.source, heading, self.text[:most_chars], self.number)


@dataclass(frozen=True, slots=True)
class Hit:
    """Passage with its score for the question, -1..1."""

    passage: Passage
    score: float


class Embedder(Protocol):
    """Converter of sentences to unit vectors. Thread-safe.

    Attributes:
        dimensions: numbers per vector.
        identity: changes whenever the same text would get another vector; part of the key of stored vectors.
        known_words: words of its language, in lower case; empty where it has no list.
    """

    dimensions: int
    identity: str
    known_words: frozenset[str]

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return float32, (len(texts), dimensions), rows of length 1."""
        ...
