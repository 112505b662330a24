"""Personal data in English words, written and spoken: "four double one", "anna at example dot com".

Numbers are read as people dictate them: digits, pairs ("forty two"), "double" and "triple", groups with
pauses and small words in between. Amounts, years, dates, times and versions are no such numbers. A telephone
number without a cue ("call", "my number") is one only in a form that other numbers do not have. Pure.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from parley.core.privacy import PersonalData
from parley.language.english.spoken_digits import HOMOPHONES, ONES, SCALES, TEENS, TENS, TIMES
from parley.language.personal_data import DigitRun, Found, has_card, may_begin_card, written_emails

# Between the groups of one number, this many at most.
_FILLERS = frozenset("um uh er erm hmm dash hyphen space then and next okay so".split())
_MOST_FILLERS = 2
_UNITS = frozenset(
    "dollar dollars cent cents euro euros pound pounds pence percent degrees people points minutes hours "
    "days weeks months years km kg cm miles feet".split()
)
_OUTER = "\"'“”‘’*_`~()[]{}<>|?!.:;,"
# Digits within other characters: "card:4242424242424242", "4242–4242". Dashes of every length join them.
_DASHES = "\u2010-\u2015\u2212-"
_WRITTEN = re.compile(rf"(?<!\d)\+?\d+(?:(?:[\s{_DASHES}]{{1,3}}|\.)\d+)*")
_BRACKETED = re.compile(rf"(?<=\()\d{{3}}\)\s?\d{{3}}[\s.{_DASHES}]?\d{{4}}(?!\d)")
# Before digits that belong to an amount, a time or a fraction.
_PART_OF_MORE = re.compile(r"[$€£]|\d[.:,/]")
_DECIMAL = re.compile(r"\d+\.\d+")
_GROUP = re.compile(r"\d+(?:[-/.,]\d+)*")
_AMOUNT = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d{1,2}|\d+:\d\d.*")
_DATE = re.compile(r"(?:1[89]|20)\d\d[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.](?:1[89]|20)?\d\d")
_DOTTED = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}(?:\.\d{1,3})?")
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_LOCAL_PHONE = re.compile(r"\d{3}[-.]\d{4}")
_PHONE_CUES = frozenset(
    "phone telephone mobile cell cellphone fax call calls reach text dial ring line hotline whatsapp "
    "landline contact number".split()
)
# The number of something else.
_OTHER_CUES = frozenset(
    "account order reference ref booking confirmation case ticket tracking invoice serial policy passport "
    "customer member membership card social security routing licence license claim iban pin code zip".split()
)
_CUE_WORDS = 8
_CARD_CUES = frozenset("card visa mastercard amex credit debit maestro discover".split())
# Between the number of a card and what belongs to it.
_CARD_TAIL = frozenset(
    "expiry expires expiring expiration exp date code cvv cvc cvv2 security valid until thru through on the "
    "is and in slash of with it three digit good january february march april may june july august september "
    "october november december".split()
)
_MOST_TAIL = 5
_TLDS = "|".join(
    "com org net edu gov io co uk us de fr nl eu info biz ie au ca ch at es it se no dk fi pl in nz app dev "
    "me".split()
)
_JOINTS = frozenset("dot underscore dash hyphen plus point".split())
# Before an e-mail address, and no part of one.
_NO_LOCAL = frozenset(
    "is it's its that's it email e-mail mail address to me my the a an and or so okay um uh yes yeah sure us "
    "him her them you use write send contact reach at was be look arrived visit find see go available here "
    "please online site website page pages that this are we i can".split()
)
_NO_DOMAIN = frozenset("the a an this that my your our his her all any least last first home noon".split())
_MOST_LOCAL, _MOST_DOMAIN = 4, 4
# With joints and single letters; and after the number of a card.
_MOST_LOCAL_WORDS, _MOST_CARD_WORDS = 12, 24
_EMAIL_CUE = re.compile(
    r"\b(?:e-?mail|mail me|write to|e mail)\b(?:\s+(?:address|is|it's|to|at|me|us)\b)*", re.I
)
_MOST_OPEN_WORDS = 14


@dataclass(frozen=True, slots=True)
class _Word:
    """Word of a text: as written, without its outer marks in lower case, and its place."""

    raw: str
    core: str
    start: int
    end: int


def runs(text: str) -> Sequence[DigitRun]:
    """Return the numbers that are read out digit by digit."""
    return _Runs(_words(text)).read()


def find(text: str, kinds: Collection[PersonalData], least_digits: int) -> Sequence[Found]:
    """Return the personal data of these kinds."""
    words = _words(text)
    found: list[Found] = []
    if PersonalData.EMAIL in kinds:
        found += [*written_emails(text), *_spoken_emails(words)]
    for run in _Runs(words).read():
        kind = _kind_of(run, words, least_digits, kinds)
        if kind is PersonalData.PAYMENT_CARD:
            found.append(Found(kind, run.start, _card_end(run, words)))
        elif kind is not None:
            found.append(Found(kind, run.start, run.end))
    return [*found, *_glued(text, words, least_digits, kinds)]


def opens_email(text: str) -> int | None:
    """Return the place after the last cue of an address, unless too much follows it."""
    cues = list(_EMAIL_CUE.finditer(text))
    if not cues or not text[cues[-1].end() :].strip():
        return None
    at = cues[-1].end()
    return at + 1 if len(text[at:].split()) <= _MOST_OPEN_WORDS else None


def _words(text: str) -> list[_Word]:
    return [
        _Word(each[0], each[0].strip(_OUTER).lower(), *each.span()) for each in re.finditer(r"[^\s]+", text)
    ]


class _Runs:
    """Reader of digit runs from words."""

    def __init__(self, words: Sequence[_Word]) -> None:
        self._words = words
        self._found: list[DigitRun] = []
        self._groups: list[str] = []
        self._first = self._last = 0
        self._is_international = False

    def read(self) -> list[DigitRun]:
        at = 0
        while at < len(self._words):
            digits, taken = self._group(at)
            if digits is None:
                at += self._pass(at)
                continue
            if not self._groups:
                self._first = at
                before = self._words[at - 1].core if at else ""
                self._is_international = before == "plus" or self._words[at].raw.lstrip("([").startswith("+")
                if before == "plus":
                    self._first = at - 1
            self._groups.append(digits)
            at += taken
            self._last = at - 1
        self._close()
        return self._found

    def _pass(self, at: int) -> int:
        """Take a word without digits; a few small ones do not end a run."""
        word = self._words[at]
        if self._groups:
            gap = [each.core for each in self._words[self._last + 1 : at + 1]]
            if word.core in SCALES or (word.core in _UNITS and at == self._last + 1):
                # An amount: the last group belongs to it, or all of them.
                self._groups = []
            elif len(gap) > _MOST_FILLERS or any(each and each not in _FILLERS for each in gap):
                self._close()
        return 1

    def _close(self) -> None:
        groups = tuple(self._groups)
        self._groups = []
        if groups and not (len(groups) > 1 and all(_YEAR.fullmatch(each) for each in groups)):
            start, end = self._words[self._first], self._words[self._last]
            self._found.append(DigitRun(groups, _inner_start(start), _inner_end(end), self._is_international))

    def _group(self, at: int) -> tuple[str | None, int]:
        """Return the digits of the word at a place, and the number of words that they span."""
        word = self._words[at].core
        following = self._words[at + 1].core if at + 1 < len(self._words) else ""
        if word in TIMES and following in ONES:
            return ONES[following] * TIMES[word], 2
        if following == "hundred" and word in ONES and self._digits_at(at + 2):
            # "One eight hundred": the code of a free call.
            return ONES[word] + "00", 2
        if word in TENS and following in ONES and ONES[following] != "0":
            return TENS[word] + ONES[following], 2
        if word in HOMOPHONES:
            between = self._groups and self._last == at - 1 and following in ONES
            return (HOMOPHONES[word], 1) if between and self._words[at - 1].core in ONES else (None, 1)
        return self._digits_at(at), 1

    def _digits_at(self, at: int) -> str | None:
        if at >= len(self._words):
            return None
        raw, word = self._words[at].raw, self._words[at].core
        if word in ONES or word in TEENS:
            return ONES.get(word) or TEENS[word]
        if word in TENS:
            return f"{TENS[word]}0"
        if "-" in word and all(part in ONES or part in TENS for part in word.split("-")):
            return _hyphenated(word.split("-"))
        bare = word.lstrip("+#")
        if not _GROUP.fullmatch(bare) or re.match(r"[(\"']*[$€£]", raw):
            return None
        if _AMOUNT.fullmatch(bare) or _DATE.fullmatch(bare) or _DOTTED.fullmatch(bare):
            return None
        return re.sub(r"\D", "", bare)


def _hyphenated(parts: Sequence[str]) -> str:
    if len(parts) == 2 and parts[0] in TENS and parts[1] in ONES:
        return TENS[parts[0]] + ONES[parts[1]]
    return "".join(ONES.get(part) or f"{TENS[part]}0" for part in parts)


def _inner_start(word: _Word) -> int:
    return word.start + len(word.raw) - len(word.raw.lstrip(_OUTER))


def _inner_end(word: _Word) -> int:
    return word.end - (len(word.raw) - len(word.raw.rstrip(_OUTER)))


def _kind_of(
    run: DigitRun, words: Sequence[_Word], least_digits: int, kinds: Collection[PersonalData]
) -> PersonalData | None:
    """Return the first of these kinds that a number is; None for none."""
    count = len(run.digits)
    if count < 4:
        return None
    first = _words_before(run, words)
    before = [word.core for word in words[max(0, first - _CUE_WORDS) : first]]
    if PersonalData.PAYMENT_CARD in kinds:
        # A digit that was misheard breaks the check; the words around it do not.
        is_announced = not _CARD_CUES.isdisjoint(before) and count >= 12 and may_begin_card(run.digits)
        if has_card(run.groups) or is_announced:
            return PersonalData.PAYMENT_CARD
    if PersonalData.PHONE_NUMBER in kinds and _is_phone(run, words, before):
        return PersonalData.PHONE_NUMBER
    if PersonalData.DIGITS in kinds and count >= least_digits:
        return PersonalData.DIGITS
    return None


def _is_phone(run: DigitRun, words: Sequence[_Word], before: Sequence[str]) -> bool:
    count = len(run.digits)
    if not 7 <= count <= 15:
        return False
    if run.is_international:
        return count >= 8
    if not _OTHER_CUES.isdisjoint(before):
        return False
    first, last = _words_before(run, words), _word_after(run, words)
    after = [word.core for word in words[last : last + _CUE_WORDS]]
    if not _PHONE_CUES.isdisjoint([*before, *after]):
        return count <= 13
    if count == 7:
        return last - first == 1 and _LOCAL_PHONE.fullmatch(words[first].core) is not None
    return (count == 10 and run.digits[0] not in "01") or (count in (10, 11) and run.digits[0] in "01")


def _glued(
    text: str, words: Sequence[_Word], least_digits: int, kinds: Collection[PersonalData]
) -> list[Found]:
    """Return numbers in digits that are not words of their own."""
    found = []
    if PersonalData.PHONE_NUMBER in kinds:
        found += [Found(PersonalData.PHONE_NUMBER, *each.span()) for each in _BRACKETED.finditer(text)]
    for each in _WRITTEN.finditer(text):
        run = _written_run(each[0], each.start())
        first, last = bisect_right(words, run.start, key=lambda word: word.end), _word_after(run, words)
        if all(_GROUP.fullmatch(word.core.lstrip("+#")) for word in words[first:last]):
            continue
        if PersonalData.PAYMENT_CARD in kinds and not _DECIMAL.fullmatch(each[0]) and has_card(run.groups):
            found.append(Found(PersonalData.PAYMENT_CARD, run.start, _card_end(run, words)))
        elif run.is_international and 8 <= len(run.digits) <= 15 and PersonalData.PHONE_NUMBER in kinds:
            found.append(Found(PersonalData.PHONE_NUMBER, run.start, run.end))
        elif PersonalData.DIGITS in kinds and not _goes_before(text, run.start):
            parts = [_written_run(part[0], run.start + part.start()) for part in re.finditer(r"\S+", each[0])]
            found += [
                Found(PersonalData.DIGITS, part.start, part.end)
                for part in parts
                if len(part.digits) >= least_digits and not _is_measure(text[part.start : part.end], part)
            ]
    return found


def _written_run(written: str, start: int) -> DigitRun:
    groups = tuple(re.findall(r"\d+", written))
    return DigitRun(groups, start, start + len(written), written.startswith("+"))


def _goes_before(text: str, start: int) -> bool:
    return _PART_OF_MORE.search(text[max(0, start - 2) : start]) is not None


def _is_measure(written: str, run: DigitRun) -> bool:
    """Return whether digits are an amount, a date, an address of a network, or years."""
    forms = (_DECIMAL, _DATE, _DOTTED)
    are_years = len(run.groups) > 1 and all(_YEAR.fullmatch(group) for group in run.groups)
    return are_years or any(form.fullmatch(written) for form in forms)


def _words_before(run: DigitRun, words: Sequence[_Word]) -> int:
    """Return the number of words that end before a run."""
    return bisect_right(words, run.start, key=lambda word: word.end)


def _word_after(run: DigitRun, words: Sequence[_Word]) -> int:
    """Return the place of the first word that begins after a run."""
    return bisect_left(words, run.end, key=lambda word: word.start)


def _card_end(run: DigitRun, words: Sequence[_Word]) -> int:
    """Return the end of a card's number with its date and its code."""
    end, gap = run.end, 0
    first = _word_after(run, words)
    for each in words[first : first + _MOST_CARD_WORDS]:
        if re.search(r"\d", each.core) or each.core in ONES or each.core in TENS or each.core in TEENS:
            end, gap = _inner_end(each), 0
        elif each.core and each.core not in _CARD_TAIL | _FILLERS:
            break
        else:
            gap += 1
        if gap > _MOST_TAIL:
            break
    return end


