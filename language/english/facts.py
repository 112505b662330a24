"""Extract the facts that a person states about themselves: "my name is Ada", "my account number is 4172".

Decides which words of an utterance are a fact worth remembering, the name of the fact, and the purpose of the
call. Other modules store facts (``session_store.memory``) and answer from them (``conversation``). Pure.

The rules are conservative. A question states nothing, nor does a clause after "if" or "whether". "My card is
stolen" describes a problem to be handled, not a fact to keep. Input may come from a recogniser, without case
and punctuation, or from a keyboard, with both.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from parley.language.english import fact_patterns as patterns
from parley.language.english.spoken_digits import spoken_digits
from parley.language.facts import (
    AGE,
    BORN,
    CALL_BACK,
    HOME,
    NAME,
    NOTE,
    ORIGIN,
    WORK,
    ExtractedFacts,
    Statement,
    is_note,
)

_FIX_WORDS = 6
# Only this much of a text is read: people introduce themselves in their first sentences, and a paste of 8,000
# characters would take 25 ms.
_READ_CHARS = 2_000
# The session and the model both read the conversation again at every turn.
_KNOWN_TEXTS = 1_024
_CORRECTION_CHARS = 200
_VALUE_WORDS = 8
_LONG_WORDS = 16
_NOTE_WORDS = 40


def extract_facts(text: str, facts: Mapping[str, str], recent: Sequence[str] = ()) -> ExtractedFacts:
    """Return what ``text`` adds to ``facts``.

    Args:
        text: one turn of the person.
        facts: known before, name -> value.
        recent: names of the facts that were stated last, the newest first; a correction refers to one of
            them.
    """
    found = statements(text)
    new: dict[str, str] = {}
    for statement in found:
        name = statement.name
        if name == NOTE:
            known = {**facts, **new}
            if statement.value in (value for key, value in known.items() if is_note(key)):
                continue
            name = _free_note(known)
        new[name] = statement.value
    if not new and (fixed := _corrected(text, facts, recent)) is not None:
        return ExtractedFacts(facts=dict([fixed]), intent=None, sure=True)
    rest = " ".join(text.split())
    for statement in found:
        rest = " ".join(rest.replace(statement.words, " ", 1).split())
    sure = any(statement.sure for statement in found)
    return ExtractedFacts(facts=new, intent=intent(text), sure=sure, rest=rest)


def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of ``text`` in order; of several about the same fact, only the last."""
    return _statements(text[:_READ_CHARS])


@lru_cache(maxsize=_KNOWN_TEXTS)
def _statements(text: str) -> tuple[Statement, ...]:
    found: dict[str, Statement] = {}
    for sentence in _claims(text):
        for statement in _of_sentence(sentence):
            key = f"{NOTE} {statement.value}" if statement.name == NOTE else statement.name
            found.pop(key, None)
            found[key] = statement
    return tuple(found.values())


def intent(text: str) -> str | None:
    """Return the purpose of the person in their words, or None when they state none.

    Examples are "a lost card" and "to close my account".
    """
    return _intent(text[:_READ_CHARS])


@lru_cache(maxsize=_KNOWN_TEXTS)
def _intent(text: str) -> str | None:
    wanted = None
    for sentence in _claims(text):
        for pattern in patterns.INTENTS:
            match = pattern.search(sentence)
            if match is None:
                continue
            lead = (match["lead"] or "").lower()
            before = match[0][: match.start("rest") - match.start()]
            # "I am to" and "I was about to" state no purpose.
            if pattern is patterns.INTENTS[0] and not patterns.CALLING.search(before):
                continue
            value = _cut(match["rest"], _LONG_WORDS, commas=True, owned=True)
            if (
                not value
                or (lead == "to" and patterns.NO_INTENT.match(value))
                or patterns.QUESTION_START.match(value)
            ):
                continue
            wanted = f"{lead} {value}" if lead in ("to", "because") else value
            break
    return wanted


def asks(text: str) -> bool:
    """Return whether ``text`` holds a question."""
    return any(_is_question(_open(sentence), inside=True) for sentence in _sentences(text))


def find_fact(names: Iterable[str], asked: str) -> str | None:
    """Return the name among ``names`` that "my ``asked``" refers to, or None.

    A name matches when its words are the same, or when it is the only one that contains all of them or is
    contained in them.
    """
    wanted = _fact_words(asked)
    known = {name: _fact_words(name) for name in names if not is_note(name)}
    for name, words in known.items():
        if words == wanted:
            return name
    holding = [
        name for name, words in known.items() if wanted and wanted <= words or words and words <= wanted
    ]
    return holding[0] if len(holding) == 1 else None


