"""Personal data in words: payment cards, telephone numbers, e-mail addresses, long numbers, given names.

``PersonalDataRules`` find it in a text of one language; ``WrittenPersonalData`` finds what is written the
same in every language. ``Redactor`` is the one place that decides what words are after redaction; a call, a
session and a typed turn all ask it. Pure.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from parley.core.privacy import PersonalData, PrivacySettings

# Shown in place of the words; one word each, so that words and their times stay in step.
MARKS = {
    PersonalData.PAYMENT_CARD: "[card]",
    PersonalData.PHONE_NUMBER: "[phone]",
    PersonalData.EMAIL: "[e-mail]",
    PersonalData.DIGITS: "[number]",
    PersonalData.NAME: "[name]",
}
# Words that may yet become personal data, while their turn goes on.
PENDING = "[...]"
# The bound of the name (RFC 5321, 4.5.3.1.1) keeps the search linear in words without an @.
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
# The lengths of a card's number, by its first digits (ISO/IEC 7812; the brands' own ranges).
_CARDS = (
    ("4", (13, 16, 19)),
    ("34", (15,)),
    ("37", (15,)),
    ("36", (14,)),
    ("38", (14,)),
    ("30", (14,)),
    ("35", (16,)),
    ("5", (16,)),
    ("2", (16,)),
    ("6", (16, 19)),
)


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data in a text.

    Attributes:
        kind: its kind.
        start, end: characters of the text.
    """

    kind: PersonalData
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DigitRun:
    """Digits in a row, as they are written or spoken, with the small words between them.

    Attributes:
        groups: digits of each word.
        start, end: characters of the text.
        is_international: a plus sign precedes them.
    """

    groups: tuple[str, ...]
    start: int
    end: int
    is_international: bool = False

    @property
    def digits(self) -> str:
        """All digits."""
        return "".join(self.groups)


@dataclass(frozen=True, slots=True)
class HiddenPart:
    """Words that a mark replaces.

    Attributes:
        kind: kind of personal data.
        words: the words.
    """

    kind: PersonalData
    words: str


class PersonalDataRules(Protocol):
    """Rules of one language. Linear in the length of a text."""

    def runs(self, text: str, /) -> Sequence[DigitRun]:
        """Return the numbers that are read out digit by digit, in their order; no amounts, dates or times."""
        ...

    def find(self, text: str, kinds: Collection[PersonalData], least_digits: int, /) -> Sequence[Found]:
        """Return the personal data of these kinds, apart from names; parts may overlap."""
        ...

    def opens_email(self, text: str, /) -> int | None:
        """Return where an e-mail address may have begun that the end of the text cuts off; None for none."""
        ...


class WrittenPersonalData:
    """Rules of a language that has none: what is written in digits, and with an @."""

    def runs(self, text: str, /) -> Sequence[DigitRun]:
        """Return the numbers in digits; groups may be apart by spaces and marks."""
        found = re.finditer(r"\+?\d+(?:[ ().,-]{1,2}\d+)*", text)
        return [
            DigitRun(tuple(re.findall(r"\d+", each[0])), *each.span(), each[0].startswith("+"))
            for each in found
        ]

    def find(self, text: str, kinds: Collection[PersonalData], least_digits: int, /) -> Sequence[Found]:
        """Return cards, international telephone numbers, long numbers and e-mail addresses."""
        found = [Found(PersonalData.EMAIL, *each.span()) for each in _EMAIL.finditer(text)]
        for run in self.runs(text):
            count = len(run.digits)
            if has_card(run.groups):
                found.append(Found(PersonalData.PAYMENT_CARD, run.start, run.end))
            if run.is_international and 8 <= count <= 15:
                found.append(Found(PersonalData.PHONE_NUMBER, run.start, run.end))
            if count >= least_digits:
                found.append(Found(PersonalData.DIGITS, run.start, run.end))
        return [each for each in found if each.kind in kinds]

    def opens_email(self, _text: str, /) -> int | None:
        """Return None: a written address is one word."""
        return None


def written_emails(text: str) -> list[Found]:
    """Return the e-mail addresses that are written with an @."""
    return [Found(PersonalData.EMAIL, *each.span()) for each in _EMAIL.finditer(text)]


