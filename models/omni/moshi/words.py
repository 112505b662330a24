"""Text of Moshi's inner monologue: one piece of the vocabulary a unit, most of them silent.

A piece begins a word when it begins with the mark of SentencePiece. A character that is not in the vocabulary
comes as bytes over several units, and becomes text with its last byte.
"""

import codecs
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

WORD_MARK = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class WordDecoder:
    """Decoder of the pieces of one conversation, in order.

    Args:
        pieces: the vocabulary by token.
        silent: tokens without text.
    """

    def __init__(self, pieces: Sequence[str], silent: AbstractSet[int]) -> None:
        self._pieces, self._silent = pieces, silent
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def is_word(self, token: int) -> bool:
        """Return whether the token is a piece of a word."""
        return token not in self._silent

    def text(self, token: int) -> str:
        """Return the text of the next token; empty for silence and inside a character."""
        if not self.is_word(token):
            return ""
        piece = self._pieces[token]
        if byte := _BYTE.fullmatch(piece):
            return self._utf8.decode(bytes([int(byte[1], 16)]))
        # An incomplete character is dropped.
        self._utf8.reset()
        return piece.replace(WORD_MARK, " ")
