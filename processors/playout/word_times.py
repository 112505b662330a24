"""Estimate word times in the audio of a text when the voice does not report them, from the spelling.

A word takes time by its letters, and a digit as much as several, since it is read as a word. A mark after a
word takes the pause that speakers make there. The audio is divided in these shares. The module is pure.
"""

import re
from dataclasses import dataclass

# Shares, in letters, fitted to flite's word times over 160 sentences of the example documents. In 134 other
# ones the middle of a word lay within 65 ms of the estimate in half of the cases and within 210 ms in 95 of
# 100; for a random moment the last word was right in 77 of 100 cases and one off at most in 99.
_WORD = 0.2
_DIGIT = 4.0
_CAPITAL_WORD = 3.0
_PAUSES = {",": 4.0, ";": 4.0, ":": 4.0, ".": 9.0, "?": 9.0, "!": 9.0, "…": 9.0}
# Length of such a share with flite, for audio that is still being made.
_SHARE_US = 57_000
_TOKEN = re.compile(r"(\s*)(\S+)")


@dataclass(frozen=True, slots=True)
class WordTiming:
    """A word and its estimated time.

    Attributes:
        text: the word with its marks.
        joiner: the white space before it.
        start_us, end_us: where it sounds; the pause after it is not included.
    """

    text: str
    joiner: str
    start_us: int
    end_us: int


def estimate_word_times(text: str, start_us: int, end_us: int) -> list[WordTiming]:
    """Divide a stretch of audio among the words of its text."""
    tokens = [(found[1], found[2]) for found in _TOKEN.finditer(text.rstrip())]
    shares = [_shares(token) for _, token in tokens]
    # The pause after the last word is the silence in which the audio ends, and is mostly cut off.
    whole = sum(sound + pause for sound, pause in shares) - (shares[-1][1] / 2 if shares else 0.0)
    placed: list[WordTiming] = []
    passed = 0.0
    for (joiner, token), (sound, pause) in zip(tokens, shares, strict=True):
        first_us = start_us + round((end_us - start_us) * passed / whole)
        last_us = start_us + round((end_us - start_us) * min(1.0, (passed + sound) / whole))
        placed.append(WordTiming(token, joiner, first_us, last_us))
        passed += sound + pause
    return placed


def spoken_us(text: str) -> int:
    """Return how long the text takes to say, at an ordinary pace."""
    return round(sum(sum(_shares(token)) for token in text.split()) * _SHARE_US)


def _shares(token: str) -> tuple[float, float]:
    """Return the shares of the word itself and of the pause after it."""
    letters = [char for char in token if char.isalpha()]
    digits = sum(char.isdigit() for char in token)
    # Capitals are spelled letter by letter.
    spelled = len(letters) > 1 and all(char.isupper() for char in letters)
    sound = _WORD + digits * _DIGIT + len(letters) * (_CAPITAL_WORD if spelled else 1.0)
    return sound, _PAUSES.get(token.rstrip("\"')]}”’»*_")[-1:], 0.0)