def has_card(groups: Sequence[str]) -> bool:
    """Return whether neighbouring groups of digits are the number of a payment card (Luhn, ISO/IEC 7812)."""
    for first in range(len(groups)):
        digits = ""
        for group in groups[first:]:
            digits += group
            if len(digits) > 19:
                break
            if _is_card(digits):
                return True
    return False


def may_begin_card(digits: str) -> bool:
    """Return whether the first digits are those of a card."""
    return any(digits.startswith(prefix) for prefix, _ in _CARDS)


def _is_card(digits: str) -> bool:
    if not any(digits.startswith(prefix) and len(digits) in lengths for prefix, lengths in _CARDS):
        return False
    doubled = (int(each) * 2 for each in digits[-2::-2])
    total = sum(int(each) for each in digits[::-2]) + sum(each - 9 if each > 9 else each for each in doubled)
    return total % 10 == 0


class Redactor:
    """Decision about the words of a deployment: what remains of a text for models, logs, stores and clients.

    Args:
        settings: of the deployment.
        rules: of the language that is spoken.
    """

    def __init__(self, settings: PrivacySettings, rules: PersonalDataRules) -> None:
        self.settings, self.rules = settings, rules
        self._names: re.Pattern[str] | None = None
        if settings.names:
            names = sorted((" ".join(name.split()) for name in settings.names), key=len, reverse=True)
            pattern = "|".join(re.escape(name).replace(r"\ ", r"\s+") for name in names)
            self._names = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)

    def of_caller(self, text: str) -> str:
        """Return the caller's words after redaction."""
        return self._hidden(text, self.settings.redact)

    def of_agent(self, text: str) -> str:
        """Return the agent's words after redaction."""
        return self._hidden(text, self.settings.of_agent)

    def _hidden(self, text: str, kinds: Collection[PersonalData]) -> str:
        """Return a text in which no more is found: what is redacted twice is as it was."""
        for _ in range(_MOST_ROUNDS):
            found = self.found(text, kinds)
            if not found:
                break
            text = masked(text, found)
        return text

    def parts(self, text: str) -> list[HiddenPart]:
        """Return what is hidden in the caller's words, in the order of their marks."""
        return hidden_parts(text, self.found(text, self.settings.redact))

    def found(self, text: str, kinds: Collection[PersonalData]) -> list[Found]:
        """Return the personal data of a whole text, without overlaps, in its order."""
        if not kinds:
            return []
        # A mark of before is no cue for what follows it: "[number] is" would hide any number.
        text = _MARK.sub(lambda mark: _BLANK * len(mark[0]), text)
        found = list(self.rules.find(text, kinds, self.settings.least_digits))
        if self._names is not None and PersonalData.NAME in kinds:
            found += [Found(PersonalData.NAME, *each.span()) for each in self._names.finditer(text)]
        return without_overlaps(found)


# A mark can bring words together that are found then, as it does in 7 of 100,000 random texts.
_MOST_ROUNDS = 4
_MARK = re.compile("|".join(re.escape(mark) for mark in (*MARKS.values(), PENDING)))
# In place of a character of a mark: no letter, no digit, and nothing that stands between those.
_BLANK = "\ufffc"


def without_overlaps(found: Sequence[Found]) -> list[Found]:
    """Return what covers the same characters in order; of overlapping parts the kind of the first rank."""
    order = list(PersonalData)
    kept: list[Found] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end)):
        if kept and each.start < kept[-1].end:
            before = kept.pop()
            kind = min(before.kind, each.kind, key=order.index)
            each = Found(kind, before.start, max(before.end, each.end))
        kept.append(each)
    return kept


def hidden_parts(text: str, found: Sequence[Found]) -> list[HiddenPart]:
    """Return the words that marks replace, in their order."""
    return [HiddenPart(each.kind, text[each.start : each.end]) for each in found]


def masked(text: str, found: Sequence[Found], *, mark: str | None = None) -> str:
    """Return a text with a mark in place of each part; parts do not overlap and are in order."""
    pieces, at = [], 0
    for each in found:
        pieces += [text[at : each.start], mark or MARKS[each.kind]]
        at = each.end
    return "".join([*pieces, text[at:]])
