"""Redact a caller's words while they are spoken: partial texts, final texts, and the turn that they make.

A number is dictated in pieces, over several finals and with pauses. Therefore words are judged together with
the turn so far:

* While a turn is open, a reader gets ``live`` words. Personal data is hidden, and so is what may become some:
  in a partial every number of ``LEAST_PENDING`` digits, in a final such a number at its end, and after a cue
  ("my email is") everything up to the address. At most ``LEAST_PENDING - 1`` digits are ever shown.
* When the turn is over, ``settle`` returns its words with personal data hidden and everything else as it was
  said, for the model and the records.

A number may go on in the next turn (an end of a turn was decided within it). The digits at the end of a
turn are remembered for ``CARRY_MS``, also over turns without a number ("yes"): what continues them is
judged with them, and hidden when both have more than ``MOST_CARRIED`` digits. A turn with other words after
its digits, or before the digits that go on, ends the number: its parts are kept where neither is a number
of a kind. The digits of a turn that begin a card's number and are more than that are hidden, too. So at
most the first ``MOST_CARRIED`` digits of a card whose parts follow each other are kept; PCI DSS 3.4.1
permits the BIN, which has eight, and the last four.

Words that cannot be matched with what was said stay as they were shown, hidden. Pure; times are milliseconds
of the caller's clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parley.core.media import WordTime
from parley.core.privacy import PersonalData
from parley.language.personal_data import (
    MARKS,
    PENDING,
    DigitRun,
    Found,
    HiddenPart,
    Redactor,
    hidden_parts,
    may_begin_card,
    without_overlaps,
)

LEAST_PENDING = 3
MOST_CARRIED = 8
CARRY_MS = 30_000
# Finals of one turn, and words before the present ones with which they are judged.
MOST_FINALS, MOST_CONTEXT = 64, 80
# A recogniser may write "four two" for a number that repeats it ("four two four two four two ..."): an
# utterance that is long for its few words, with a digit among them, may have more digits than its text.
# Words of a second, and the least length: sixteen digits take five seconds, and people say two words in one.
FEW_WORDS_S, LEAST_LONG_MS = 1.0, 4_000
_NUMBERS = frozenset((PersonalData.PAYMENT_CARD, PersonalData.PHONE_NUMBER, PersonalData.DIGITS))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Stretch of time in milliseconds."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class SaidPart:
    """Final words of the caller with their place in time.

    Attributes:
        text: the words.
        began_ms: first sample of the utterance; the times of its words count from it.
        ended_ms: its end.
        words: with their times; empty when the recogniser gives none.
    """

    text: str
    began_ms: int
    ended_ms: int
    words: tuple[WordTime, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveWords:
    """Words as they are shown while their turn is open.

    Attributes:
        text: the words, with marks.
        words: the same with their times, where all of them have times.
        is_changed: something is hidden.
    """

    text: str
    words: tuple[WordTime, ...]
    is_changed: bool


class TurnRedaction:
    """Words of one caller.

    Args:
        redactor: decides what is hidden.
        on_hidden: receives the words of a turn as they are shown, and what their marks replace; None: what is
            hidden is gone.
    """

    def __init__(
        self, redactor: Redactor, on_hidden: Callable[[str, Sequence[HiddenPart]], None] | None = None
    ) -> None:
        self._redactor = redactor
        self._on_hidden = on_hidden
        self._kinds = redactor.settings.redact
        self._said: list[tuple[SaidPart, str]] = []
        self._carry, self._carried_ms = "", 0

    @property
    def is_empty(self) -> bool:
        """True when no final words wait for the end of their turn."""
        return not self._said

    def partial(self, text: str, words: Sequence[WordTime], at_ms: int) -> LiveWords:
        """Return how the words of an utterance so far are shown."""
        return self._live(text, words, at_ms, is_final=False)

    def preview(self, text: str, words: Sequence[WordTime], at_ms: int) -> LiveWords:
        """Return how final words would be shown."""
        return self._live(text, words, at_ms, is_final=True)

    def final(self, said: SaidPart, at_ms: int) -> LiveWords:
        """Add final words to the turn and return how they are shown meanwhile."""
        live = self._live(said.text, said.words, at_ms, is_final=True)
        self._said = [*self._said, (said, live.text)][-MOST_FINALS:]
        return live

    def typed(self, text: str, at_ms: int) -> str:
        """Return the words of a turn that is whole: typed text, or keys."""
        before = self._carried(at_ms)
        found = self._whole(f"{before}{text}", len(before))
        self._remember(f"{before}{text}", len(before), at_ms)
        return self._hide(text, _within(found, len(before), len(before) + len(text)))

    def settle(self, shown: str, at_ms: int) -> str:
        """Return the words of a turn that is over; its parts are forgotten.

        Args:
            shown: the words as they were shown, joined by spaces.
            at_ms: now.
        """
        wanted = " ".join(shown.split())
        for first in range(len(self._said)):
            for last in range(len(self._said), first, -1):
                parts = self._said[first:last]
                if " ".join(" ".join(live.split()) for _, live in parts) == wanted:
                    text, found, before = self._judged(at_ms)
                    start = before + sum(len(part.text) + 1 for part, _ in self._said[:first])
                    end = start + sum(len(part.text) + 1 for part, _ in parts) - 1
                    # Later words are judged with their own turn.
                    self._remember(text[:end], before, at_ms)
                    self._said = self._said[last:]
                    return self._hide(text[start:end], _within(found, start, end))
        return shown

    def _hide(self, text: str, found: Sequence[Found]) -> str:
        shown = _masked(text, found)
        if found and self._on_hidden is not None:
            self._on_hidden(shown, hidden_parts(text, found))
        return shown

    def forget(self, at_ms: int) -> None:
        """Forget the parts so far: they belong to no turn. Digits at their end are remembered."""
        if self._said:
            text, _, carried = self._judged(at_ms)
            self._remember(text, carried, at_ms)
        self._said = []

    def stretches(self, at_ms: int) -> list[Stretch]:
        """Return where the words that are hidden so far were spoken."""
        text, found, start = self._judged(at_ms)
        stretches = []
        # Nothing may follow these words: what might have gone on at their end is hidden too.
        hidden = without_overlaps([*found, *self._pending(text, is_final=True)])
        for part, _ in self._said:
            inner = _within(hidden, start, start + len(part.text))
            if self._may_lack_digits(part):
                stretches.append(Stretch(part.began_ms, part.ended_ms))
            else:
                stretches += [_stretch(part, each) for each in inner]
            start += len(part.text) + 1
        return stretches

    def _may_lack_digits(self, part: SaidPart) -> bool:
        length_ms = part.ended_ms - part.began_ms
        is_long = length_ms >= LEAST_LONG_MS
        is_sparse = len(part.text.split()) * 1_000 < length_ms * FEW_WORDS_S
        has_digits = is_long and is_sparse and bool(self._redactor.rules.runs(part.text))
        return has_digits and not _NUMBERS.isdisjoint(self._kinds)

    def _judged(self, at_ms: int) -> tuple[str, list[Found], int]:
        """Return the turn so far, what is hidden in it, and the length of what was carried into it."""
        before = self._carried(at_ms)
        text = before + " ".join(part.text for part, _ in self._said)
        return text, self._whole(text, len(before)), len(before)

    def _live(self, text: str, words: Sequence[WordTime], at_ms: int, *, is_final: bool) -> LiveWords:
        said = " ".join(part.text for part, _ in self._said).split(" ")[-MOST_CONTEXT:]
        before = self._carried(at_ms) + (f"{' '.join(said)} " if self._said else "")
        whole = before + text
        found = self._whole(whole, len(self._carried(at_ms)))
        hidden = without_overlaps([*found, *self._pending(whole, is_final=is_final)])
        inner = _within(hidden, len(before), len(whole))
        exact = {(each.start, each.end) for each in _within(found, len(before), len(whole))}
        marked = [(each, MARKS[each.kind] if (each.start, each.end) in exact else PENDING) for each in inner]
        return LiveWords(_replaced(text, marked), _words_of(text, words, marked), bool(inner))

    def _whole(self, text: str, carried: int) -> list[Found]:
        """Return what is hidden in a text whose turn is over; its first characters were carried into it."""
        found = self._redactor.found(text, self._kinds)
        if not _NUMBERS.isdisjoint(self._kinds):
            for run in self._redactor.rules.runs(text):
                goes_on = run.start < carried < run.end and len(run.digits) > MOST_CARRIED
                if goes_on or self._may_go_on(run, text):
                    found.append(Found(PersonalData.DIGITS, run.start, run.end))
        return without_overlaps(found)

    def _may_go_on(self, run: DigitRun, text: str) -> bool:
        """Return whether a number at the end of a turn is most of a card's."""
        return (
            PersonalData.PAYMENT_CARD in self._kinds
            and len(run.digits) > MOST_CARRIED
            and may_begin_card(run.digits)
            and not any(each.isalnum() for each in text[run.end :])
        )

    def _pending(self, text: str, *, is_final: bool) -> list[Found]:
        """Return what may become personal data while the turn goes on."""
        found = []
        if not _NUMBERS.isdisjoint(self._kinds):
            for run in self._redactor.rules.runs(text):
                is_last = not any(each.isalnum() for each in text[run.end :])
                if len(run.digits) >= LEAST_PENDING and (is_last or not is_final):
                    found.append(Found(PersonalData.DIGITS, run.start, run.end))
        if PersonalData.EMAIL in self._kinds:
            start = self._redactor.rules.opens_email(text)
            if start is not None and not any(
                each.start >= start for each in self._redactor.found(text, (PersonalData.EMAIL,))
            ):
                found.append(Found(PersonalData.EMAIL, start, len(text)))
        return found

    def _carried(self, at_ms: int) -> str:
        """Return the digits at the end of the turn before, with a space; empty when it is long ago."""
        return self._carry if at_ms - self._carried_ms <= CARRY_MS else ""

    def _remember(self, text: str, carried: int, at_ms: int) -> None:
        """Keep the digits at the end of a text; its first characters were carried into it."""
        runs = self._redactor.rules.runs(text)
        last = runs[-1] if runs else None
        if carried and last is not None and last.end <= carried:
            # Words without a number ("yes") come between two parts of one.
            return
        is_last = last is not None and not any(each.isalnum() for each in text[last.end :])
        self._carry = f"{text[last.start :].rstrip(' .,!?')} " if last is not None and is_last else ""
        self._carried_ms = at_ms


