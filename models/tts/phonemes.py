"""Places of the written words of a clause in its phonemes, and cuts of the phonemes into windows.

For synthesisers that read phonemes and have no notion of words. A grapheme-to-phoneme front end keeps the
spaces of a text, except that it may run words together ("out of" is one group). In that case the phonemes of
each word alone are aligned with those of the clause. Takes text and phonemes, returns index ranges. Pure
except for the front end that the caller passes in.

A phoneme is one string of the sequence, mostly one character; spaces, stress marks and punctuation are
elements too, but have no sound.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate, chain

import numpy as np

from parley.language import text_rules
from parley.language.text_normalization import PronouncedWord

SENTENCE_MARKS = ".!?…"
CLAUSE_MARKS = ",;:"
_STRESS = "ˈˌ"
_OUTER = re.compile(r"^[\W_]+|[\W_]+$")
# A pause inside a clause lasts about as long as three phonemes.
_MARK_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class WordPhonemes:
    """Written word with its place in the phonemes of its clause.

    Attributes:
        written: the word as it is in the text.
        start: index of its first phoneme.
        end: index after its last one.
        estimated: one of the two lies inside a group of words that are spoken as one.
    """

    written: str
    start: int
    end: int
    estimated: bool


def readable_words(text: str, *, language: str) -> tuple[PronouncedWord, ...]:
    """Return the written words of a clause, with tokens that a front end reads as words of their own.

    Symbols, numbers and abbreviations become words of the language with this tag.
    Punctuation around a token is removed: the full stop of "P.M." would be a pause. Empty when the text holds
    nothing to pronounce.
    """
    words = text_rules(language).spoken_words(text)
    return tuple(
        replace(word, spoken=tuple(_OUTER.sub("", token) for token in word.spoken)) for word in words
    )


def readable_text(words: Sequence[PronouncedWord]) -> str:
    """Return the clause for the front end: tokens, and marks where the phrase pauses."""
    return " ".join(
        token + mark for word in words for token, mark in zip(word.spoken, word.marks(), strict=True)
    )


def sounds(phoneme: str) -> bool:
    """Return whether a phoneme is audible: not a space, stress mark or punctuation."""
    return phoneme not in _STRESS and any(c.isalnum() for c in phoneme)


def place_words(
    phonemes: Sequence[str], words: Sequence[PronouncedWord], phonemize: Callable[[str], Sequence[str]]
) -> tuple[WordPhonemes, ...]:
    """Find each word in the phonemes of its clause.

    Args:
        phonemes: phonemes of the whole clause.
        words: words of the clause.
        phonemize: the front end; called word by word when the clause does not show where they end.

    Returns:
        One entry for each word, in order, not overlapping; empty when nothing is audible.
    """
    groups = [[i for i in range(start, end) if sounds(phonemes[i])] for start, end in _groups(phonemes)]
    groups = [group for group in groups if group]
    sounding = list(chain.from_iterable(groups))
    if not sounding:
        return ()
    edges = [0, *accumulate(len(group) for group in groups)]
    if len(groups) == sum(len(word.spoken) for word in words):
        bounds = [edges[tokens] for tokens in (0, *accumulate(len(word.spoken) for word in words))]
    else:
        alone = [[p for p in phonemize(" ".join(word.spoken)) if sounds(p)] for word in words]
        bounds = _aligned(alone, [phonemes[i] for i in sounding])
    known = set(edges)
    placed = []
    for word, first, after in zip(words, bounds, bounds[1:], strict=False):
        start = sounding[min(first, len(sounding) - 1)]
        end = sounding[after - 1] + 1 if after > first else start
        placed.append(WordPhonemes(word.written, start, end, estimated=not {first, after} <= known))
    return tuple(placed)


def cut_windows(
    phonemes: Sequence[str], *, shortest: int, longest: int, words: Sequence[WordPhonemes] = ()
) -> list[tuple[int, int]]:
    """Return index ranges of the windows that are synthesised one after the other.

    A window ends after punctuation if it and the rest have at least ``shortest`` phonemes. A window longer
    than ``longest`` is cut at the space nearest to its middle. A window does not end at a pause inside one of
    ``words``, a number that is read in groups, because its time is one. Spaces between windows belong to
    none.
    """
    inside = {at for word in words for at in range(word.start + 1, word.end)}
    windows: list[tuple[int, int]] = []
    ended = True
    for start, end in _groups(phonemes):
        if windows and (not ended or windows[-1][1] - windows[-1][0] < shortest):
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
        ended = phonemes[end - 1] in SENTENCE_MARKS + CLAUSE_MARKS and end not in inside
    if len(windows) > 1 and windows[-1][1] - windows[-1][0] < shortest:
        (start, _), (_, end) = windows[-2:]
        windows[-2:] = [(start, end)]
    return [half for start, end in windows for half in _halved(phonemes, start, end, longest)]


def estimated_edges(phonemes: Sequence[str], first: int, last: int) -> np.ndarray:
    """Return estimated edges of the phonemes of a window: all audible ones last equally long.

    first, last: samples between which the window is audible. Returned: int64, (phonemes + 1,), samples.
    """
    sounding = [i for i, phoneme in enumerate(phonemes) if sounds(phoneme)]
    weights = np.zeros(len(phonemes))
    weights[sounding] = 1.0
    for index in range(sounding[-1] if sounding else 0):
        if phonemes[index] in SENTENCE_MARKS + CLAUSE_MARKS:
            weights[index] = _MARK_WEIGHT
    shares = np.concatenate([[0.0], np.cumsum(weights)]) / max(1.0, weights.sum())
    result: np.ndarray = np.round(first + shares * (last - first)).astype(np.int64)
    return result


def _groups(phonemes: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranges between spaces."""
    groups: list[tuple[int, int]] = []
    start = 0
    for index, phoneme in enumerate((*phonemes, " ")):
        if phoneme == " ":
            if index > start:
                groups.append((start, index))
            start = index + 1
    return groups


def _aligned(alone: list[list[str]], together: list[str]) -> list[int]:
    """Return the start of each word in ``together``, and the end, by alignment with the words alone."""
    blocks = SequenceMatcher(None, list(chain(*alone)), together, autojunk=False).get_matching_blocks()
    anchors = [(0, 0), *((b.a + at, b.b + at) for b in blocks for at in sorted({0, b.size}))]
    ends = [0, *accumulate(len(word) for word in alone)]
    places = np.interp(ends, [a for a, _ in anchors], [b for _, b in anchors])
    bounds = [round(place) for place in places]
    bounds[0], bounds[-1] = 0, len(together)
    # Every word gets a phoneme as long as there are enough.
    for i in range(1, len(bounds)):
        bounds[i] = min(max(bounds[i], bounds[i - 1] + 1), len(together))
    for i in range(len(bounds) - 2, 0, -1):
        bounds[i] = max(min(bounds[i], bounds[i + 1] - 1), 0)
    return bounds


def _halved(phonemes: Sequence[str], start: int, end: int, longest: int) -> list[tuple[int, int]]:
    if end - start <= longest:
        return [(start, end)]
    middle = (start + end) // 2
    spaces = [i for i in range(start + 1, end - 1) if phonemes[i] == " "]
    cut = min(spaces, key=lambda i: abs(i - middle), default=middle)
    after = cut + 1 if spaces else cut
    return _halved(phonemes, start, cut, longest) + _halved(phonemes, after, end, longest)
