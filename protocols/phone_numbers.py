"""Telephone numbers as networks send them, and recognition of withheld ones. Pure.

A number is ``+`` and 7 to 15 digits (ITU-T E.164). Twilio reports a withheld number as a word, or as the
digits on which the letters of that word lie: +266696687 is ANONYMOUS. Such numbers identify no caller, nor
does the address of a SIP client.
"""

import hashlib
import hmac
import re

NUMBER = re.compile(r"\+[1-9][0-9]{6,14}")
# As Twilio lists them (help article "Why am I getting calls from these strange numbers?"): BLOCKED,
# ANONYMOUS, INFO..., RESTRICTED with two digits swapped and as it is spelled, UNAVAILABLE, UNKNOWN.
WITHHELD = frozenset(
    {"+2562533", "+266696687", "+464", "+7378742883", "+7378742833", "+86282452253", "+8656696"}
)
# Characters that people write between digits.
_BETWEEN = re.compile(r"[\s().\-/]")
# Value of ``StirVerstat`` (STIR/SHAKEN) with which the caller's own carrier vouches for the number. It may be
# followed by a suffix for a diversion; only the letter counts.
_ATTESTED = re.compile(r"TN-Validation-Passed-A(?:-[A-Za-z]+)*")


def known_number(said: str) -> str | None:
    """Return a number that identifies a caller; None for a withheld or invalid one."""
    number = _BETWEEN.sub("", said.strip())
    return number if NUMBER.fullmatch(number) and number not in WITHHELD else None


def is_attested(verstat: str) -> bool:
    """Return whether the carrier vouches for the number in full (attestation A)."""
    return _ATTESTED.fullmatch(verstat.strip()) is not None


def number_digest(key: bytes, caller: str, called: str) -> str:
    """Return a digest of one caller of one number, for storage without numbers: HMAC-SHA-256, in hexadecimal.

    The key is necessary: there are so few numbers that an unkeyed digest could be reversed by trying all.
    """
    return hmac.new(key, f"{called}\0{caller}".encode(), hashlib.sha256).hexdigest()


def person_digest(key: bytes, number: str) -> str:
    """Return a digest of a number whichever number it calls, by which everything of its caller is found.

    It is another one than that of any call, and needs the key as ``number_digest`` does.
    """
    return number_digest(key, number, "")