def _within(found: Sequence[Found], start: int, end: int) -> list[Found]:
    """Return what lies in a part of a text, by the characters of that part."""
    return [
        replace(each, start=max(each.start, start) - start, end=min(each.end, end) - start)
        for each in found
        if each.start < end and each.end > start
    ]


def _masked(text: str, found: Sequence[Found]) -> str:
    return _replaced(text, [(each, MARKS[each.kind]) for each in found])


def _replaced(text: str, marked: Sequence[tuple[Found, str]]) -> str:
    pieces, at = [], 0
    for each, mark in marked:
        pieces += [text[at : each.start], mark]
        at = each.end
    return "".join([*pieces, text[at:]])


def _places(text: str) -> list[tuple[int, int]]:
    """Return the characters of each word of a text."""
    places, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        places.append((start, at))
    return places


def _words_of(
    text: str, words: Sequence[WordTime], marked: Sequence[tuple[Found, str]]
) -> tuple[WordTime, ...]:
    """Return words with one mark in place of those that are hidden; none when they are not the text's."""
    places = _places(text)
    if len(places) != len(words):
        return () if marked else tuple(words)
    kept: list[WordTime] = []
    last: Found | None = None
    for (start, end), word in zip(places, words, strict=True):
        over = next(((each, mark) for each, mark in marked if each.start < end and each.end > start), None)
        if over is None:
            kept.append(word)
        elif over[0] is last:
            before = kept.pop()
            lower = min(before.confidence, word.confidence)
            kept.append(replace(before, end_ms=word.end_ms, confidence=lower))
        else:
            kept.append(replace(word, text=over[1]))
        last = None if over is None else over[0]
    return tuple(kept)


def _stretch(part: SaidPart, hidden: Found) -> Stretch:
    """Return when hidden words were spoken; all of the utterance where their times are not known."""
    places = _places(part.text)
    if len(places) != len(part.words) or any(word.estimated for word in part.words):
        return Stretch(part.began_ms, part.ended_ms)
    over = [
        word
        for (start, end), word in zip(places, part.words, strict=True)
        if hidden.start < end and hidden.end > start
    ]
    if not over:
        return Stretch(part.began_ms, part.ended_ms)
    return Stretch(part.began_ms + over[0].start_ms, part.began_ms + over[-1].end_ms)