def is_own(name: str) -> bool:
    """Return whether ``name`` is an attribute that only the person can state, such as "phone number"."""
    words = name.lower().split()
    return bool(words) and (words[-1] in patterns.OWN or bool(patterns.FAVOURITE.intersection(words)))


def _sentences(text: str) -> list[str]:
    plain = text[:_READ_CHARS].replace("\u2019", "'")
    return [cleaned for part in patterns.SENTENCE.split(plain) if (cleaned := " ".join(part.split()))]


def _open(sentence: str) -> str:
    """Return the sentence without an opening such as "hello", "um" or "and so"."""
    match = patterns.OPENING.match(sentence)
    return sentence[match.end() :] if match else sentence


def _claims(text: str) -> list[str]:
    """Return the sentences that are not questions, without openings. A request to remember is a claim."""
    claims = []
    for sentence in _sentences(text):
        bare = _open(sentence)
        if not _is_question(bare, inside=False):
            claims.append(bare.rstrip("?"))
    return claims


def _is_question(sentence: str, *, inside: bool) -> bool:
    """Return whether a sentence is a question; with ``inside``, also whether a clause of it is."""
    request = patterns.REQUEST.fullmatch(sentence.rstrip("?"))
    if request is not None and (request["that"] or not sentence.endswith("?")):
        return False
    if patterns.CALL_REQUEST.match(sentence):
        return False
    asked = sentence.endswith("?") or patterns.QUESTION_START.match(sentence) is not None
    return asked or (inside and patterns.QUESTION_INSIDE.search(sentence) is not None)


def _of_sentence(sentence: str) -> list[Statement]:
    request = patterns.REQUEST.fullmatch(sentence)
    if request is not None:
        inner = _of_claim(request["rest"])
        if inner:
            return [Statement(s.name, s.value, True, sentence) for s in inner]
        return _note(request, sentence)
    return _of_claim(sentence)


def _note(request: re.Match[str], sentence: str) -> list[Statement]:
    rest = request["rest"].strip(" .!")
    told = request["that"] is not None or rest.lower().startswith(("to ", "the ", "i ", "we "))
    if not told or not 2 <= len(rest.split()) <= _NOTE_WORDS or patterns.QUESTION_START.match(rest):
        return []
    return [Statement(NOTE, rest, True, sentence)]


def _of_claim(sentence: str) -> list[Statement]:
    found: list[Statement] = []
    rest = sentence
    # A sentence of a recogniser may hold several statements: "my name is ada and i live in berlin".
    while (match := patterns.MY.search(rest)) is not None:
        statement = None
        if not patterns.CONDITION.search(rest[: match.start()]):
            statement = _my(match)
        if statement is not None:
            found.append(statement)
        rest = rest[match.start("rest") :]
    for pattern, name in (
        (patterns.THE_NUMBER, None),
        (patterns.THE_NAME, NAME),
        (patterns.CALL_ME, NAME),
        (patterns.SPEAKING, NAME),
    ):
        match = pattern.search(sentence)
        if match is not None and not any(s.name == (name or match["name"].lower()) for s in found):
            found.extend(_valued(name or match["name"].lower(), match))
    if (match := patterns.I_AM.search(sentence)) is not None and match["rest"].split()[
        0
    ].lower() not in patterns.NATIONS:
        found.extend(_valued(NAME, match))
    found.extend(_of_person(sentence))
    if (match := patterns.IS_MY.match(sentence.strip(" .!"))) is not None and not found:
        found.extend(_is_my(match))
    return found


def _of_person(sentence: str) -> list[Statement]:
    found = []
    for name, pattern in patterns.ABOUT_ME:
        match = pattern.search(sentence)
        if match is not None and not patterns.CONDITION.search(sentence[: match.start()]):
            value = _cut(match["rest"], _VALUE_WORDS, commas=name == HOME)
            if name in (HOME, ORIGIN):
                value = _place(value)
            if value and value.split()[0].lower() not in ("here", "there", "what", "it", "this", "that"):
                found.append(Statement(name, value, True, _said(match, value)))
    if (match := patterns.YEARS_OLD.search(sentence)) is not None:
        digits, _ = spoken_digits(match["rest"].split())
        if 0 < len(digits) <= 3:
            found.append(Statement(AGE, digits, True, match[0]))
    if (match := patterns.CALL_ME_BACK.search(sentence)) is not None:
        value = _cut(match["rest"], _VALUE_WORDS, commas=False)
        if value and not patterns.CONDITION.search(sentence[: match.start()]):
            found.append(Statement(CALL_BACK, value, True, _said(match, value)))
    return found


