"""Interface of text normalisation: the written text of a reply as words ready to pronounce.

A normalisation keeps the written word for every spoken token, so that word times can be reported in the words
of the text. Pure.
"""

import unicodedata
from dataclasses import dataclass, replace
from typing import Protocol

# Typographic forms that a language model writes, with the plain ones that the rules read.
TYPOGRAPHIC = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "…": "."})


@dataclass(frozen=True, slots=True)
class PronouncedWord:
    """Written word with its pronunciation.

    Attributes:
        written: the word as it is in the text, with its punctuation; silent neighbours (a dash, an emoji) are
            part of it, separated by a space.
        spoken: tokens to pronounce, at least one; letters, digits, apostrophes and inner dots only.
        pause: the punctuation that shapes the phrase after it: one of ``, ; : . ? !`` or empty.
        breaths: positions of the short pauses inside the word, as numbers of tokens before each, in order: a
            long number is read in groups.
    """

    written: str
    spoken: tuple[str, ...]
    pause: str = ""
    breaths: tuple[int, ...] = ()

    def marks(self) -> tuple[str, ...]:
        """Return the punctuation after each of the tokens."""
        inner = ("," if position in self.breaths else "" for position in range(1, len(self.spoken)))
        return (*inner, self.pause)


def plain_words(text: str) -> tuple[PronouncedWord, ...]:
    """Return the unchanged words of any language; those without letter or digit are joined to a neighbour."""
    return attach_silent(
        [
            PronouncedWord(
                word, (word,) if any(c.isalnum() for c in word) else (), pause_of(word.translate(TYPOGRAPHIC))
            )
            for word in text.split()
        ]
    )


def ascii_token(token: str) -> str:
    """Return a token for an ASCII-only engine: accents are dropped, and other scripts vanish."""
    folded = unicodedata.normalize("NFKD", token)
    return "".join(c for c in folded if c.isascii() and (c.isalnum() or c in "'."))


def attach_silent(said: list[PronouncedWord]) -> tuple[PronouncedWord, ...]:
    """Join silent words to the word before them, at the very start to the word after them."""
    words: list[PronouncedWord] = []
    waiting = ""
    for word in said:
        if word.spoken:
            words.append(replace(word, written=f"{waiting} {word.written}") if waiting else word)
            waiting = ""
        elif words:
            before = words[-1]
            words[-1] = replace(
                before,
                written=f"{before.written} {word.written}",
                pause=before.pause or word.pause or ",",
            )
        else:
            waiting = f"{waiting} {word.written}" if waiting else word.written
    return tuple(words)


def pause_of(tail: str) -> str:
    """Return the strongest mark of a run of punctuation; a dash counts as a comma."""
    for mark in "?!.:;,":
        if mark in tail:
            return mark
    return "," if tail.endswith("-") and len(tail) > 1 else ""


class TextNormalization(Protocol):
    """Rules for the spoken form of written text, in one language."""

    def number_words(self, value: int, /) -> str:
        """Return the cardinal in words."""
        ...

    def spoken_words(self, text: str, /) -> tuple[PronouncedWord, ...]:
        """Return the text as words ready to pronounce, in order; the written parts join to the whole text."""
        ...


class NoNormalization:
    """Rules of a language that has none: words and numbers are left to the engine."""

    def number_words(self, value: int, /) -> str:
        """Return the digits."""
        return str(value)

    def spoken_words(self, text: str, /) -> tuple[PronouncedWord, ...]:
        """Return the words as they are written."""
        return plain_words(text)
