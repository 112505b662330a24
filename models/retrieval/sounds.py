"""Similarity in sound, for finding words of the documents in misheard questions.

Pure. The language writes words as phones (``language.sounds``). The comparison is coarse on purpose: all
vowels are nearly one, and so are sounds of one place and manner ("b" and "p"). Word boundaries do not count:
"young payment" is near "down payment", "restily vary" near "express delivery".
"""

from collections.abc import Iterable, Sequence

import numpy as np

from parley.language import Language, find_language
from parley.language.sounds import PHONES

_VOWELS = "AEIOUYy"
_PHONES = {phone: number for number, phone in enumerate(PHONES, start=1)}
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


class SoundAlikes:
    """Index of phrases that finds those that sound like given words. Thread-safe.

    Args:
        phrases: words of each phrase.
        least_phones: shorter phrases are left out, because they are similar to too much.
        language: that of the phrases; None for the default language.
    """

    def __init__(
        self, phrases: Iterable[Sequence[str]], *, least_phones: int, language: Language | None = None
    ) -> None:
        self._phones_of = (language or find_language()).sounds.phones_of
        sounding = [(tuple(words), self._phones_of(words)) for words in dict.fromkeys(map(tuple, phrases))]
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
        codes, lengths = _encoded([self._phones_of(words) for words in heard])
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
    result: np.ndarray = before[rows, other_lengths]
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
