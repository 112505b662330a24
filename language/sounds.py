"""Interface of the rules for sounds, by which misheard words are found. Pure."""

from collections.abc import Iterable
from typing import Protocol

# Letters for the sounds: X as in "she", C "chair", J "jar", Q "sing", 0 "thin", Y "buy", y "yes"; a capital
# vowel is any vowel like it.
PHONES = "AEIOUYyBCDFGHJKLMNPQRSTVWXZ0"


class SoundRules(Protocol):
    """Rules for the sounds of one language."""

    def phones_of(self, words: Iterable[str], /) -> str:
        """Return the sounds of words, one of ``PHONES`` for each, without the boundaries between them."""
        ...


class NoSounds:
    """Rules of a language that has none: nothing sounds like anything."""

    def phones_of(self, words: Iterable[str], /) -> str:
        """Return no sound."""
        return ""
