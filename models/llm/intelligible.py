"""Classification of a turn: a question, noise, or another language.

Pure. Noise has no words: random letters, one word over and over, hesitation. Another language is identified
by the rules of the documents' language (``language.identification``). Both are answered as such: a
fact in answer to noise is worse than a request to repeat.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from parley.language import Language, find_language

_LETTERS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_LONGEST_WORD = 30
_PART_LETTERS = 3
# Repetitions such as "la la la" and "blah blah blah blah blah", "na na na na hey".
_REPEATED_ONE, _REPEATED_TWO = 3, 5
_UNKNOWN_SHARE = 0.5


class TurnKind(Enum):
    """Kind of a turn."""

    QUESTION = "question"
    NOISE = "noise"
    FOREIGN = "foreign"


class Intelligible:
    """Classifier that distinguishes questions from noise and other languages. Thread-safe.

    Args:
        texts: the documents; their words are known, and their main language is the accepted one.
        known_words: words of the language; empty where there is no list, and then only words that cannot be
            pronounced count as unknown.
        language: that of the documents; None for the default language.
    """

    def __init__(
        self,
        texts: Iterable[str],
        known_words: Collection[str] = (),
        *,
        language: Language | None = None,
    ) -> None:
        language = language or find_language()
        self._talk, self._rules = language.small_talk, language.identification
        self._known = known_words
        counts: Counter[str] = Counter()
        self._of_documents: set[str] = set()
        for text in texts:
            counts[self._rules.language_of(text) or ""] += 1
            self._of_documents.update(self._talk.spoken_words(text))
        del counts[""]
        self.language = counts.most_common(1)[0][0] if counts else language.name

    def judge(self, text: str) -> TurnKind:
        """Return the kind of a turn."""
        words = self._talk.spoken_words(text)
        if words and (self._talk.is_noise(words) or _is_repetition(words)):
            # "Um" and "la la la" are words of other languages as well.
            return TurnKind.NOISE
        language = self._rules.language_of(text)
        if language is not None and language != self.language and not self._is_answered(text):
            return TurnKind.FOREIGN
        return TurnKind.NOISE if self._is_noise(words) else TurnKind.QUESTION

    def _is_answered(self, text: str) -> bool:
        """Return whether every word is in the documents: a name in them may look foreign."""
        words = _LETTERS.findall(text.lower())
        return all(word in self._of_documents for word in words)

    def _is_noise(self, words: Sequence[str]) -> bool:
        spoken = [word for word in words if not word.isdigit()]
        if self._talk.is_noise(words) or not spoken:
            return True
        content = [
            word for word in spoken if not self._rules.is_common(word) and word.replace("'", "").isalpha()
        ]
        unknown = [word for word in content if not self._is_known(word)]
        return (
            bool(content)
            and len(unknown) >= _UNKNOWN_SHARE * len(content)
            and len(unknown) > 0
            and (len(unknown) * 3 > len(words) or len(unknown) == len(content) == len(words))
        )

    def _is_known(self, word: str) -> bool:
        if word in self._of_documents:
            return True
        if len(word) > _LONGEST_WORD:
            return False
        if not self._known:
            return self._rules.is_pronounceable(word)
        base = word.split("'")[0]
        if any(form in self._known for form in self._rules.word_forms(base)):
            return True
        # "Payslips" is "pay" and "slips".
        parts = ((base[:at], base[at:]) for at in range(_PART_LETTERS, len(base) - _PART_LETTERS + 1))
        return any(first in self._known and second in self._known for first, second in parts)


def _is_repetition(words: Sequence[str]) -> bool:
    distinct = len(set(words))
    return (distinct == 1 and len(words) >= _REPEATED_ONE) or (distinct == 2 and len(words) >= _REPEATED_TWO)