def _spoken_emails(words: Sequence[_Word]) -> list[Found]:
    """Return the addresses that are said: "anna at example dot com", and "anna at example.com"."""
    found = []
    for at, word in enumerate(words):
        if word.core != "at" or at == 0:
            continue
        last = _domain_end(words, at)
        first = None if last is None else _local_start(words, at)
        if last is not None and first is not None:
            found.append(Found(PersonalData.EMAIL, _inner_start(words[first]), _inner_end(words[last])))
    return found


def _domain_end(words: Sequence[_Word], at: int) -> int | None:
    """Return the last word of the domain after an "at"."""
    most = min(len(words), at + 1 + 2 * _MOST_DOMAIN)
    for place in range(at + 1, most):
        core = words[place].core
        if core in _NO_DOMAIN:
            return None
        if re.fullmatch(rf"[\w-]+(?:\.[\w-]+)*\.(?:{_TLDS})", core):
            return place
        if core == "dot" and place > at + 1 and place + 1 < len(words) and _is_tld(words[place + 1].core):
            last = place + 1
            while last + 2 < most and words[last + 1].core == "dot" and _is_tld(words[last + 2].core):
                last += 2
            return last
    return None


def _is_tld(core: str) -> bool:
    return re.fullmatch(_TLDS, core) is not None


def _local_start(words: Sequence[_Word], at: int) -> int | None:
    """Return the first word of the name before an "at"; None where there is none."""
    first, plain = None, 0
    for place in range(at - 1, max(-1, at - 1 - _MOST_LOCAL_WORDS), -1):
        core = words[place].core
        is_joint = core in _JOINTS or (place + 1 < len(words) and words[place + 1].core in _JOINTS)
        is_letter = len(core) == 1 and core.isalnum()
        if (
            core in _NO_LOCAL and not is_joint and not (is_letter and core != "i" and place != at - 1)
        ) or not core:
            break
        if place < at - 1 and words[place].raw.rstrip("\"'”’")[-1:] in ".?!":
            break
        if not is_joint and not is_letter and core not in ONES:
            plain += 1
            if plain > _MOST_LOCAL:
                break
        first = place
    return first
