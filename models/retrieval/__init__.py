"""Document look-up: which passages speak about this question?"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph of the deployment's documents.

    Attributes:
        text: the paragraph, markdown removed.
        title: the heading it stands under.
        source: the document's own name, for speaking ("the Northwind fee schedule").
    """

    text: str
    title: str
    source: str


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
    """

    dimensions: int
    identity: str

    def embed(self, texts: list[str]) -> np.ndarray:
        """float32, (len(texts), dimensions), rows of length 1."""
        ...
