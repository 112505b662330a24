"""Document look-up: which passages speak about this question?"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

_KEY_WORDS = 4


@dataclass(frozen=True, slots=True)
class Statement:
    """The smallest piece of a document that is true when it is said by itself.

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
        """The words before the bare ones; those of neighbours are said once."""
        return self.text.removesuffix(self.bare) if self.bare else ""

    @property
    def key(self) -> str:
        """The entry that the statement explains: the name of a row, or a few words before a colon."""
        before, colon, _ = self.text.partition(": ")
        if self.row:
            return self.row
        return before if colon and len(before.split()) <= _KEY_WORDS and not self.bare else ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph, a list or a row of a table of the deployment's documents.

    Attributes:
        text: the whole of it, markdown removed.
        title: the heading it stands under.
        source: the document's own name ("the Northwind fee schedule").
        above: the headings above the title, the outermost first, without the document's own name.
        statements: what the text is made of, in order; empty for sentences of a text.
        form: "text", "list", "steps" (an ordered list) or "row" (of a table).
        lead: the words that lead to a list; empty where there are none.
        table: number of the table in its document that a row belongs to, from 1; 0 for anything else.
        columns: headings of that table, that of the row's name first.
    """

    text: str
    title: str
    source: str
    above: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()
    form: str = "text"
    lead: str = ""
    table: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with its cosine similarity to the question, -1..1."""

    passage: Passage
    score: float


class Embedder(Protocol):
    """Sentences to unit vectors. Thread-safe.

    Attributes:
        dimensions: numbers per vector.
        identity: changes whenever the same text would become another vector; part of the key of stored
            vectors.
        known_words: words of the language that it was made for, in lower case; empty where it has no list.
    """

    dimensions: int
    identity: str
    known_words: frozenset[str]

    def embed(self, texts: list[str]) -> np.ndarray:
        """float32, (len(texts), dimensions), rows of length 1."""
        ...
