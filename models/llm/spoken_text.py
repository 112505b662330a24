"""Clauses of a spoken answer: division into pieces that a voice can begin with.

Pure: takes and returns text.
"""

import re

# A shorter piece ends before the voice has reached its normal flow; before a full stop one word is enough.
_MIN_WORDS = 3
_CLAUSE = re.compile(r"\S.*?(?:[.!?](?=\s)|[,;:](?=\s)|$)\s*", re.DOTALL)


def clauses(text: str) -> list[str]:
    """Return ``text`` cut after punctuation; the pieces join to the text."""
    pieces: list[str] = []
    pending = ""
    for piece in _CLAUSE.findall(text):
        pending += piece
        mark = pending.rstrip()[-1:]
        if mark in ".!?:" or len(pending.split()) >= _MIN_WORDS:
            pieces.append(pending)
            pending = ""
    if pending:
        pieces.append(pending)
    return pieces
