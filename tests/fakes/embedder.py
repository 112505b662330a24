"""Embedder without weights: a vector counts words, so that texts which share words are near each other."""

import zlib
from collections.abc import Callable

import numpy as np

from parley.language.english.small_talk import spoken_words


class WordCountEmbedder:
    """A thread-safe ``models.retrieval.Embedder``.

    Args:
        before: called with the texts in the embedding thread, before they are embedded.
        identity: name of the model, as ``Embedder`` defines it.
    """

    dimensions = 512

    def __init__(
        self, before: Callable[[list[str]], None] = lambda texts: None, *, identity: str = "word-count"
    ) -> None:
        self.identity = identity
        self.known_words: frozenset[str] = frozenset()
        self.before = before
        self.embedded: list[str] = []

    def embed(self, texts: list[str]) -> np.ndarray:
        self.before(texts)
        self.embedded.extend(texts)
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row, 0] = 0.1  # An empty text has a direction too.
            for word in spoken_words(text):
                vectors[row, 1 + zlib.crc32(word.encode()) % (self.dimensions - 1)] += 1.0
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
