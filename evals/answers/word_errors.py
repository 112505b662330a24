"""Give written questions the word errors of a recogniser, from real confusions.

The confusions come from pairs of a written question and its recognised words, aligned word by word. A word is
replaced by one that was recognised in its place. If none was recorded, the most similar word is used instead.
A tenth of the errors are omissions. The same seed gives the same errors.
"""

import json
import random
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from parley.language import find_language

_OMITTED_SHARE = 0.1
_GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
_spoken_words = find_language("en").small_talk.spoken_words


class WordErrors:
    """Channel with a given rate of word errors.

    Args:
        pairs: (written, recognised) texts.
        rate: share of words that are changed, 0 to 1.
        seed: of the errors.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], *, rate: float, seed: int) -> None:
        self._heard: dict[str, list[str]] = {}
        self._rate = rate
        self._random = random.Random(seed)
        for written, heard in pairs:
            self._align(_spoken_words(written), _spoken_words(heard))

    def hear(self, text: str) -> str:
        """Return the recognised form of a text: lower case, without punctuation."""
        heard: list[str] = []
        for word in _spoken_words(text):
            if self._random.random() >= self._rate:
                heard.append(word)
            elif self._random.random() >= _OMITTED_SHARE:
                heard.append(self._random.choice(self._confusions(word)))
        return " ".join(heard)

    def _confusions(self, word: str) -> list[str]:
        near = [word] if word in self._heard else get_close_matches(word, self._heard, n=1, cutoff=0.0)
        return self._heard[near[0]] if near else [word]

    def _align(self, written: list[str], heard: list[str]) -> None:
        matcher = SequenceMatcher(None, written, heard, autojunk=False)
        for kind, first, last, start, end in matcher.get_opcodes():
            if kind == "replace" and last - first == end - start:
                for word, other in zip(written[first:last], heard[start:end], strict=True):
                    self._heard.setdefault(word, []).append(other)


def confusions() -> list[tuple[str, str]]:
    """Return pairs of written and recognised texts of tests/golden."""
    written, heard = (
        json.loads((_GOLDEN / name).read_text(encoding="utf-8"))
        for name in ("questions.json", "questions_heard.json")
    )
    pairs: list[tuple[str, str]] = []
    for part, rows in written.items():
        for one, other in zip(rows, heard[part], strict=True):
            pairs.append((one[-1], other[-1]) if isinstance(one, list) else (one, other))
    return pairs
