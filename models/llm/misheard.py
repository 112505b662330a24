"""Proposes what a question may have been before a recogniser misheard it. Read-only, thread-safe.

A piece of the question with a word that the documents do not have may be a word or two of theirs that sounds
like it. A word of the language may as well be meant ("how do I cook rice"), so it is replaced only by what
sounds nearly the same, and where the documents know something else of the question. Which proposal is right,
and if any is, is for the documents to decide: the answerer takes one only where they have no answer to what
was heard.

Denials ("unfrozen" is one), numbers and the words that ask stay as they were heard, and none is proposed:
what a question is about may be guessed, but not if it is meant or its opposite.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from core.spoken_numbers import with_digits
from models.llm.intelligible import word_forms
from models.retrieval.index import PassageIndex
from models.retrieval.sounds import SoundAlikes
from models.retrieval.terms import EMPTY, is_negated, stem

# "Cash" and "card" sound like too much else.
_LEAST_PHONES = 5
# Of a word that is none of the language, and of one that is. Chosen on the tuning halves of
# ``evals.answers``, with transcripts of the tuning voices.
_MOST_DISTANCE, _MOST_DISTANCE_OF_WORDS = 0.26, 0.22
_MOST_PIECE_WORDS = 3
_MOST_READINGS = 6
# Pieces times phrases that are compared, which take 0.1 s at most: of a long turn its beginning.
_MOST_PAIRS = 60_000
_DENYING = ("un", "in", "im", "il", "ir", "dis", "non", "mis")
_ASKING = frozenset("what which who whom whose where when why how".split())


@dataclass(frozen=True, slots=True)
class Reading:
    """Question with a piece of it replaced.

    Attributes:
        words: of the question.
        distance: of the replaced piece from what was heard, 0..1.
    """

    words: tuple[str, ...]
    distance: float


class Misheard:
    """Proposes readings in the words of an index.

    Args:
        index: the documents.
        language_words: words of their language; empty where there is no list, and then every word counts as
            one.
    """

    def __init__(self, index: PassageIndex, language_words: Collection[str] = ()) -> None:
        self._index = index
        self._language = language_words
        texts = dict.fromkeys(
            (
                *index.sentences,
                *(title for passage in index.passages for title in (*passage.above, passage.title)),
            )
        )
        self._alike = SoundAlikes(
            (phrase for text in texts for phrase in self._phrases(index.words(text))),
            least_phones=_LEAST_PHONES,
        )

    def readings(self, words: Sequence[str]) -> list[Reading]:
        """Return readings of a question, the likeliest by sound first; none where nothing is unknown."""
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
            if not _is_content(word):
                continue
            yield (word,)
            if at + 1 < len(words) and _is_content(words[at + 1]):
                yield word, words[at + 1]

    def _pieces(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        for start in range(len(words)):
            for end in range(start + 1, min(start + _MOST_PIECE_WORDS, len(words)) + 1):
                piece = words[start:end]
                if piece[0] in EMPTY:
                    break
                if any(not _may_change(word) for word in piece):
                    break
                if piece[-1] not in EMPTY and any(self._is_unknown(word) for word in piece):
                    yield start, end

    def _is_unknown(self, word: str) -> bool:
        return word not in EMPTY and not self._index.knows(stem(word))

    def _may_be(
        self, piece: Sequence[str], phrase: Sequence[str], rest: Sequence[str], distance: float
    ) -> bool:
        """Tell if a piece of a question may have been a phrase; what the documents know of it has to stay."""
        stems = {stem(word) for word in phrase}
        unknown = [word for word in piece if self._is_unknown(word)]
        if any(word not in EMPTY and word not in unknown and stem(word) not in stems for word in piece):
            return False
        if self._count_denying(piece) != self._count_denying(phrase):
            return False
        if any(not self._is_of_language(word) for word in unknown):
            return True
        return distance <= _MOST_DISTANCE_OF_WORDS and any(
            word not in EMPTY and not self._is_unknown(word) for word in rest
        )

    def _is_of_language(self, word: str) -> bool:
        return not self._language or any(form in self._language for form in word_forms(word))

    def _count_denying(self, words: Sequence[str]) -> int:
        """Count the words that deny another one of the documents: "unfrozen" where these have "frozen"."""
        return sum(
            any(word.startswith(one) and self._index.knows(stem(word.removeprefix(one))) for one in _DENYING)
            for word in words
        )


def _is_content(word: str) -> bool:
    return word.isalpha() and word not in EMPTY and _may_change(word)


def _may_change(word: str) -> bool:
    return (
        word not in _ASKING and not is_negated((word,)) and with_digits([word]) == [word] and word.isalpha()
    )
