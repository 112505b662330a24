"""Clause splitter for streamed answers: the first clause as early as useful, later ones longer.

Takes pieces of text of any size (tokens, words, sentences) and returns clauses; joined, the clauses and the
rest of ``flush`` are the text, character by character. Never cut: numbers ("1,000.50") and a colon before
them, abbreviations ("e.g.", "St."), initials ("J. K. Rowling"), clock times and addresses. Pure.

The first clause determines how long the caller waits, so it may end at a comma after three words. Every
clause costs a synthesis call and a phrase boundary, so later ones end at a comma only when they are long; a
sentence end always cuts.
"""

import re

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.language import Language, find_language

_SENTENCE_MARKS = ".?!。？！"
_SOFT_MARKS = ",;:"
_CLOSERS = "\"')]}”’»*_"
_DASHES = "–—"
# Characters examined after the longest clause.
_LOOK_AHEAD_CHARS = 100
_WORD_BEFORE = re.compile(r"[^\s(\"“\[]*$")


class ClauseSettings(StrictModel):
    """Rules for the ends of clauses.

    Attributes:
        first_words: words before the first clause may end at a comma.
        later_words: the same for the following clauses.
        first_limit_words: a first clause of more words is cut before "and", "because" and the like.
        max_chars: a clause is cut at a space here at the latest; bounds the cost of one synthesis call.
    """

    first_words: int = Field(default=3, ge=1, le=20)
    later_words: int = Field(default=9, ge=1, le=60)
    first_limit_words: int = Field(default=12, ge=4, le=60)
    max_chars: int = Field(default=160, ge=40, le=1000)


class ClauseSplitter:
    """Splitter for one reply at a time.

    Args:
        settings: rules for the ends of clauses.
        language: that of the replies; None for the default language.
    """

    def __init__(self, settings: ClauseSettings | None = None, *, language: Language | None = None) -> None:
        self._words = (language or find_language()).clauses
        self._settings = settings or ClauseSettings()
        self._buffer = ""
        self._first = True

    @property
    def pending(self) -> str:
        """Text that is not yet part of a clause."""
        return self._buffer

    def push(self, text: str) -> list[str]:
        """Take the next piece of the reply; return the clauses that it completed."""
        self._buffer += text
        # A source that streams whole sentences ends each with its piece, so there is no need to wait for the
        # next.
        whole_sentences = len(text.split()) >= 3
        clauses: list[str] = []
        while (cut := self._find_cut(whole_sentences)) is not None:
            clauses.append(self._buffer[:cut])
            self._buffer = self._buffer[cut:]
            self._first = False
        return clauses

    def flush(self) -> str:
        """End the reply; return the remaining text, which may be empty. The next piece begins a new reply."""
        rest, self._buffer = self._buffer, ""
        self._first = True
        return rest

    def _find_cut(self, whole_sentences: bool) -> int | None:
        """Return the end of the first complete clause in the buffer, or None while there is none."""
        # Later text cannot change the result, and would be searched for each mark.
        text = self._buffer[: self._settings.max_chars + _LOOK_AHEAD_CHARS]
        for index, char in enumerate(text):
            if char == "\n":
                if _speaks(text[:index]):
                    return index
            elif char in _SENTENCE_MARKS or char == "…":
                if index and text[index - 1] in _SENTENCE_MARKS and _is_mark(text[index + 1 : index + 2]):
                    continue
                end = _after_marks(text, index)
                if self._ends_sentence(text, index, end, whole_sentences):
                    return end
            elif char in _SOFT_MARKS or char in _DASHES or char == "-":
                end = _after_marks(text, index)
                if self._ends_phrase(text, index, end):
                    return end
            if index + 1 >= self._settings.max_chars:
                window = text[: self._settings.max_chars]
                return self._cut_before_conjunction(window) or self._forced_cut(text)
        return self._cut_before_conjunction(text)

    def _ends_sentence(self, text: str, index: int, end: int, whole_sentences: bool) -> bool:
        before, after = text[:index], text[end:]
        if not _speaks(before) or (after and not after[0].isspace()):
            return False
        if text[index] == "…" or text[index:].startswith(".."):
            return bool(after.strip()) and self._long_enough(before)
        if text[index] != ".":
            return True
        words = self._words
        word = _WORD_BEFORE.search(before)
        last = word[0].lower().strip("'‘’*_") if word else ""
        following = after.lstrip()
        if not after:
            # Only the end of a whole sentence may be cut without the text after it.
            return (
                whole_sentences
                and last.replace("'", "").replace("’", "").isalpha()
                and len(last) > 1
                and last not in words.abbreviations | words.before_number
            )
        if last in words.before_number:
            return bool(following) and not following[0].isdigit()
        if last in words.maybe_last:
            return bool(following) and following[0].isupper()
        # "J. Smith"; and the number of a list item ("1. Open the app") belongs to the item.
        initial = len(last) == 1 and last.isalpha()
        return not (initial or last in words.abbreviations or before.strip().isdigit())

    def _ends_phrase(self, text: str, index: int, end: int) -> bool:
        after = text[end:]
        if text[index] in _DASHES or text[index] == "-":
            # A dash between spaces, or an em dash between words; a hyphen and a range ("5–10") stay whole.
            spaced = text[index - 1 : index].isspace() and after[:1].isspace()
            em = text[index] == "—" and bool(after)
            return (spaced or em) and self._long_enough(text[:index])
        if text[index] == ":" and (not after.strip() or after.lstrip()[0].isdigit()):
            # "Your code is: 4172": the voice needs the words before a number to read it correctly.
            return False
        return after[:1].isspace() and self._long_enough(text[:index])

    def _long_enough(self, clause: str) -> bool:
        needed = self._settings.first_words if self._first else self._settings.later_words
        return len(clause.split()) >= needed

    def _cut_before_conjunction(self, text: str) -> int | None:
        """Return a cut before "and" or the like in a long first clause without a comma; None for no cut."""
        if not self._first or len(text.split()) <= self._settings.first_limit_words:
            return None
        places = [
            m.start() for m in self._words.conjunctions.finditer(text) if len(text[: m.start()].split()) >= 5
        ]
        return places[0] if places else None

    def _forced_cut(self, text: str) -> int:
        """Return a cut in a window without a clause end: at the last comma, the last space, or the end."""
        window = text[: self._settings.max_chars]
        comma = max((m.end() for m in re.finditer(r"[,;:](?=\s)", window)), default=0)
        if len(window[:comma].split()) >= 4:
            return comma
        space = window.rstrip().rfind(" ")
        return space if space > 0 and _speaks(window[:space]) else len(window)


def split_clauses(text: str, settings: ClauseSettings | None = None) -> list[str]:
    """Return all clauses of a whole text; joined they are the text."""
    splitter = ClauseSplitter(settings)
    clauses = splitter.push(text)
    rest = splitter.flush()
    return [*clauses, rest] if rest else clauses


def _speaks(text: str) -> bool:
    return any(c.isalnum() for c in text)


def _after_marks(text: str, index: int) -> int:
    """Return the index after the run of marks at ``index``, closing quotes and brackets included."""
    end = index + 1
    while _is_mark(text[end : end + 1]):
        end += 1
    return end


def _is_mark(char: str) -> bool:
    return bool(char) and (char in _SENTENCE_MARKS or char in _CLOSERS or char == "…")