def _place(value: str) -> str:
    """Return a place with capitals, because a recogniser writes "new york"."""
    if value != value.lower():
        return value
    small = ("of", "the", "de", "la", "am", "upon", "and", "a", "near")
    return " ".join(word if word in small else word[:1].upper() + word[1:] for word in value.split())


def _my(match: re.Match[str]) -> Statement | None:
    name = match["name"].lower()
    words = name.split()
    if words[-1] in patterns.NO_FACT or words[0] in ("own", "new", "old") and len(words) == 1:
        return None
    if len(words) > 3 or any(word in ("is", "and", "that", "to", "i", "you", "not") for word in words):
        return None
    own = is_own(name)
    value = _fitting(name, match["rest"])
    if value is None:
        return None
    if words[-1] in patterns.FAMILY:
        sure = value[:1].isupper() or re.match(r"\s*(?:called|named)\b", match["rest"], re.I) is not None
        value = value[:1].upper() + value[1:] if sure else value
    else:
        sure = own
    return Statement(name, value, sure, _said(match, value))


def _is_my(match: re.Match[str]) -> list[Statement]:
    name = match["name"].lower()
    first = match["value"].split()[0].lower()
    if not is_own(name) or first in (
        "this",
        "that",
        "it",
        "here",
        "there",
        "these",
        "those",
        "which",
        "he",
        "she",
    ):
        return []
    value = _fitting(name, match["value"])
    return [Statement(name, value, True, match[0])] if value is not None else []


def _valued(name: str, match: re.Match[str]) -> list[Statement]:
    value = _fitting(name, match["rest"])
    return [Statement(name, value, True, _said(match, value))] if value is not None else []


def _fitting(name: str, rest: str) -> str | None:
    """Return the value that ``rest`` gives for ``name``, or None when it gives none."""
    head = name.split()[-1]
    rest = patterns.FILLER.sub("", f"{rest.strip()} ").strip()
    contrast = re.match(r"not .+?(?:,? but |,? it's |,? it is )(?P<right>.+)", rest, re.I)
    if contrast is not None:
        rest = contrast["right"]
    if head in patterns.NUMBERED:
        return _number(rest)
    if head in patterns.MAILED:
        return _mail(rest)
    if head in patterns.NAMED:
        return _name(rest)
    if name == AGE:
        digits, _ = spoken_digits(rest.split())
        return digits or None
    value = _cut(
        rest, _LONG_WORDS if head in patterns.ADDRESSED else _VALUE_WORDS, commas=head in patterns.ADDRESSED
    )
    if not value:
        return None
    first = value.split()[0].lower()
    if is_own(name):
        return None if first in ("not", "wrong", "missing", "what", "unknown", "secret", "private") else value
    if first in patterns.NO_VALUE or first.endswith(("ing", "ed")) or len(value.split()) > _FIX_WORDS:
        return None
    return value


def _number(rest: str) -> str | None:
    words = [word.strip(",.;:!?\"'") for word in rest.split()]
    words = [word for word in words if word.lower() not in ("um", "uh", "er", "hash")]
    digits, count = spoken_digits(words)
    following = words[count] if count < len(words) else ""
    if digits and not re.fullmatch(r"[A-Za-z]|[A-Za-z]*\d\w*", following):
        return digits
    # Letters and digits: "AB 12 34", "a b one two".
    taken: list[str] = []
    for at, word in enumerate(words):
        spoken, _ = spoken_digits([word])
        if spoken:
            taken.append(spoken)
        elif (
            re.fullmatch(r"[A-Za-z]|[A-Z]{2,4}", word)
            and word != "I"
            or re.fullmatch(r"(?=.*\d)[\w-]+", word)
        ):
            taken.append(word.upper())
        else:
            break
        if at > _LONG_WORDS:
            break
    value = "".join(taken)
    return value if any(letter.isdigit() for letter in value) else None


