"""Spoken form of written text: "$5 at 3 p.m." becomes "five dollars", "at", "three", "p m".

Decides how English text that a small synthesiser reads badly (symbols, money, years, addresses,
abbreviations) is spoken. For every spoken token it keeps the written word, so that word times can be reported
in the words of the text. Takes text, returns words; pure. Prosody stays with the engine.

Captions and the record keep the written form ("4172"). Only an engine's input has more words ("four one seven
two"), and the written word lasts from the first of them to the last. A third-party service gets the text as
it is written and reads it in its own way.
"""

import re
from itertools import accumulate

from parley.language.english.identifiers import identifier_groups
from parley.language.text_normalization import TYPOGRAPHIC, PronouncedWord, attach_silent, pause_of

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (10**2, "hundred"))
_LARGEST = 10**12

_ABBREVIATIONS = {
    "e.g.": "for example",
    "i.e.": "that is",
    "etc.": "et cetera",
    "etc": "et cetera",
    "vs.": "versus",
    "vs": "versus",
    "approx.": "approximately",
    "mr.": "mister",
    "mrs.": "missus",
    "ms.": "miz",
    "dr.": "doctor",
    "prof.": "professor",
    "jr.": "junior",
    "sr.": "senior",
    "inc.": "incorporated",
    "ltd.": "limited",
    "co.": "company",
    "dept.": "department",
    "ave.": "avenue",
    "a.m.": "A.M.",
    "p.m.": "P.M.",
    "jan.": "january",
    "feb.": "february",
    "aug.": "august",
    "sept.": "september",
    "oct.": "october",
    "nov.": "november",
    "dec.": "december",
    "w/": "with",
    "w/o": "without",
    "24/7": "twenty four seven",
    "and/or": "and or",
    "n/a": "not applicable",
    "&": "and",
    "+": "plus",
    "=": "equals",
    "@": "at",
    "%": "percent",
    "wi-fi": "why fie",
    "wifi": "why fie",
}
# Read letter by letter although they hold a vowel; capitals without a vowel are always spelled.
_SPELLED = frozenset(
    "AI API ATM CEO EU FAQ KYC IBAN ID IP IT OTP SIM UK UN URL US USA USB UX UI AM PM".split()
)
_CURRENCIES = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_MAGNITUDES = frozenset({"thousand", "million", "billion"})
_UNITS = {
    "km": "kilometers",
    "kg": "kilograms",
    "cm": "centimeters",
    "mm": "millimeters",
    "mph": "miles per hour",
    "gb": "gigabytes",
    "mb": "megabytes",
    "kb": "kilobytes",
    "khz": "kilohertz",
    "hz": "hertz",
    "ms": "milliseconds",
    "°c": "degrees celsius",
    "°f": "degrees fahrenheit",
}
_FRACTIONS = {
    "1/2": "a half",
    "1/3": "a third",
    "2/3": "two thirds",
    "1/4": "a quarter",
    "3/4": "three quarters",
}
_PUNCTUATION_NAMES = {
    ".": " dot ",
    "/": " slash ",
    "-": " dash ",
    "_": " underscore ",
    "@": " at ",
    "?": " ",
    "=": " equals ",
    "&": " and ",
    ":": " ",
}
_ADDRESS = re.compile(
    r"(?:https?://)?(?:www\.)?((?:[\w-]+\.)+(?:com|org|net|io|gov|edu|dev|ai|example|uk|eu))(/\S*)?", re.I
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_MONEY = re.compile(r"([$€£])(\d[\d,]*)(?:\.(\d+))?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(am|pm)?", re.I)
_HOUR = re.compile(r"(\d{1,2})(am|pm)", re.I)
_NUMBER = re.compile(r"(-?)(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?(%?)")
_UNIT_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(" + "|".join(_UNITS) + r")", re.I)
_YEAR = re.compile(r"(1[1-9]|20)(\d\d)(s?)")
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")
_SLASHED = re.compile(r"(\d+)/(\d+)(?:/(\d+))?")
_CAPITALS = re.compile(r"([A-Z]{2,6})('?s)?")
_TOKEN = re.compile(r"[^\W_](?:[\w']*[^\W_])?(?:\.[^\W\d_])*\.?", re.UNICODE)
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?\.?")


def number_words(value: int) -> str:
    """Return the cardinal in words: 1250 is "one thousand two hundred fifty".

    Raises:
        ValueError: negative, or a million millions and more.
    """
    if not 0 <= value < _LARGEST:
        raise ValueError("expected a number from 0 to 999,999,999,999")
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10] + (f" {_ONES[value % 10]}" if value % 10 else "")
    scale, name = next((scale, name) for scale, name in _SCALES if value >= scale)
    rest = value % scale
    return f"{number_words(value // scale)} {name}" + (f" {number_words(rest)}" if rest else "")


