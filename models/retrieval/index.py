"""Index of passages: scores passages and their sentences for a question.

Input: passages once, then questions. Output: scores and ``Hit``s. Building embeds every sentence, which
blocks for about 10 ms per sentence unless the vectors are in the cache folder; afterwards the index is
read-only and thread-safe. A search blocks for the embedding of the question, so callers run it in a thread.
No tasks, no threads, no clock.

The score of a passage is a weighted mean of three cosines: heading and text together (its subject), its best
statement under its heading (the requested detail), the heading alone (the question in short).
``Ranking.scores`` adds the share of the question's words that the passage has (``lexical``). It distinguishes
names, numbers and rows of tables, which a cosine does not.

With a search for the nearest vectors (``nearest``) only some passages are scored: those of the vectors that
it names, and those with most words in common or a named entry. When it fails, the question is compared with
all vectors, which stay in memory.
"""

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.core.errors import ConfigError, EngineError
from parley.language import Language, find_language
from parley.models.retrieval import Embedder, Hit, Passage, SpeakableStatement
from parley.models.retrieval.lexical import Lexicon
from parley.models.retrieval.markdown import sentences
from parley.models.retrieval.nearest import VectorSearch
from parley.models.retrieval.vector_cache import read_vectors, vectors_key, write_vectors

LOG = logging.getLogger(__name__)

