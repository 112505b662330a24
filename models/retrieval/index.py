"""Decides which passages, and which sentences of them, speak about a question.

In: passages once, then questions. Out: scores and ``Hit``s. Building embeds every sentence, which blocks for
about 10 ms per sentence unless the vectors are in the cache folder; afterwards the index is read-only and
thread-safe. A search blocks for the embedding of the question, so callers run it in a thread. No tasks, no
threads, no clock.

The score of a passage is a weighted mean of three cosines: heading and text together (what it is about), its
best sentence under its heading (the detail that was asked for), the heading alone (the question in short).
Term overlap (BM25 on stems) and character 4-gram cosines were measured as a fourth part on the evaluation
questions, written and misheard, and left out: they changed the top hit of two in a hundred questions, as
often for the worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.errors import ConfigError
from models.retrieval import Embedder, Hit, Passage
from models.retrieval.markdown import sentences
from models.retrieval.vector_cache import read_vectors, vectors_key, write_vectors

_TEXT_WEIGHT = 0.4
_SENTENCE_WEIGHT = 0.4
_TITLE_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well everything in the index fits one question.

    Attributes:
        passages: float32, (passages,), -1..1.
        sentences: float32, (sentences,), cosine of each sentence under its heading, -1..1.
        phrases: float32, (phrases,), cosine of each extra phrase, -1..1.
    """

    passages: np.ndarray
    sentences: np.ndarray
    phrases: np.ndarray


class PassageIndex:
    """Passages with the vectors to find them. Thread-safe.

    Args:
        passages: at least one.
        embedder: turns text into unit vectors.
        phrases: further short texts to compare questions with (small talk), without a passage.
        cache_folder: where the vectors are kept between starts; None computes them every time.

    Attributes:
        passages: as given.
        sentences: every sentence of every passage, in order.
        phrases: as given.

    Raises:
        ConfigError: no passage.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        embedder: Embedder,
        *,
        phrases: Sequence[str] = (),
        cache_folder: Path | None = None,
    ) -> None:
        if not passages:
            raise ConfigError("a document index needs at least one passage")
        self.passages = tuple(passages)
        self.phrases = tuple(phrases)
        self._embedder = embedder
        parts = [sentences(passage.text) for passage in self.passages]
        self.sentences = tuple(sentence for part in parts for sentence in part)
        self._first_sentence = np.cumsum([0] + [len(part) for part in parts])
        self._passage_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        texts = [
            *(f"{passage.title}. {passage.text}" for passage in self.passages),
            *(passage.title for passage in self.passages),
            *(
                f"{passage.title}. {sentence}"
                for passage, part in zip(self.passages, parts, strict=True)
                for sentence in part
            ),
            *self.phrases,
        ]
        matrix = _embed_cached(texts, embedder, cache_folder)
        count, heads = len(self.passages), 2 * len(self.passages)
        self._texts = matrix[:count]
        self._titles = matrix[count:heads]
        self._sentences = matrix[heads : heads + len(self.sentences)]
        self._phrases = matrix[heads + len(self.sentences) :]

    def sentence_numbers(self, passage: int) -> range:
        """Which of ``sentences`` belong to the passage of this number."""
        return range(int(self._first_sentence[passage]), int(self._first_sentence[passage + 1]))

    def passage_of(self, sentence: int) -> int:
        """The number of the passage that a sentence belongs to."""
        return int(self._passage_of[sentence])

    def rank(self, questions: Sequence[str]) -> list[Ranking]:
        """Scores of everything for each question, which are embedded together. Blocks."""
        return [self._rank(vector) for vector in self._embedder.embed(list(questions))]

    def search(self, question: str, *, count: int = 3) -> list[Hit]:
        """The best passages for a question, best first. Blocks."""
        scores = self.rank([question])[0].passages
        return [Hit(self.passages[number], float(scores[number])) for number in np.argsort(-scores)[:count]]

    def related(self, passage: int, *, count: int) -> list[int]:
        """Numbers of the passages most like this one, best first, itself left out."""
        order = np.argsort(-(self._texts @ self._texts[passage]))
        return [int(number) for number in order if number != passage][:count]

    def _rank(self, vector: np.ndarray) -> Ranking:
        by_sentence = self._sentences @ vector
        best_sentence = np.maximum.reduceat(by_sentence, self._first_sentence[:-1])
        scores = (
            _TEXT_WEIGHT * (self._texts @ vector)
            + _SENTENCE_WEIGHT * best_sentence
            + _TITLE_WEIGHT * (self._titles @ vector)
        )
        return Ranking(scores.astype(np.float32), by_sentence, self._phrases @ vector)


def _embed_cached(texts: list[str], embedder: Embedder, folder: Path | None) -> np.ndarray:
    if folder is None:
        return embedder.embed(texts)
    key = vectors_key(embedder.identity, texts)
    stored = read_vectors(folder, key, (len(texts), embedder.dimensions))
    if stored is not None:
        return stored
    matrix = embedder.embed(texts)
    write_vectors(folder, key, matrix)
    return matrix
