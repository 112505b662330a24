"""Courtesies around a request: "well, can you please ... thank you". Pure."""

import re

from parley.language.english.spelling import SPELLINGS

# Longer turns contain more than a request.
MOST_WORDS = 20

# Matched one piece at a time from the left, the longest first, so that the time is linear in the words.
AROUND = re.compile(
    r"(?:ok|okay|well|alright|all right|great|good|fine|perfect|yes|no|so|um|uh|please|now|then|again|"
    r"(?:thank you|thanks)(?: so much| very much| a lot| again)?"
    r"(?: for (?:your|the|all your) (?:help|time))?|"
    r"that(?:'s| is| was| will be) (?:all|everything|it)(?: i needed| for now| for today)?|"
    r"i(?:'m| am) (?:done|all set)|nothing else)\b"
)
_ADVERB = re.compile(r"\b(?:really|just|actually|much|directly) ")


def bare_request(text: str) -> tuple[str, str]:
    """Return the last courtesy before a request, and the request without those around it."""
    rest = plain_request(text)
    before = ""
    while (piece := AROUND.match(rest)) is not None:
        before, rest = piece.group(), rest[piece.end() :].lstrip()
    rest = _ADVERB.sub("", rest)
    for tail in (" please", " now", " thank you", " thanks"):
        rest = rest.removesuffix(tail)
    return before, rest


def plain_request(text: str) -> str:
    """Return the words of a turn in the spelling of the rules; none of one that is too long for a request."""
    words = re.sub(r"[,.!?;:-]", " ", text.lower().replace("\u2019", "'")).split()
    return " ".join(SPELLINGS.respelled(words)) if len(words) <= MOST_WORDS else ""