def _mail(rest: str) -> str | None:
    words = _cut(rest, _LONG_WORDS, commas=False).lower().split()
    joined = "".join(
        {"at": "@", "dot": ".", "underscore": "_", "dash": "-"}.get(word, word) for word in words
    )
    match = re.match(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", joined)
    return match[0] if match else None


def _name(rest: str) -> str | None:
    words: list[str] = []
    for word in _cut(rest, _VALUE_WORDS, commas=False).split():
        bare = word.strip(".\"'")
        if bare.lower() in ("from", "calling", "spelled", "and", "with", "of", "speaking", "here", "in", "i"):
            break
        if not re.fullmatch(r"[^\W\d_]+(?:['-][^\W\d_]+)*", bare):
            break
        words.append(bare)
    if not words or len(words) > 4:
        return None
    if len(words) > 1 and all(len(word) == 1 for word in words):
        return "".join(words).capitalize()
    if words[0].lower() in patterns.NO_NAME:
        return None
    return " ".join(word if any(letter.isupper() for letter in word) else word.capitalize() for word in words)


def _cut(rest: str, max_words: int, *, commas: bool, owned: bool = False) -> str:
    """Return the value at the front of ``rest``, up to the next clause; empty when it is too long."""
    if owned:
        # In "to close my account", the possession of the person is part of the purpose.
        kept = re.split(
            r"[\s,]+(?:please|thanks|thank you|can you|could you|what|how|do you)\b"
            r"|[\s,]+(?:and|but|so) (?=(?:my|i|i'm|you|can|could|what|how)\b)",
            rest, maxsplit=1, flags=re.I,
        )[0]  # fmt: skip
    else:
        kept = patterns.BEHIND.sub("", f" {rest}").strip()
    if not commas:
        kept = kept.split(",")[0]
    kept = kept.strip(" .,;:!\"'")
    return kept if len(kept.split()) <= max_words else ""


def _said(match: re.Match[str], value: str) -> str:
    """Return the words that state the value: from the match to the value's end, where that can be located."""
    whole = match[0]
    front = match.start("rest") - match.start() if "rest" in match.groupdict() else 0
    at = whole.lower().find(value.lower(), front)
    if at >= 0:
        return whole[: at + len(value)]
    behind = patterns.BEHIND.search(whole, front)
    return whole[: behind.start()] if behind else whole


def _free_note(known: Mapping[str, str]) -> str:
    number = 1
    while (name := NOTE if number == 1 else f"{NOTE} {number}") in known:
        number += 1
    return name


def _corrected(text: str, facts: Mapping[str, str], recent: Sequence[str]) -> tuple[str, str] | None:
    """Return the name of the fact that ``text`` corrects, with its new value; None when it corrects none."""
    if not recent or len(text) > _CORRECTION_CHARS:
        return None
    bare = _open(" ".join(text.replace("\u2019", "'").split())).strip(" .!")
    if asks(bare):
        return None
    match = patterns.NOT_BUT.match(bare)
    told = match is not None
    if match is None:
        match = patterns.CORRECTION.match(bare)
        if match is None or not (match["opener"] or match["wrong"]):
            return None
        told = (
            match["says"] is not None
            or match["wrong"] is not None
            or "mea" in (match["opener"] or "").lower()
        )
    wrong, value = match["wrong"], match["value"]
    names = [name for name in recent if name in facts and not is_note(name)]
    if wrong is not None:
        said = {_plain(wrong), spoken_digits(wrong.split())[0]} - {""}
        names = [name for name in facts if _plain(facts[name]) in said and not is_note(name)] or names
    for name in names:
        fitting = _fix(name, value, told=told)
        if fitting is not None and fitting != facts[name]:
            return name, fitting
    return None


def _fix(name: str, value: str, *, told: bool) -> str | None:
    head = name.split()[-1]
    fitting = _fitting(name, value)
    if fitting is None:
        return None
    if head in patterns.NUMBERED:
        # In "no, one", the digit alone is too little to be a corrected number.
        return fitting if told or len(fitting) > 2 else None
    first = fitting.split()[0].lower()
    if (
        not told
        or len(fitting.split()) > _FIX_WORDS
        or first in patterns.NO_VALUE
        and name not in (CALL_BACK, BORN, WORK)
    ):
        return None
    return fitting


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _fact_words(name: str) -> frozenset[str]:
    alike = {
        "telephone": "phone", "mobile": "phone", "cell": "phone", "cellphone": "phone", "mail": "email",
        "e-mail": "email", "color": "colour", "favorite": "favourite", "birthdate": "birthday",
        "zip": "postcode", "postal": "postcode",
    }  # fmt: skip
    words = (alike.get(word, word) for word in name.lower().replace("'s", "").split())
    return frozenset(
        word for word in words if word not in ("full", "first", "the", "current", "again", "please")
    )
