"""Finder of passages for the question that a model is about to be asked.

Input: the caller's last words and the ones before. Output: the passages that may answer them, best first.
Unlike the answerer of documents (``models.llm.document_answer``), which must choose one passage or none, the
finder returns several: the model that reads them decides. Its threshold only keeps out what has nothing to do
with the question, such as small talk.

A search is hybrid: likeness of meaning, the share of the question's words that a passage has, and named
entries (``Ranking.scores``). A short question is searched by itself and together with the one before ("and
abroad?"). Blocking, about 10 ms for each embedded text, and thread-safe.
"""

from dataclasses import dataclass

import numpy as np

from parley.models.retrieval import Hit
from parley.models.retrieval.index import PassageIndex

# The embedder reads no more words of a text, and no question is longer.
_MOST_CHARS = 600
# A longer question stands by itself.
_FOLLOW_UP_WORDS = 9
# Weight of a follow-up by itself; the rest is for the two questions together.
_OWN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class FinderTuning:
    """Limits of a search.

    Attributes:
        count: most passages.
        threshold: least score; 0.42 is what the answerer of documents requires of its one passage.
    """

    count: int = 3
    threshold: float = 0.3


class PassageFinder:
    """Finder over an index. Thread-safe.

    Args:
        index: the passages.
        tuning: limits; None for the defaults.
    """

    def __init__(self, index: PassageIndex, tuning: FinderTuning | None = None) -> None:
        self._index = index
        self._tuning = tuning or FinderTuning()
        self._generation = 0

    @property
    def generation(self) -> int:
        """Number of indexes that were replaced: what was found in an earlier one may be out of date."""
        return self._generation

    def use(self, index: PassageIndex) -> None:
        """Search in another index from the next question on."""
        if index is not self._index:
            self._index = index
            self._generation += 1

    def find(self, question: str, previous: str = "") -> list[Hit]:
        """Return the passages that may answer a question, best first. Blocks.

        Args:
            question: the caller's last words.
            previous: the words before; empty at the beginning.
        """
        question, previous = question[-_MOST_CHARS:].strip(), previous[-_MOST_CHARS:].strip()
        if not question:
            return []
        asked = [question]
        if previous and len(question.split()) <= _FOLLOW_UP_WORDS:
            asked.append(f"{previous} {question}")
        # The same for the whole search.
        index = self._index
        rankings = index.rank(asked)
        scores = rankings[0].scores
        if len(rankings) > 1:
            # A question that stands by itself keeps its own score; the earlier words can only add to it.
            scores = np.maximum(scores, _OWN_SHARE * scores + (1 - _OWN_SHARE) * rankings[1].scores)
        best = np.argsort(-scores, kind="stable")[: self._tuning.count]
        return [
            Hit(index.passages[number], float(scores[number]))
            for number in best
            if scores[number] >= self._tuning.threshold
        ]