def spoken_words(text: str) -> tuple[PronouncedWord, ...]:
    """Return English text as words ready to pronounce, in order; the written parts join to the whole text.

    Empty when the text holds nothing to pronounce.
    """
    written = text.split()
    names = identifier_groups([word.translate(TYPOGRAPHIC) for word in written])
    said: list[PronouncedWord] = []
    for i, (word, groups) in enumerate(zip(written, names, strict=True)):
        following = names[i + 1] if i + 1 < len(names) else None
        if groups is None:
            said.append(_say(word, _neighbour(written, i - 1), _neighbour(written, i + 1)))
        else:
            # The groups of "4111 1111", which are separate words, have a pause in between as well.
            goes_on = following is not None and word[-1] in "0123456789)"
            said.append(_say_groups(word, groups, goes_on=goes_on))
    return attach_silent(said)


def _neighbour(words: list[str], index: int) -> str:
    return words[index] if 0 <= index < len(words) else ""


def _say_groups(written: str, groups: tuple[str, ...], *, goes_on: bool) -> PronouncedWord:
    """Return an identifier that is read character by character, with a pause between its groups."""
    word = written.translate(TYPOGRAPHIC)
    said = [_spell_out(group) for group in groups]
    if "#" in word:
        said[0] = ["number", *said[0]]
    tail = word[max(at for at, char in enumerate(word) if char.isalnum()) + 1 :]
    breaths = tuple(accumulate(len(tokens) for tokens in said[:-1]))
    spoken = tuple(token for tokens in said for token in tokens)
    return PronouncedWord(written, spoken, pause_of(tail) or ("," if goes_on else ""), breaths)


def _spell_out(group: str) -> list[str]:
    """Return digits as words, and adjacent capitals as one token that engines read letter by letter."""
    parts = re.findall(r"\d|[^\d]+", group)
    return [_ONES[int(part)] if part.isdigit() else _spell(part) for part in parts]


def _say(written: str, before: str, after: str) -> PronouncedWord:
    """Return the spoken form of one written word between its neighbours."""
    word = written.translate(TYPOGRAPHIC).strip('"*_`~()[]{}<>|')
    whole = word.lower()
    last = not after
    if whole in ("-", "--"):
        return PronouncedWord(written, (), ",")
    # "St." is the street after a name ("Main St.") unless a name follows ("St. Louis"); "No. 5" is a number.
    if whole == "st.":
        street = before[:1].isupper() and not after[:1].isupper()
        return PronouncedWord(written, ("street" if street else "saint",), "." if last else "")
    if whole == "no." and after[:1].isdigit():
        return PronouncedWord(written, ("number",))
    for form, pause in _forms(word):
        if (said := _ABBREVIATIONS.get(form.lower())) is not None:
            # The full stop of an abbreviation ends a sentence only where the text ends.
            ends = last and form.endswith(".")
            return PronouncedWord(written, tuple(said.split()), pause or ("." if ends else ""))
    core = word.rstrip("?!.:;,\"')]}*_`-")
    tail = word[len(core) :]
    pause = pause_of(tail)
    # "U.S." in the middle of a sentence has no full stop.
    if pause == "." and not last and _DOTTED.fullmatch(core + "."):
        pause = ""
    return PronouncedWord(written, tuple(_tokens(_say_core(core, before, after, tail))), pause)


def _forms(word: str) -> list[tuple[str, str]]:
    """Return a word unchanged and without its last mark, each with the pause that the mark implies."""
    forms = [(word, "")]
    if len(word) > 1 and word[-1] in "?!:;,.":
        forms.append((word[:-1], word[-1]))
    return forms


def _tokens(said: str) -> list[str]:
    return _TOKEN.findall(said)