_TEXT_WEIGHT = 0.4
_SENTENCE_WEIGHT = 0.4
_TITLE_WEIGHT = 0.2
# A statement that fits better than its passage by more than this decides the score: an item of a long list.
_OUTSTANDING = 0.1
# Weights of the words in common and of a named entry of a glossary or row of a table; likeness has weight 1.
_WORDS_SHARE = 0.3
_KEY_SHARE = 0.25
# Weight, among the words in common, of the statement that has most of them; the rest is for the whole
# passage.
_BEST_SHARE = 0.5
# Texts that are embedded at once while calls go on, about 30 ms, and the pause after them.
_PIECE = 4
_PAUSE_S = 0.01
# Vectors, and passages with the most words in common, that are scored where a search names the nearest ones.
# A passage has three vectors at least, and a question more than one passage that is near.
NEAREST = 300
# Score of a passage that was not compared; a cosine is not lower.
_NOT_COMPARED = -1.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores of everything in the index for one question.

    Attributes:
        passages: float32, (passages,), -1..1.
        sentences: float32, (sentences,), cosine of each sentence under its heading, -1..1.
        phrases: float32, (phrases,), cosine of each extra phrase, -1..1.
        covered: float32, (passages,), share of the question's words that each passage has, 0..1.
        keyed: float32, (passages,), share of the question's words that are the key of a statement, where the
            question has all words of that key.
    """

    passages: np.ndarray
    sentences: np.ndarray
    phrases: np.ndarray
    covered: np.ndarray
    keyed: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """Score of each passage of likeness, words in common and named entries: float32, (passages,)."""
        return self.passages + _WORDS_SHARE * self.covered + _KEY_SHARE * self.keyed


class PassageIndex:
    """Passages with the vectors to find them. Thread-safe.

    Args:
        passages: at least one.
        embedder: converts text to unit vectors.
        phrases: further short texts to compare questions with (small talk), without a passage.
        cache_folder: folder for the vectors between starts; None computes them every time.
        language: that of the passages; None for the default language.
        previous: an index of earlier documents, whose vectors of the same texts are used again. It has the
            same embedder.
        vector_search: names the nearest vectors; None compares with all of them.
        nearest: number of vectors that it names for a question.

    Attributes:
        passages: as given.
        statements: every statement of every passage, in order.
        sentences: their texts.
        phrases: as given.
        names: names with digits in them that the passages use.
        language: that of the passages.

    Raises:
        ConfigError: no passage.
        EngineError: the vectors cannot be held for their search.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        embedder: Embedder,
        *,
        phrases: Sequence[str] = (),
        cache_folder: Path | None = None,
        language: Language | None = None,
        previous: "PassageIndex | None" = None,
        vector_search: VectorSearch | None = None,
        nearest: int = NEAREST,
    ) -> None:
        self._most_scored = nearest
        if not passages:
            raise ConfigError("a document index needs at least one passage")
        self.language = language or find_language()
        self._content = self.language.content
        self.passages = tuple(passages)
        self.phrases = tuple(phrases)
        self._embedder = embedder
        parts = [
            passage.statements or tuple(SpeakableStatement(text) for text in sentences(passage.text))
            for passage in self.passages
        ]
        self.statements = tuple(statement for part in parts for statement in part)
        self.sentences = tuple(statement.text for statement in self.statements)
        self._first_sentence = np.cumsum([0] + [len(part) for part in parts])
        self._passage_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        headings = [". ".join((*passage.above, passage.title)) for passage in self.passages]
        self.names = self._content.names((*self.sentences, *headings))
        self._sentence_terms = tuple(frozenset(self.terms(text)) for text in self.sentences)
        self._lexicon = Lexicon(
            [
                frozenset(self.terms(f"{heading} {passage.source}")).union(
                    *self._sentence_terms[self._first_sentence[at] : self._first_sentence[at + 1]]
                )
                for at, (heading, passage) in enumerate(zip(headings, self.passages, strict=True))
            ]
        )
        heading_terms = [frozenset(self.terms(heading)) for heading in headings]
        self._headed_lexicon = Lexicon(
            [
                held | heading_terms[passage]
                for held, passage in zip(self._sentence_terms, self._passage_of, strict=True)
            ]
        )
        # Keys by one of their terms, so that a question looks at few of them.
        self._keys: dict[str, dict[frozenset[str], list[int]]] = {}
        for number, statement in enumerate(self.statements):
            # One row may explain several entries: "bot.py, runner.py".
            for name in statement.key.split(", "):
                key = frozenset(self.terms(name))
                if key:
                    of_term = self._keys.setdefault(min(key), {})
                    of_term.setdefault(key, []).append(int(self._passage_of[number]))
        texts = [
            *(f"{heading}. {passage.text}" for heading, passage in zip(headings, self.passages, strict=True)),
            *headings,
            *(
                f"{heading}. {statement.bare or statement.text}"
                for heading, part in zip(headings, parts, strict=True)
                for statement in part
            ),
            *self.phrases,
        ]
        # Passages share headings, and a passage of one statement has the text of that statement.
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        self._rows = rows
        self._vectors = _embed_cached(list(rows), embedder, cache_folder, previous)
        count, heads = len(self.passages), 2 * len(self.passages)
        row_of = np.array([rows[text] for text in texts], dtype=np.intp)
        self._text_rows, self._title_rows = row_of[:count], row_of[count:heads]
        self._sentence_rows = row_of[heads : heads + len(self.sentences)]
        self._phrase_rows = row_of[heads + len(self.sentences) :]
        self._nearest = None
        if vector_search is not None:
            keys = [hashlib.sha256(f"{embedder.identity}\0{text}".encode()).hexdigest()[:32] for text in rows]
            self._nearest = vector_search.hold(keys, self._vectors)

    def sentence_numbers(self, passage: int) -> range:
        """Return the numbers in ``sentences`` of a passage's sentences."""
        return range(int(self._first_sentence[passage]), int(self._first_sentence[passage + 1]))

    def passage_of(self, sentence: int) -> int:
        """Return the number of the passage that a sentence belongs to."""
        return int(self._passage_of[sentence])

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, names joined."""
        return self._content.terms(self.words(text))

    def words(self, text: str) -> list[str]:
        """Return the words of a text, numbers as digits and names joined."""
        return self.names.joined(self._content.words_of(text))

    def terms_of(self, sentence: int) -> frozenset[str]:
        """Return the terms of a statement."""
        return self._sentence_terms[sentence]

    def knows(self, term: str) -> bool:
        """Return whether the passages, or their headings, have the term."""
        return self._lexicon.knows(term)

    def weight(self, term: str) -> float:
        """Return the weight of a term, above 0; rare terms have more."""
        return self._lexicon.weight(term)

    def rank(self, questions: Sequence[str]) -> list[Ranking]:
        """Return scores of everything for each question; all are embedded together. Blocks."""
        vectors = self._embedder.embed(list(questions))
        asked = [self.terms(question) for question in questions]
        covered, keyed = [self._covered(terms) for terms in asked], [self._keyed(terms) for terms in asked]
        lexical = [
            _WORDS_SHARE * words + _KEY_SHARE * keys for words, keys in zip(covered, keyed, strict=True)
        ]
        rows = self._compared(vectors, lexical)
        return [
            self._ranking(self._likeness(vector, rows), words, keys)
            for vector, words, keys in zip(vectors, covered, keyed, strict=True)
        ]

    def search(self, question: str, *, count: int = 3) -> list[Hit]:
        """Return the best passages for a question, best first. Blocks."""
        scores = self.rank([question])[0].passages
        return [Hit(self.passages[number], float(scores[number])) for number in np.argsort(-scores)[:count]]

    def vectors(self, texts: Sequence[str]) -> dict[int, np.ndarray]:
        """Return the vectors of those texts that the index has, by their place in ``texts``."""
        return {
            place: self._vectors[self._rows[text]] for place, text in enumerate(texts) if text in self._rows
        }

    def related(self, passage: int, *, count: int) -> list[int]:
        """Return the numbers of the passages most like this one, best first, without itself."""
        likeness = self._vectors @ self._vectors[self._text_rows[passage]]
        order = np.argsort(-likeness[self._text_rows])
        return [int(number) for number in order if number != passage][:count]

    def _compared(self, vectors: np.ndarray, lexical: Sequence[np.ndarray]) -> np.ndarray | None:
        """Return the numbers of the rows that questions are compared with; None: all.

        They are the same for questions that are ranked together, whose scores are combined.

        vectors: float32, (questions, dimensions).
        lexical: of each question float32, (passages,), score of words in common and named entries, 0 where
            there are none.
        """
        if self._nearest is None:
            return None
        is_near = np.zeros(len(self._vectors), dtype=bool)
        try:
            for vector in vectors:
                is_near[self._nearest.find(vector, self._most_scored)] = True
        except EngineError as error:
            LOG.warning("the question is compared with all vectors: %s", error)
            return None
        chosen = is_near[self._text_rows] | is_near[self._title_rows]
        chosen |= np.logical_or.reduceat(is_near[self._sentence_rows], self._first_sentence[:-1])
        for scores in lexical:
            wordiest = np.argsort(-scores, kind="stable")[: self._most_scored]
            chosen[wordiest[scores[wordiest] > 0]] = True
        of_chosen = np.zeros(len(self._vectors), dtype=bool)
        of_chosen[self._text_rows[chosen]] = of_chosen[self._title_rows[chosen]] = True
        of_chosen[self._sentence_rows[chosen[self._passage_of]]] = True
        of_chosen[self._phrase_rows] = True
        return np.flatnonzero(of_chosen)

    def _likeness(self, vector: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """Return each row's cosine with a question: float32, (rows,); ``_NOT_COMPARED`` where left out."""
        if rows is None:
            return np.asarray(self._vectors @ vector)
        likeness = np.full(len(self._vectors), _NOT_COMPARED, dtype=np.float32)
        likeness[rows] = self._vectors[rows] @ vector
        return likeness

    def _covered(self, asked: Sequence[str]) -> np.ndarray:
        best = np.maximum.reduceat(self._headed_lexicon.covered(asked), self._first_sentence[:-1])
        return _BEST_SHARE * best + (1 - _BEST_SHARE) * self._lexicon.covered(asked)

    def _ranking(self, likeness: np.ndarray, covered: np.ndarray, keyed: np.ndarray) -> Ranking:
        by_sentence = likeness[self._sentence_rows]
        best_sentence = np.maximum.reduceat(by_sentence, self._first_sentence[:-1])
        mean = (
            _TEXT_WEIGHT * likeness[self._text_rows]
            + _SENTENCE_WEIGHT * best_sentence
            + _TITLE_WEIGHT * likeness[self._title_rows]
        )
        scores = np.maximum(mean, best_sentence - _OUTSTANDING)
        return Ranking(scores.astype(np.float32), by_sentence, likeness[self._phrase_rows], covered, keyed)

    def _keyed(self, asked: Sequence[str]) -> np.ndarray:
        shares = np.zeros(len(self.passages), dtype=np.float32)
        total = sum(self.weight(term) for term in asked)
        held = frozenset(asked)
        for key, passages in (item for term in held for item in self._keys.get(term, {}).items()):
            if key <= held:
                share = sum(self.weight(term) for term in key) / total
                shares[passages] = np.maximum(shares[passages], np.float32(share))
        return shares


def _embed_cached(
    texts: list[str], embedder: Embedder, folder: Path | None, previous: PassageIndex | None
) -> np.ndarray:
    key = vectors_key(embedder.identity, texts)
    if folder is not None:
        stored = read_vectors(folder, key, (len(texts), embedder.dimensions))
        if stored is not None:
            return stored
    matrix = np.empty((len(texts), embedder.dimensions), dtype=np.float32)
    known = previous.vectors(texts) if previous is not None else {}
    for row, vector in known.items():
        matrix[row] = vector
    new = [row for row in range(len(texts)) if row not in known]
    # While calls go on the work is done in pieces, so that it never holds a processor for long.
    size = _PIECE if previous is not None else max(1, len(new))
    for first in range(0, len(new), size):
        piece = new[first : first + size]
        matrix[piece] = embedder.embed([texts[row] for row in piece])
        if previous is not None:
            time.sleep(_PAUSE_S)
    if folder is not None:
        write_vectors(folder, key, matrix)
    return matrix
