"""Telephone numbers as networks say them, and which of them are somebody's. Pure.

A number is ``+`` and 7 to 15 digits (ITU-T E.164). Twilio has a withheld one say so in words, or in the
digits on which the letters of such a word lie: +266696687 is ANONYMOUS. Nobody is known by those, nor by the
address of a SIP client.
"""

import hashlib
import hmac
import re

NUMBER = re.compile(r"\+[1-9][0-9]{6,14}")
# As Twilio lists them (help article "Why am I getting calls from these strange numbers?"): BLOCKED,
# ANONYMOUS, INFO..., RESTRICTED with two digits turned round and as it is spelled, UNAVAILABLE, UNKNOWN.
WITHHELD = frozenset(
    {"+2562533", "+266696687", "+464", "+7378742883", "+7378742833", "+86282452253", "+8656696"}
)
# What people write between digits.
_BETWEEN = re.compile(r"[\s().\-/]")
# Of STIR/SHAKEN, as ``StirVerstat`` has it: the caller's own carrier vouches that the number is theirs.
# Behind a diversion too: the letter is what counts.
_ATTESTED = re.compile(r"TN-Validation-Passed-A(?:-[A-Za-z]+)*")


def known_number(said: str) -> str | None:
    """A number by which somebody can be known; None for a withheld one, and for what is none."""
    number = _BETWEEN.sub("", said.strip())
    return number if NUMBER.fullmatch(number) and number not in WITHHELD else None


def is_attested(verstat: str) -> bool:
    """Whether the carrier vouches for the number in full (attestation A)."""
    return _ATTESTED.fullmatch(verstat.strip()) is not None


def number_digest(key: bytes, caller: str, called: str) -> str:
    """One caller of one number, for a place that is to hold no numbers: HMAC-SHA-256, in hexadecimal.

    Without the key: there are so few numbers that all of them can be tried.
    """
    return hmac.new(key, f"{called}\0{caller}".encode(), hashlib.sha256).hexdigest()