def _say_core(core: str, before: str, after: str, tail: str) -> str:
    """Return the spoken form of one word without outer punctuation, as a string."""
    if _EMAIL.fullmatch(core) or _ADDRESS.fullmatch(core):
        return _say_address(core)
    if match := _MONEY.fullmatch(core):
        return _say_money(match, after)
    if core.lower() in _MAGNITUDES and (match := _MONEY.fullmatch(before)):
        return f"{core} {_CURRENCIES[match[1]][0]}s"
    if match := _CLOCK.fullmatch(core):
        return _say_clock(int(match[1]), int(match[2]), match[3])
    if match := _HOUR.fullmatch(core):
        return f"{_cardinal(match[1])} {_spell(match[2])}"
    if core in _FRACTIONS:
        return _FRACTIONS[core]
    if match := _SLASHED.fullmatch(core):
        return " slash ".join(_cardinal(part) for part in match.groups() if part)
    if (match := _RANGE.fullmatch(core)) and int(match[1]) < int(match[2]):
        return f"{_say_digits_or_year(match[1])} to {_say_digits_or_year(match[2])}"
    if match := _UNIT_NUMBER.fullmatch(core):
        return f"{_say_number(match[1])} {_UNITS[match[2].lower()]}"
    if match := _YEAR.fullmatch(core):
        return _say_year(int(match[1]), int(match[2]), plural=bool(match[3]))
    if _NUMBER.fullmatch(core):
        return _say_number(core)
    if core.startswith("#") and core[1:].isdecimal():
        return f"number {_cardinal(core[1:])}"
    if match := _CAPITALS.fullmatch(core):
        if match[1] in _SPELLED or not set(match[1]) & set("AEIOUY"):
            return _spell(match[1]) + ("'s" if match[2] else "")
    if _DOTTED.fullmatch(core + tail[:1]) and "." in core:
        return _spell(core.replace(".", ""))
    said = re.sub(r"(?<=\w)@(?=\w)", " at ", re.sub(r"(?<=\d)\.(?=\d)", " point ", core))
    return said.replace("&", " and ").replace("%", " percent ")


def _spell(letters: str) -> str:
    """Return dotted capitals: engines read them letter by letter, and the letter A not as the article."""
    return "".join(f"{letter.upper()}." for letter in letters)


def _cardinal(digits: str) -> str:
    value = int(digits.replace(",", ""))
    return number_words(value) if value < _LARGEST else " ".join(_ONES[int(c)] for c in digits if c.isdigit())


def _say_digits_or_year(digits: str) -> str:
    match = _YEAR.fullmatch(digits)
    return _say_year(int(match[1]), int(match[2]), plural=False) if match else _cardinal(digits)


def _say_number(number: str) -> str:
    match = _NUMBER.fullmatch(number)
    if match is None:
        return number
    sign, whole, decimals, percent = match.groups()
    said = ("minus " if sign else "") + _cardinal(whole)
    if decimals:
        said += " point " + " ".join(_ONES[int(c)] for c in decimals)
    return said + (" percent" if percent else "")


def _say_money(match: re.Match[str], after: str) -> str:
    symbol, whole, decimals = match.groups()
    unit, part = _CURRENCIES[symbol]
    # "$1.2 million": the unit is spoken with the magnitude, which is the next word.
    if after.rstrip(".,;:?!").lower() in _MAGNITUDES:
        return _say_number(f"{whole}.{decimals}" if decimals else whole)
    if decimals and len(decimals) != 2:
        return f"{_say_number(f'{whole}.{decimals}')} {unit}s"
    units = int(whole.replace(",", ""))
    parts = int(decimals or 0)
    said = [f"{_cardinal(whole)} {unit}" + ("" if units == 1 else "s")] if units or not parts else []
    if parts:
        plural = "pence" if part == "penny" else f"{part}s"
        said.append(f"{number_words(parts)} {part if parts == 1 else plural}")
    return " ".join(said)


def _say_clock(hours: int, minutes: int, half: str | None) -> str:
    said = number_words(hours)
    if minutes:
        said += f" oh {number_words(minutes)}" if minutes < 10 else f" {number_words(minutes)}"
    elif half is None:
        said += " o'clock" if 1 <= hours <= 12 else " hundred"
    return f"{said} {_spell(half)}" if half else said


def _say_year(century: int, rest: int, *, plural: bool) -> str:
    if rest == 0:
        said = "two thousand" if century == 20 else f"{number_words(century)} hundred"
    elif century == 20 and rest < 10:
        said = f"two thousand {number_words(rest)}"
    else:
        said = f"{number_words(century)} " + (f"oh {_ONES[rest]}" if rest < 10 else number_words(rest))
    if not plural:
        return said
    return said[:-1] + "ies" if said.endswith("y") else said + "s"


def _say_address(address: str) -> str:
    said = re.sub(r"^https?://", "", address, flags=re.I)
    said = re.sub(r"^www\.", "", said, flags=re.I)
    return re.sub(r"[./@_?=&:-]", lambda match: _PUNCTUATION_NAMES[match[0]], said.rstrip("/"))
