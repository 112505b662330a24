"""Numbers that are read out digit by digit. Pure.

Reads such numbers ("four one double seven" is 4177) and divides one into the groups in which it is read out.
"""

import re
from collections.abc import Sequence

ONES = {
    "zero": "0", "oh": "0", "o": "0", "nought": "0", "one": "1", "two": "2", "three": "3", "four": "4",
    "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
}  # fmt: skip
TEENS = {
    "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15",
    "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19",
}  # fmt: skip
TENS = {
    "twenty": "2", "thirty": "3", "forty": "4", "fifty": "5", "sixty": "6", "seventy": "7", "eighty": "8",
    "ninety": "9",
}  # fmt: skip
TIMES = {"double": 2, "triple": 3}
SCALES = frozenset(("hundred", "thousand", "million", "billion"))
# What a recogniser writes for a digit between two others.
HOMOPHONES = {"to": "2", "too": "2", "for": "4", "fore": "4", "won": "1", "ate": "8", "tree": "3"}
# "Nine to five" is a range; with more digits around it the word is one of them.
LEAST_CERTAIN = 3

# Lengths of the groups in which a number is read out, by its number of digits: people dictate telephone and
# card numbers in this way. Longer numbers go in fours.
_BREATHS = {
    6: (3, 3), 7: (3, 4), 8: (4, 4), 9: (3, 3, 3), 10: (3, 3, 4), 11: (1, 3, 3, 4), 12: (4, 4, 4),
}  # fmt: skip
_LONGEST_BREATH = 5


def digit_groups(digits: str) -> tuple[str, ...]:
    """Return a number in the groups in which it is read out: 5550100 becomes 555 and 0100."""
    if len(digits) <= _LONGEST_BREATH:
        return (digits,)
    lengths = _BREATHS.get(len(digits), (4,) * -(-len(digits) // 4))
    groups: list[str] = []
    start = 0
    for length in lengths:
        groups.append(digits[start : start + length])
        start += length
    return tuple(groups)


def spoken_digits(words: Sequence[str]) -> tuple[str, int]:
    """Return the digits at the front of ``words`` and the number of words that they span.

    "Four one double seven" gives 4177 and 4, and so does "for one double seven". "Five hundred" is an amount
    and gives no digits.
    """
    digits, at = "", 0
    has_homophones = _has_homophones(words)
    while at < len(words):
        word = words[at].lower()
        if has_homophones and _sounds_like_digit(words, at):
            digits += HOMOPHONES[word]
            at += 1
            continue
        if word in TIMES and at + 1 < len(words) and words[at + 1].lower() in ONES:
            digits += ONES[words[at + 1].lower()] * TIMES[word]
            at += 2
            continue
        if word in ONES:
            digits += ONES[word]
        elif word in TEENS:
            digits += TEENS[word]
        elif word in TENS:
            following = words[at + 1].lower() if at + 1 < len(words) else ""
            if following in ONES and following not in ("zero", "oh", "o", "nought"):
                digits += TENS[word] + ONES[following]
                at += 1
            else:
                digits += f"{TENS[word]}0"
        elif "-" in word and all(part in ONES or part in TENS for part in word.split("-")):
            digits += spoken_digits(word.split("-"))[0]
        elif (
            (bare := re.sub(r"[().,/-]", "", word)) and re.fullmatch(r"\+?\d+", bare) and "+" not in bare[1:]
        ):
            if bare[0] == "+" and digits:
                break
            digits += bare
        else:
            break
        at += 1
    if at < len(words) and words[at].lower() in SCALES:
        return "", 0
    return digits, at


def _is_digit(words: Sequence[str], at: int) -> bool:
    return at < len(words) and (words[at].lower() in ONES or words[at].lower() in TIMES)


def _sounds_like_digit(words: Sequence[str], at: int) -> bool:
    """Return whether the word at a place may be a digit: "changed to one two" begins with none."""
    word = words[at].lower()
    return word in HOMOPHONES and (at > 0 or word not in ("to", "too")) and _is_digit(words, at + 1)


def _has_homophones(words: Sequence[str]) -> bool:
    """Return whether enough single digits are at the front of ``words`` to read the other words as digits."""
    certain = 0
    for at in range(len(words)):
        if _is_digit(words, at):
            certain += 1
        elif not _sounds_like_digit(words, at):
            break
    return certain >= LEAST_CERTAIN
