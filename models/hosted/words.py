"""Words with their times as facts of the worker link. Pure.

What the facts do not bear out is refused: a worker must not trust who leases it, nor the other way.
"""

from collections.abc import Iterable
from typing import Any

from core.media import WordTime

# Of one message; an utterance or a clause has fewer.
MOST_WORDS = 10_000


def of_words(words: Iterable[WordTime]) -> list[list[Any]]:
    """To be sent. What an engine calls a number may be one of numpy's."""
    return [
        [word.text, int(word.start_ms), int(word.end_ms), float(word.confidence), bool(word.estimated)]
        for word in words
    ]


def to_words(given: object) -> tuple[WordTime, ...]:
    """As they were received.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(given, list) or len(given) > MOST_WORDS:
        raise ValueError("words that are no list of them")
    return tuple(_to_word(word) for word in given)


def to_share(value: object) -> float:
    """A number from 0 to 1.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("no share of one")
    return float(value)


def _to_word(given: object) -> WordTime:
    if not isinstance(given, list) or len(given) != 5:
        raise ValueError("a word that is none")
    text, start_ms, end_ms, confidence, estimated = given
    if not isinstance(text, str) or not isinstance(estimated, bool):
        raise ValueError("a word that is none")
    times = (start_ms, end_ms)
    if not all(isinstance(time, int) and not isinstance(time, bool) and time >= 0 for time in times):
        raise ValueError("a word without times")
    return WordTime(text, start_ms, end_ms, to_share(confidence), estimated)
