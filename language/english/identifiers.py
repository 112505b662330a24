"""Detection of identifiers among the numbers of a text (account, card, telephone), read digit by digit.

"Your code is 4172" is "four one seven two"; "4172 people" are four thousand and more. The words around the
number decide: a word that announces an identifier ("code", "account number", "ending in"), with only small
words in between. So does its form: a telephone number, groups of digits, or more digits than people say as
one number. A count of something ("12500 customers", "up to 25000") stays a number. So do years, prices and
other numbers with a mark of their own, which ``text_normalization`` handles. Takes text, returns
groups of characters; pure.
"""

import re
from collections.abc import Sequence

from parley.language.english.spoken_digits import digit_groups

# Words directly before an identifier, or before it with only ``_LINKS`` in between.
_CUES = frozenset(
    "number numbers code codes pin passcode otp account card digits extension ext reference ref id "
    "identifier serial passport licence license policy claim membership tracking confirmation booking order "
    "ticket invoice case zip postcode routing iban flight phone telephone fax mobile cell hotline dial "
    "call".split()
)
# Cues that are verbs as well: "order 1500 cards", "call 2000 people".
_VERBS = frozenset("order ticket invoice claim call dial phone fax".split())
# Cues only with their full stop: without it "no" and "4172" may meet by chance.
_SHORT_CUES = frozenset(("no.", "ext.", "ref."))
_LINKS = frozenset(
    "is was be are it's the your my our its his her their new old last four ending at on us me called reads "
    "please now again".split()
)
# "ending in 4172", and not "an account in 1984"; a year counts only when another cue announces it.
_ENDING = frozenset("ending ends end ended finishing finishes".split())
_MOST_LINKS = 5
# Units that follow a count.
_UNITS = frozenset(
    "dollar dollars cent cents euro euros pound pounds pence yen francs usd eur gbp chf percent people "
    "persons thousand million billion hundred times km kg cm mm miles meters metres feet bytes".split()
)
# Words that end in an s and are no plural.
_NO_PLURALS = frozenset(
    "is was has does as its his this us yes ends expires works belongs starts gets remains needs appears "
    "shows plus versus vs unless always perhaps thanks stays means goes begins comes says uses matches "
    "lets makes takes gives".split()
)
_AMOUNTS = frozenset(
    "about around over under almost nearly approximately roughly than least most up limit total balance "
    "amount sum price cost costs fee salary budget population maximum minimum worth pay paid "
    "usd eur gbp chf".split()
)
_AMOUNT_LINKS = frozenset("of to is was a the by at".split())

_YEAR = re.compile(r"(?:1[1-9]|20)\d\d")
_OUTER = "\"'“”‘’*_`~()[]{}<>|?!.:;,"
_STOPS = ".?!;"
_PLAIN_DIGITS = re.compile(r"\d+")
_DASHED = re.compile(r"\+?\d+(?:-\d+)+")
_INTERNATIONAL = re.compile(r"\+\d{6,}")
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")
_LOCAL_PHONE = re.compile(r"\d{3}-\d{4}")
_AREA = re.compile(r"\(\d{3}\)")
_GROUP = re.compile(r"\+?\d{1,6}")
_HASH = re.compile(r"#(\d{4,})")
# Letters and digits in one: "AB-20931", "X7K29Q".
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*\d)[A-Z0-9]+(?:-[A-Z0-9]+)*")
_LEAST_DIGITS = 4
# People say 10500 as a number when it is one; without a hint, five digits in a row are an identifier.
_LONG = 5
_LEAST_MIXED = 4
# "pages 5-10" is a range whatever the words before it.
_LEAST_IN_PART = 3
# Least digits of neighbouring groups together: a short telephone number.
_LEAST_GROUPED = 7


def identifier_groups(written: Sequence[str]) -> list[tuple[str, ...] | None]:
    """Return, for each word of a text, its characters in the groups in which they are read out, or None.

    A group holds digits and capitals only. The words are those between white space, in order.
    """
    cores = [_core(word) for word in written]
    in_run = _in_runs(written, cores)
    return [_groups(written, cores, at, in_run=in_run[at]) for at in range(len(written))]


def _core(word: str) -> str:
    return word.strip(_OUTER).rstrip("-")


def _groups(written: Sequence[str], cores: Sequence[str], at: int, *, in_run: bool) -> tuple[str, ...] | None:
    core = cores[at]
    if in_run:
        return (core.lstrip("+"),)
    if match := _HASH.fullmatch(core):
        return digit_groups(match[1])
    if _PLAIN_DIGITS.fullmatch(core):
        return digit_groups(core) if _is_name(written, cores, at) else None
    if _INTERNATIONAL.fullmatch(core):
        return digit_groups(core[1:])
    if _DASHED.fullmatch(core):
        return _dashed(written, cores, at)
    long = len(core.replace("-", "")) >= _LEAST_MIXED
    if long and _MIXED.fullmatch(core) and _announced(written, cores, at):
        return tuple(core.split("-"))
    return None


