"""Similarity in sound, for finding words of the documents in misheard questions.

Pure. Letters become phones by a small set of rules, coarse on purpose: all vowels are nearly one, and so are
sounds of one place and manner ("b" and "p"). Word boundaries do not count: "young payment" is near "down
payment", "restily vary" near "express delivery". English.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

# The first rule that fits consumes its letters. Sounds: X as in "she", C "chair", J "jar", Q "sing", 0
# "thin", Y "buy", y "yes"; a capital vowel is any vowel like it.
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
_VOWELS = "AEIOUYy"
_PHONES = {phone: number for number, phone in enumerate("AEIOUYyBCDFGHJKLMNPQRSTVWXZ0", start=1)}
_ANY_VOWEL = 0.3
# Costs of confusing sounds that recognisers and telephone lines mix up; any others differ by 1.
_ALIKE = {
    0.2: "SZ",
    0.3: "PB TD KG FV CJ NQ yI",
    0.4: "XC XS MN 0T 0D 0F ZX",
    0.5: "XJ CS LR 0S 0V VB LW RW FP CT JD",
    0.6: "PT KT PK BD DG MB ND NL",
}
# Costs of a missing or an additional sound.
_GAPS = {0.4: "AH", 0.5: "EIOUYyW", 0.6: "TDR", 0.7: "SZ"}
_OTHER_GAP = 0.8
# Phrases whose length differs by more than this share are not compared.
_LENGTH_SHARE = 0.35


def _costs() -> tuple[np.ndarray, np.ndarray]:
    size = len(_PHONES) + 1
    change = np.ones((size, size), dtype=np.float32)
    vowels = [_PHONES[phone] for phone in _VOWELS]
    change[np.ix_(vowels, vowels)] = _ANY_VOWEL
    for cost, pairs in _ALIKE.items():
        for pair in pairs.split():
            one, other = tuple(pair)
            change[_PHONES[one], _PHONES[other]] = change[_PHONES[other], _PHONES[one]] = cost
    np.fill_diagonal(change, 0.0)
    gap = np.full(size, _OTHER_GAP, dtype=np.float32)
    for cost, phones in _GAPS.items():
        gap[[_PHONES[phone] for phone in phones]] = cost
    # Padding costs nothing.
    gap[0] = 0.0
    return change, gap


_CHANGE, _GAP = _costs()


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


class SoundAlikes:
    """Index of phrases that finds those that sound like given words. Thread-safe.

    Args:
        phrases: words of each phrase.
        least_phones: shorter phrases are left out, because they are similar to too much.
    """

    def __init__(self, phrases: Iterable[Sequence[str]], *, least_phones: int) -> None:
        sounding = [(tuple(words), phones_of(words)) for words in dict.fromkeys(map(tuple, phrases))]
        kept = [(words, phones) for words, phones in sounding if len(phones) >= least_phones]
        self.phrases = tuple(words for words, _ in kept)
        self._least = least_phones
        self._codes, self._lengths = _encoded([phones for _, phones in kept])

    def near(self, heard: Sequence[Sequence[str]], *, most: float) -> list[tuple[int, int, float]]:
        """Return (index in ``heard``, number of the phrase, distance) of all pairs within ``most``.

        Args:
            heard: words of each recognised piece.
            most: largest distance: the cost of the changes per sound, 0..1.
        """
        if not len(self._lengths) or not heard:
            return []
        codes, lengths = _encoded([phones_of(words) for words in heard])
        longest = np.maximum(lengths[:, None], self._lengths[None, :])
        fits = np.abs(lengths[:, None] - self._lengths[None, :]) <= _LENGTH_SHARE * longest
        fits &= lengths[:, None] >= self._least
        places, numbers = np.nonzero(fits)
        if not len(places):
            return []
        costs = _distances(codes[places], lengths[places], self._codes[numbers], self._lengths[numbers])
        distances = costs / longest[places, numbers]
        return [
            (int(places[at]), int(numbers[at]), float(distances[at]))
            for at in np.flatnonzero(distances <= most)
        ]


def _encoded(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of phones, int64, (texts, longest), 0 after the end, and lengths, int64, (texts,)."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    codes = np.zeros((len(texts), int(lengths.max(initial=0))), dtype=np.int64)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = [_PHONES[phone] for phone in text]
    return codes, lengths


def _distances(
    one: np.ndarray, one_lengths: np.ndarray, other: np.ndarray, other_lengths: np.ndarray
) -> np.ndarray:
    """Return the least cost of changing one into the other, row by row: float32, (rows,).

    one, other: int64, (rows, phones), codes. Lengths: int64, (rows,).
    """
    rows = np.arange(len(one))
    before = np.concatenate([np.zeros((len(one), 1), np.float32), np.cumsum(_GAP[other], axis=1)], axis=1)
    result = before[rows, other_lengths]
    for at in range(one.shape[1]):
        gap = _GAP[one[:, at]]
        row = np.empty_like(before)
        row[:, 0] = before[:, 0] + gap
        # A step in the other phrase depends on the previous one; the rest is done for all at once.
        best = np.minimum(before[:, 1:] + gap[:, None], before[:, :-1] + _CHANGE[one[:, at, None], other])
        for place in range(other.shape[1]):
            row[:, place + 1] = np.minimum(best[:, place], row[:, place] + _GAP[other[:, place]])
        before = row
        ended = one_lengths == at + 1
        result[ended] = before[ended, other_lengths[ended]]
    return result
