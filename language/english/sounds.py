"""Sounds of English words by a small set of rules, coarse on purpose. Pure."""

import re
from collections.abc import Iterable

# The first rule that fits consumes its letters.
_RULES = tuple(
    (re.compile(letters), sounds)
    for letters, sounds in (
        ("tch", "C"), ("sch", "SK"), ("dge", "J"), ("igh", "Y"), ("eigh", "E"), ("ough|augh", "O"),
        ("gh(?=t)|gh$", ""), ("^gh", "G"), ("^kn", "N"), ("^wr", "R"), ("^ps", "S"), ("m[bn]$", "M"),
        ("ph", "F"), ("sh", "X"), ("ch", "C"), ("th", "0"), ("wh", "W"), ("ck", "K"),
        ("ng(?=[^aeiouy]|$)", "Q"), ("s?sion|tion", "XAN"), ("[ct]ial", "XAL"), ("[ct]ious", "XAS"),
        ("ture$", "CA"), ("sure$", "XA"), ("qu", "KW"), ("x", "KS"), ("c(?=[eiy])", "S"), ("c+", "K"),
        ("gg", "G"), ("g(?=[eiy])", "J"), ("g", "G"), ("s(?=e$)|(?<=[aeiou])s(?=[aeiou])", "Z"),
        ("es$|s+", "S"), ("z+", "Z"), ("t+", "T"), ("d+", "D"), ("b+", "B"), ("p+", "P"), ("f+", "F"),
        ("v+", "V"), ("k+", "K"), ("j", "J"), ("l+", "L"), ("m+", "M"), ("n+", "N"), ("r+", "R"),
        ("w(?=[aeiou])", "W"), ("h(?=[aeiouy])", "H"), ("[hw]", ""), ("y(?=[aeiou])", "y"), ("e$", ""),
        ("ed$", "D"), ("ee|ea|ie|ei|ey", "I"), ("oo|ue|ew", "U"), ("ou|ow|oi|oy|au|aw|oa", "O"),
        ("ai|ay", "E"), ("a", "A"), ("e", "E"), ("[iy]", "I"), ("o", "O"), ("u", "U"),
    )
)  # fmt: skip


def phones_of(words: Iterable[str]) -> str:
    """Return the sounds of words, a letter for each, without the boundaries between them."""
    return "".join(_phones(word) for word in words)


def _phones(word: str) -> str:
    found, at = "", 0
    while at < len(word):
        for letters, sounds in _RULES:
            match = letters.match(word, at)
            if match is not None and match.end() > at:
                found, at = found + sounds, match.end()
                break
        else:
            at += 1
    return found