def _is_name(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether plain digits are an identifier."""
    core = cores[at]
    if len(core) >= 3 and core[0] == "0":
        return True
    if len(core) < _LEAST_DIGITS:
        return False
    if _announced(written, cores, at):
        return True
    return len(core) >= _LONG and not _counts(written, cores, at) and not _amount(written, cores, at)


def _dashed(written: Sequence[str], cores: Sequence[str], at: int) -> tuple[str, ...] | None:
    core = cores[at]
    match = _RANGE.fullmatch(core)
    if match and int(match[1]) < int(match[2]):
        long = min(len(match[1]), len(match[2])) >= _LEAST_IN_PART
        if not (long and _announced(written, cores, at)) and not _is_local_phone(written, cores, at):
            return None
    return tuple(core.lstrip("+").split("-"))


def _is_local_phone(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether three digits, a dash and four are a telephone number, unlike "800-1200 dollars"."""
    if not _LOCAL_PHONE.fullmatch(cores[at]):
        return False
    area_before = at > 0 and _AREA.fullmatch(written[at - 1]) is not None
    return cores[at].startswith("555") or area_before


def _announced(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether a word before it announces an identifier."""
    if _unit_after(written, cores, at):
        return False
    for back in range(1, _MOST_LINKS + 2):
        here = at - back
        if here < 0:
            return False
        word = cores[here].lower()
        before = cores[here - 1].lower() if here else ""
        if written[here].lower() in _SHORT_CUES:
            return True
        if written[here][-1] in _STOPS:
            return False
        if word in _CUES:
            return not (word in _VERBS and back == 1 and _counts(written, cores, at))
        ends = word in ("in", "with") and before in _ENDING
        if ends and not _YEAR.fullmatch(cores[at]):
            return True
        # A dash has no core; other groups of the same identifier may also be in between.
        part = not word or _GROUP.fullmatch(word) or _MIXED.fullmatch(cores[here])
        if not (part or ends or word in _LINKS):
            return False
    return False


def _after(written: Sequence[str], cores: Sequence[str], at: int) -> str:
    """Return the next word, if no punctuation separates it from the number."""
    if at + 1 >= len(written) or written[at][-1] in _OUTER:
        return ""
    return cores[at + 1]


def _unit_after(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    return _after(written, cores, at).lower() in _UNITS


def _counts(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether the number counts the next word."""
    after = _after(written, cores, at)
    if after.lower() in _UNITS:
        return True
    return after.isalpha() and after.islower() and after.endswith("s") and after not in _NO_PLURALS


def _amount(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether a word before it announces an amount."""
    for here in range(at - 1, max(-1, at - 4), -1):
        word = cores[here].lower()
        if word in _AMOUNTS:
            return True
        if word not in _AMOUNT_LINKS:
            return False
    return False


def _in_runs(written: Sequence[str], cores: Sequence[str]) -> list[bool]:
    """Return a flag for each word: a group of one number written with spaces ("4111 1111 1111 1111")."""
    found = [False] * len(written)
    start = 0
    for end in range(1, len(written) + 1):
        if end < len(written) and _joined(written, cores, end - 1):
            continue
        if _is_one_number(written, cores, start, end):
            found[start:end] = [_GROUP.fullmatch(core) is not None for core in cores[start:end]]
        start = end
    return found


def _joined(written: Sequence[str], cores: Sequence[str], at: int) -> bool:
    """Return whether two neighbours may be groups of one number."""
    left = _GROUP.fullmatch(cores[at]) and (written[at][-1].isdigit() or _AREA.fullmatch(written[at]))
    return bool(left) and (
        _GROUP.fullmatch(cores[at + 1]) is not None or _LOCAL_PHONE.fullmatch(cores[at + 1]) is not None
    )


def _is_one_number(written: Sequence[str], cores: Sequence[str], start: int, end: int) -> bool:
    groups = cores[start:end]
    if len(groups) < 2 or sum(c.isdigit() for group in groups for c in group) < _LEAST_GROUPED:
        return False
    if _counts(written, cores, end - 1):
        return False
    if _AREA.fullmatch(written[start]) or groups[0].startswith("+"):
        return True
    if _announced(written, cores, start):
        return True
    return len(groups) >= 3 and max(map(len, groups)) >= 3
