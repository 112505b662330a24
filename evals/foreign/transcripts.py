"""Words of a question that its transcripts lack. Pure.

A recogniser may take one word for another; a word without anything in its place was lost.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case and without punctuation."""
    return re.findall(r"[a-z']+", text.lower())


def missing_words(question: str, transcripts: Sequence[str]) -> list[str]:
    """Return the words of a question that have nothing in their place in its transcript.

    A question without a transcript, or with several, lacks all of them: a client reads one for each turn.
    """
    asked = words_of(question)
    if len(transcripts) != 1:
        return asked
    heard = words_of(transcripts[0])
    missing: list[str] = []
    for kind, start, end, heard_start, heard_end in SequenceMatcher(
        None, asked, heard, autojunk=False
    ).get_opcodes():
        if kind in ("delete", "replace"):
            missing += asked[start + heard_end - heard_start : end]
    return missing
