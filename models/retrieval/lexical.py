"""Coverage of a question's words by statements. Read-only after construction, thread-safe.

A rare word has more weight than a common one (inverse document frequency, as in BM25), and a word that is in
no document counts as the rarest. A question for the colour of a pump is thus only half covered by documents
without colours.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np


class Lexicon:
    """Terms with the statements that contain them.

    Args:
        statements: terms of each statement.
    """

    def __init__(self, statements: Sequence[Iterable[str]]) -> None:
        holders: dict[str, list[int]] = {}
        for number, held in enumerate(statements):
            for term in set(held):
                holders.setdefault(term, []).append(number)
        self._count = len(statements)
        self._holders = {term: np.array(numbers, dtype=np.intp) for term, numbers in holders.items()}

    def knows(self, term: str) -> bool:
        """Return whether a statement has the term."""
        return term in self._holders

    def weight(self, term: str) -> float:
        """Return the weight of a term, above 0; rare terms have more."""
        held = len(self._holders.get(term, ()))
        return math.log(1.0 + (self._count - held + 0.5) / (held + 0.5))

    def covered(self, terms: Sequence[str], weights: Sequence[float] | None = None) -> np.ndarray:
        """Return the share of the question's weight that each statement has: float32, (statements,), 0..1.

        Args:
            terms: terms of the question.
            weights: a factor for each term; None for 1.
        """
        scores = np.zeros(self._count, dtype=np.float32)
        total = 0.0
        for number, term in enumerate(terms):
            weight = self.weight(term) * (weights[number] if weights is not None else 1.0)
            total += weight
            holders = self._holders.get(term)
            if holders is not None:
                scores[holders] += weight
        return scores / np.float32(total) if total else scores
