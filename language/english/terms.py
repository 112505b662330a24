"""Content words of a text, for comparing a question with a document word by word.

Pure. A term is a stem ("cancelled" and "cancel" are one), a number in digits ("thirty" and "30" are one), or
a name with digits in it ("K 200", "k two hundred" and "K200" are one). Words without content are left out.
"""

import re
from collections.abc import Iterable, Sequence

from parley.language.english.spoken_numbers import with_digits

_WORD = re.compile(r"\d+(?:[.,]\d+)*|[a-z]+\d[a-z0-9]*|\w+(?:'\w+)?")
_NAME = re.compile(r"([a-z]+)(\d+)([a-z]*)")
_PREFIX_LETTERS = 3
# Transcripts of a single letter before a number.
_LETTER_NAMES = {
    "ay": "a", "bee": "b", "be": "b", "see": "c", "sea": "c", "dee": "d", "ee": "e", "he": "e", "ef": "f",
    "gee": "g", "jay": "j", "kay": "k", "okay": "k", "el": "l", "em": "m", "en": "n", "pea": "p", "pee": "p",
    "cue": "q", "queue": "q", "are": "r", "ess": "s", "tea": "t", "tee": "t", "you": "u", "vee": "v",
    "ex": "x", "why": "y", "zee": "z", "zed": "z",
}  # fmt: skip
_ARTICLES = frozenset(("a", "i", "am", "is", "of", "to", "in", "at", "or", "the", "on", "up", "by"))
# Words without content.
EMPTY = frozenset(
    "a an the and or but if then than so as at by for from in into of on onto to with about over up off out "
    "i you he she it we they me him her us them my your his its our their mine yours this that these "
    "those there "
    "here what when where which who whom whose how why is are was were am be been being do does did "
    "doing done "
    "can could will would shall should may might must have has had having get gets got give gives let "
    "please tell "
    "anyone anybody everyone everybody someone somebody whoever else ever know say says said want wants "
    "need needs like much many long any some all each very just also too "
    "really actually again now yes no not never none nor neither cannot can't don't doesn't didn't "
    "isn't aren't "
    "won't wasn't weren't shouldn't mustn't haven't hasn't i'm i'd i'll i've it's that's there's what's "
    "you're we're "
    "one ones thing things way happen happens mean means use uses used make makes made go goes come "
    "comes take "
    "takes put puts allow allows allowed possible".split()
)
_BEFORE_ONE = frozenset("which that this new other another the any no every each".split())
_NEGATIONS = frozenset(
    "no not never none nothing nobody neither nor without cannot can't don't doesn't didn't isn't "
    "aren't won't wasn't weren't shouldn't mustn't haven't hasn't except unless impossible "
    "forbidden unsupported".split()
)
_SUFFIXES = (
    "ations", "ation", "ions", "ion", "ingly", "ments", "ment", "ness", "ings", "ing", "ies", "ied", "edly",
    "ed", "es", "ly", "s", "y", "e",
)  # fmt: skip
_STEM_LETTERS = 3
# Words of one meaning that have no stem in common.
_SAME = {
    "weigh": "weight", "heavy": "weight", "heavier": "weight", "heaviest": "weight", "loud": "noise",
    "louder": "noise", "cheap": "price", "cheaper": "price", "cheapest": "price", "expensive": "price",
    "cost": "price", "fee": "price", "charge": "price", "kid": "child", "children": "child",
    "bought": "buy", "sent": "send", "paid": "pay", "lost": "lose", "stolen": "steal", "stole": "steal",
    "froze": "freeze", "frozen": "freeze", "annual": "year", "daily": "day", "kept": "keep", "held": "hold",
    "ran": "run", "broke": "break", "broken": "break", "spoke": "speak", "spoken": "speak", "worn": "wear",
    "forgot": "forget", "forgotten": "forget", "license": "licence", "outside": "outdoor",
    "colour": "color", "authorised": "authorized",
}  # fmt: skip


def is_negated(words: Iterable[str]) -> bool:
    """Return whether the words deny something."""
    return not _NEGATIONS.isdisjoint(words)


def is_empty(word: str) -> bool:
    """Return whether a word has no content."""
    return word in EMPTY


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, numbers as digits; linear in its length."""
    plain = text.lower().replace("\u2019", "'").replace("-", " ").replace("_", " ").replace("%", " percent ")
    words = [word.replace(",", "") for word in _WORD.findall(plain)]
    for at, word in enumerate(words):
        # "A new one", "the large one" and "which one" are not numbers.
        if word == "one" and (at + 1 == len(words) or (at and words[at - 1] in _BEFORE_ONE)):
            words[at] = "ones"
    return with_digits(words)


def stem(word: str) -> str:
    """Return the common stem of words with the same meaning."""
    if word in _SAME_STEM:
        return _SAME_STEM[word]
    bare = _without_suffix(word)
    return _SAME_STEM.get(bare, bare)


def _without_suffix(word: str) -> str:
    if not word.isalpha():
        return word.removesuffix("'s")
    # Twice: "Saturdays" is "Saturday" first.
    for _ in range(2):
        for suffix in _SUFFIXES:
            if word.endswith(suffix) and len(word) - len(suffix) >= _STEM_LETTERS and not word.endswith("ss"):
                word = word[: -len(suffix)]
                break
    if len(word) > _STEM_LETTERS and word[-1] == word[-2] and word[-1] not in "sl":
        return word[:-1]
    return word[:-1] if word.endswith("ll") and len(word) > 4 else word


_SAME_STEM = {
    form: _without_suffix(other) for word, other in _SAME.items() for form in (word, _without_suffix(word))
}


class Names:
    """Names with digits in them that the documents use, such as models and error codes.

    Args:
        texts: the documents.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._known: set[str] = set()
        for text in texts:
            self._known.update(_canonical(word) for word in words_of(text) if _NAME.fullmatch(word))
        self._prefixes = {name.rstrip("0123456789") for name in self._known}

    def joined(self, words: Sequence[str]) -> list[str]:
        """Return the words with names that were spoken in pieces joined: "k", "200" is "k200"."""
        result: list[str] = []
        for word in words:
            before = result[-1] if result else ""
            if _NAME.fullmatch(word):
                result.append(_canonical(word))
            elif word.isdigit() and self._goes_on(before, word):
                result[-1] = _canonical(_LETTER_NAMES.get(before, before) + word)
            else:
                result.append(word)
        return result

    def of(self, words: Iterable[str]) -> set[str]:
        """Return the names among joined words that look like names of the documents, known or not."""
        names = (word for word in words if _NAME.fullmatch(word))
        return {name for name in names if name.rstrip("0123456789") in self._prefixes}

    def _goes_on(self, before: str, digits: str) -> bool:
        if not before.isalpha():
            # "e 0" continues with "5".
            return bool(_NAME.fullmatch(before)) and _canonical(before + digits) in self._known
        if before in _LETTER_NAMES:
            return _canonical(_LETTER_NAMES[before] + digits) in self._known
        if len(before) > _PREFIX_LETTERS:
            return False
        if before in _ARTICLES:
            return _canonical(before + digits) in self._known
        return before in self._prefixes


def names(texts: Iterable[str]) -> Names:
    """Return the names that the documents use."""
    return Names(texts)


def _canonical(name: str) -> str:
    """Return a name without zeros before its digits: E05 and E5 are one."""
    match = _NAME.fullmatch(name)
    return f"{match[1]}{int(match[2])}{match[3]}" if match else name


def terms(words: Iterable[str]) -> list[str]:
    """Return the terms of joined words, in order, each once."""
    return list(dict.fromkeys(stem(word) for word in words if word not in EMPTY))
