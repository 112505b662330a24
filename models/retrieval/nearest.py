"""Search for the nearest of many vectors: the interface of its implementations, and their registry.

``PassageIndex`` compares a question with all of its vectors, which takes 10 to 20 ms at 100,000 passages. A
row of this registry names the nearest ones instead. The index then scores their passages, those with most of
the question's words, and no others.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from parley.core.registry import Registry, Row
from parley.core.strict_model import StrictModel


class NearestVectors(Protocol):
    """Vectors of one index. Thread-safe."""

    def find(self, vector: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of the rows nearest to a vector: int64, (at most ``count``,). Blocks.

        Raises:
            EngineError: the search failed.
        """
        ...


class VectorSearch(Protocol):
    """Holder of vectors. Created by the registry from its settings."""

    def hold(self, keys: Sequence[str], vectors: np.ndarray) -> NearestVectors | None:
        """Hold the vectors of an index, in place of those of an earlier one. Blocks.

        Args:
            keys: of each row, unique; a key that was held before has the same vector.
            vectors: float32, (rows, dimensions), of length 1.

        Returns:
            Their search; None when the index is to compare with all of them.

        Raises:
            EngineError: they cannot be held.
        """
        ...


class ExactSettings(StrictModel):
    """No settings."""


class ExactSearch:
    """Comparison with all vectors.

    Args:
        settings: none.
    """

    def __init__(self, settings: ExactSettings | None = None) -> None:
        del settings

    def hold(self, keys: Sequence[str], vectors: np.ndarray) -> NearestVectors | None:
        """Return None (``VectorSearch``)."""
        del keys, vectors
        return None


VECTOR_SEARCH: Registry[VectorSearch] = Registry(
    "vector search",
    {
        "exact": Row("parley.models.retrieval.nearest:ExactSearch", "compares with all vectors, in memory"),
        "chroma": Row(
            "parley.models.retrieval.chroma:ChromaSearch",
            "asks Chroma for the nearest vectors, in this process or on a server",
            extra="chroma",
        ),
    },
)
