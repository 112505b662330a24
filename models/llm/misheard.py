"""Correction of misheard questions: proposes what was said. Read-only, thread-safe.

A piece of the question with a word that is not in the documents may be one or two of their words that sound
like it. A word of the language may as well be meant ("how do I cook rice"). It is therefore replaced only by
words that sound nearly the same, and only where the documents contain something else of the question. The
documents decide which proposal is right, if any: the answerer uses one only where they have no answer to the
question as recognised.

Denials ("unfrozen" is one), numbers and question words stay as recognised, and none is proposed. The subject
of a question may be guessed, but not whether it or its opposite is meant.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.sounds import SoundAlikes

# Least phones of a phrase: "cash" and "card" sound like too many other words.
_LEAST_PHONES = 5
# Greatest distance for a word outside the language, and for one of it. Chosen on the tuning halves of
# ``evals.answers``, with transcripts of the tuning voices.
_MOST_DISTANCE, _MOST_DISTANCE_OF_WORDS = 0.26, 0.22
_MOST_PIECE_WORDS = 3
_MOST_READINGS = 6
# Greatest number of comparisons of pieces with phrases, which take 0.1 s at most: of a long turn only the
# beginning is searched.
_MOST_PAIRS = 60_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Question with a piece of it replaced.

    Attributes:
        words: words of the question.
        distance: distance of the replacement from the recognised piece, 0..1.
    """

    words: tuple[str, ...]
    distance: float


class Misheard:
    """Source of readings in the words of an index.

    Args:
        index: the documents.
        language_words: words of their language; empty where there is no list, and then every word counts as
            one.
    """

    def __init__(self, index: PassageIndex, language_words: Collection[str] = ()) -> None:
        self._index = index
        self._language_words = language_words
        self._language = index.language
        self._content = index.language.content
        texts = dict.fromkeys(
            (
                *index.sentences,
                *(title for passage in index.passages for title in (*passage.above, passage.title)),
            )
        )
        self._alike = SoundAlikes(
            (phrase for text in texts for phrase in self._phrases(index.words(text))),
            least_phones=_LEAST_PHONES,
            language=index.language,
        )

    def readings(self, words: Sequence[str]) -> list[Reading]:
        """Return readings of a question, most similar in sound first; empty when every word is known."""
        pieces = list(self._pieces(words))[: max(1, _MOST_PAIRS // max(1, len(self._alike.phrases)))]
        found = self._alike.near([words[start:end] for start, end in pieces], most=_MOST_DISTANCE)
        best: dict[tuple[str, ...], float] = {}
        for place, number, distance in found:
            start, end = pieces[place]
            phrase = self._alike.phrases[number]
            piece, rest = words[start:end], (*words[:start], *words[end:])
            if not self._may_be(piece, phrase, rest, distance):
                continue
            read = (*words[:start], *phrase, *words[end:])
            best[read] = min(distance, best.get(read, 1.0))
        ordered = sorted(best.items(), key=lambda item: (item[1], item[0]))
        return [Reading(read, distance) for read, distance in ordered[:_MOST_READINGS]]

    def _phrases(self, words: Sequence[str]) -> Iterator[tuple[str, ...]]:
        for at, word in enumerate(words):
            if not self._is_content(word):
                continue
            yield (word,)
            if at + 1 < len(words) and self._is_content(words[at + 1]):
                yield word, words[at + 1]

    def _pieces(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        for start in range(len(words)):
            for end in range(start + 1, min(start + _MOST_PIECE_WORDS, len(words)) + 1):
                piece = words[start:end]
                if self._content.is_empty(piece[0]):
                    break
                if any(not self._may_change(word) for word in piece):
                    break
                if not self._content.is_empty(piece[-1]) and any(self._is_unknown(word) for word in piece):
                    yield start, end

    def _is_unknown(self, word: str) -> bool:
        return not self._content.is_empty(word) and not self._index.knows(self._content.stem(word))

    def _may_be(
        self, piece: Sequence[str], phrase: Sequence[str], rest: Sequence[str], distance: float
    ) -> bool:
        """Return whether a piece of a question may stand for a phrase; words that the documents have must
        remain.
        """
        stems = {self._content.stem(word) for word in phrase}
        unknown = [word for word in piece if self._is_unknown(word)]
        known = (word for word in piece if not self._content.is_empty(word) and word not in unknown)
        if any(self._content.stem(word) not in stems for word in known):
            return False
        if self._count_denying(piece) != self._count_denying(phrase):
            return False
        if any(not self._is_of_language(word) for word in unknown):
            return True
        return distance <= _MOST_DISTANCE_OF_WORDS and any(
            not self._content.is_empty(word) and not self._is_unknown(word) for word in rest
        )

    def _is_of_language(self, word: str) -> bool:
        return not self._language_words or any(
            form in self._language_words for form in self._language.identification.word_forms(word)
        )

    def _count_denying(self, words: Sequence[str]) -> int:
        """Return the number of words that negate another one of the documents: "unfrozen" for "frozen"."""
        return sum(
            any(
                word.startswith(one) and self._index.knows(self._content.stem(word.removeprefix(one)))
                for one in self._language.questions.denying
            )
            for word in words
        )

    def _is_content(self, word: str) -> bool:
        return word.isalpha() and not self._content.is_empty(word) and self._may_change(word)

    def _may_change(self, word: str) -> bool:
        return word.isalpha() and not self._language.fixes_meaning(word)
