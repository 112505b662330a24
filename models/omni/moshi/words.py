"""Text of Moshi's inner monologue: one piece of the vocabulary a unit, most of them saying nothing.

A piece begins a word when it begins with the mark of SentencePiece. What the vocabulary lacks comes as bytes
over several units, and is text when the last byte of a character is there.
"""

import codecs
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

WORD_MARK = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Words:
    """Pieces of one conversation, in order.

    Args:
        pieces: the vocabulary by token.
        silent: tokens that say nothing.
    """

    def __init__(self, pieces: Sequence[str], silent: AbstractSet[int]) -> None:
        self._pieces, self._silent = pieces, silent
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def is_word(self, token: int) -> bool:
        """Whether it is a piece of a word."""
        return token not in self._silent

    def text(self, token: int) -> str:
        """What the next token says; empty for silence and inside of a character."""
        if not self.is_word(token):
            return ""
        piece = self._pieces[token]
        if byte := _BYTE.fullmatch(piece):
            return self._utf8.decode(bytes([int(byte[1], 16)]))
        # A character that was not completed is given up.
        self._utf8.reset()
        return piece.replace(WORD_MARK, " ")
