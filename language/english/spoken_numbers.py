"""Convert numbers in words to digits: "two thousand five hundred" is 2500, "five point two" is 5.2.

For comparing a written text with a spoken one. Numbers that are read out digit by digit stay separate ("one
nine nine" is 1, 9 and 9); ``spoken_digits`` joins those. Pure.
"""

import re
from collections.abc import Sequence

_UNITS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen "
        "seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * number
    for number, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
_THOUSANDS = {"thousand": 1_000, "million": 1_000_000}
_STARTS = _UNITS | _TENS
_MENTIONED = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|"
    r"thousand|million|monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow)\b",
    re.I,
)


def mentions(text: str) -> bool:
    """Return whether a text names a number or a day."""
    return _MENTIONED.search(text) is not None


def with_digits(words: Sequence[str]) -> list[str]:
    """Return lower-case words with each number in words replaced by its digits; linear in their count."""
    result: list[str] = []
    at = 0
    while at < len(words):
        if words[at] not in _STARTS:
            result.append(words[at])
            at += 1
            continue
        number, at = _number(words, at)
        result.append(number)
    return result


def _number(words: Sequence[str], at: int) -> tuple[str, int]:
    """Return the number that begins at ``at``, and the index after it."""
    total, group, at = 0, *_below_hundred(words, at)
    while at < len(words):
        word = words[at]
        if word == "hundred" and 0 < group < 100:
            group, at = group * 100, at + 1
            at += at + 1 < len(words) and words[at] == "and" and words[at + 1] in _STARTS
            if at < len(words) and words[at] in _STARTS:
                rest, at = _below_hundred(words, at)
                group += rest
        elif word in _THOUSANDS and group:
            total, group, at = total + group * _THOUSANDS[word], 0, at + 1
            if at < len(words) and words[at] in _STARTS:
                group, at = _below_hundred(words, at)
        else:
            break
    text = str(total + group)
    if at + 1 < len(words) and words[at] == "point" and words[at + 1] in _UNITS:
        at += 1
        text += "."
        while at < len(words) and _UNITS.get(words[at], 10) < 10:
            text += str(_UNITS[words[at]])
            at += 1
    return text, at


def _below_hundred(words: Sequence[str], at: int) -> tuple[int, int]:
    """Return the number of the next one or two words, and the index after them.

    "Forty two" is 42, and "four two" is 4.
    """
    number = _STARTS[words[at]]
    at += 1
    if number >= 20 and at < len(words) and 0 < _UNITS.get(words[at], 0) < 10:
        return number + _UNITS[words[at]], at + 1
    return number, at
