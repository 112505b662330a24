"""Find signs in the last words that more is coming.

Inputs: the words of the turn so far and the kind of answer that the bot asked for. Output: one ``WordCue``,
the strongest sign there is: a hesitation, a clause that cannot end here, a number, an address or a spelled
name that is not whole yet, a word that may trail off, a closing word, or nothing special. ``end_predictor``
holds the weight of each cue. The lists are closed classes of English.

The module is pure.
"""

import re

from parley.language.cue_words import QuestionKind, WordCue
from parley.language.english.spelling import SPELLINGS
from parley.language.english.spoken_digits import HOMOPHONES, LEAST_CERTAIN

# A clause rarely ends on these: the speaker has more to say. Closed classes of English (conjunctions,
# determiners, possessives, contracted subjects). Prepositions and auxiliaries are left out: questions end on
# them ("what is it for").
HANGING_WORDS = frozenset(
    "a an and the but or so because if when while although though than as of my your his her our their "
    "its these those i'm i'd i'll we're we'd we'll you're they're which whose i we".split()
)
# A sentence may end on these (prepositions, auxiliaries, question words, pronouns after a verb), but when it
# also sounds unfinished it continues: two weak signs together are a strong one.
TRAILING_WORDS = frozenset(
    "for to of with about from in on at by into is are was do does did can could will would should have has "
    "when how what where who that them him her me you us one if".split()
)
FILLERS = frozenset("uh um er erm hmm mm ah eh like well".split())
# Words that people say when they are done, alone or last.
CLOSING_WORDS = frozenset("please thanks thank-you bye goodbye yes no yeah yep nope okay ok correct".split())

# Words of a request to the listener.
REQUEST_WORDS = frozenset(
    "please want wanted need needed like help tell show give let looking wondering wonder lost stolen thank "
    "thanks thank-you".split()
)
# "And also, when" asks as well; after more words than that a question word joins two clauses.
ASKS_WITHIN = 4
LEAST_TOLD_WORDS = 4
OPENING_WORDS = frozenset("and but so or well okay ok then also".split())

DIGITS = {word: 1 for word in "zero oh nought one two three four five six seven eight nine".split()}
# "forty" stands for one digit of "forty two" and for two of "forty": the lower count keeps the number open.
TENS = {
    word: 2
    for word in "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
    "twenty thirty forty fifty sixty seventy eighty ninety".split()
}
REPEATS = {"double": 2, "triple": 3}
# Numbers of digits that are whole: a pin or the last four of a card, a postal code, a telephone number of the
# North American plan with and without its area and country code, a British account, a card (ISO/IEC 7812-1:
# mostly 16).
WHOLE_DIGITS = frozenset({4, 5, 7, 8, 10, 11, 16})
WHOLE_BY_NOUN = {
    "phone": frozenset({7, 10, 11}),
    "telephone": frozenset({7, 10, 11}),
    "card": frozenset({4, 15, 16}),
    "pin": frozenset({4}),
    "zip": frozenset({5, 9}),
}
NUMBER_NOUNS = frozenset("number account card phone telephone pin code zip reference id digits".split())
STREETS = frozenset(
    "street st road rd avenue ave lane drive way boulevard court place square terrace close crescent".split()
)
# A word or two stand between the noun and the first digit ("my number is", "the code i got was").
CARRIER_WORDS = 5
# So many digits read one by one without a noun are a number.
BARE_DIGITS = 3
SPELLED_LETTERS = 2
# A question that begins like this asks for a yes or a no.
YES_NO_WORDS = frozenset(
    "is are am was were do does did can could will would should shall may have has".split()
)
QUESTION_WORDS = YES_NO_WORDS | frozenset("what when where who whom whose which why how".split())
_ASKING_WORDS = frozenset("what when where who whom whose which why how".split())
# These ask at the beginning only: "is it", but "my name is".
_INVERTED_WORDS = frozenset(
    "can could does did do is are was were will would should may shall have has am tell show".split()
)
_QUESTION_OPENINGS = frozenset("and but so or well um uh ok okay please then also".split())
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def words_of(text: str) -> list[str]:
    """Return the words in lower case, without the punctuation around each word."""
    return _stripped(text.lower().replace("thank you", "thank-you"))


def _stripped(text: str) -> list[str]:
    stripped = (word.strip(".,!?;:-\"'()") for word in text.lower().split())
    return [word for word in stripped if word]


def ends_hanging(text: str) -> bool:
    """Return whether the words end inside a clause or on a hesitation. Case and punctuation do not matter."""
    word = _last_word(text)
    return word in FILLERS or word in HANGING_WORDS


def may_trail(text: str) -> bool:
    """Return whether the last word is one of ``TRAILING_WORDS``."""
    return _last_word(text) in TRAILING_WORDS


def _last_word(text: str) -> str:
    words = SPELLINGS.respelled(_stripped(text))
    return words[-1] if words else ""


def asked_for(text: str) -> QuestionKind:
    """Return the kind of answer that the last sentence of the bot asks for."""
    sentence = _SENTENCE_END.split(text.strip())[-1]
    spoken = words_of(sentence)
    words = set(spoken)
    asks = sentence.endswith("?") or bool(words & {"please", "tell", "give", "say", "spell"})
    if not asks:
        return QuestionKind.NOTHING
    if words & {"spell", "spelled", "spelling"}:
        return QuestionKind.SPELLING
    if words & {"address", "street"}:
        return QuestionKind.ADDRESS
    if words & NUMBER_NOUNS - {"account", "card", "phone"} or "last four" in sentence.lower():
        return QuestionKind.NUMBER
    return QuestionKind.CHOICE if spoken and spoken[0] in YES_NO_WORDS else QuestionKind.QUESTION


def is_question(text: str) -> bool:
    """Return whether the words ask for something; the first words count, as transcripts lack marks."""
    if text.rstrip().endswith("?"):
        return True
    words = text.lower().replace(",", " ").split()
    while words and words[0] in _QUESTION_OPENINGS:
        del words[0]
    return bool(words) and (words[0] in _INVERTED_WORDS or not _ASKING_WORDS.isdisjoint(words[:3]))


def is_statement(text: str) -> bool:
    """Return whether a sentence of some length asks for nothing: a story is not finished with it.

    It judges by words alone, and so is often wrong: "my card is gone" asks for help. The price is a longer
    wait.
    """
    words = words_of(text)
    if len(words) < LEAST_TOLD_WORDS or words[-1] in CLOSING_WORDS:
        return False
    # "Is it", but "it is".
    inverted = next((word for word in words if word not in OPENING_WORDS), "") in YES_NO_WORDS
    asking = (QUESTION_WORDS - YES_NO_WORDS).intersection(words[:ASKS_WITHIN])
    return not (inverted or asking or REQUEST_WORDS.intersection(words))


def word_cue(text: str, asked: QuestionKind = QuestionKind.NOTHING) -> WordCue:
    """Return the strongest sign in the last words of ``text``."""
    words = words_of(text)
    if not words:
        return WordCue.NO_WORDS
    last = words[-1]
    if _spells(words, asked):
        return WordCue.SPELLING
    if last in FILLERS:
        return WordCue.FILLER
    if _number_is_open(words, asked):
        return WordCue.OPEN_NUMBER
    if last in HANGING_WORDS:
        return WordCue.HANGING
    if _address_is_open(words, asked):
        return WordCue.OPEN_ADDRESS
    if last in CLOSING_WORDS or _last_word(text) in CLOSING_WORDS:
        return WordCue.CLOSING
    if last in TRAILING_WORDS:
        return WordCue.TRAILING
    return WordCue.PLAIN


def _spells(words: list[str], asked: QuestionKind) -> bool:
    letters = 0
    while letters < len(words) and len(words[-1 - letters]) == 1 and words[-1 - letters].isalpha():
        letters += 1
    # "i" and "a" are words: one of them alone spells nothing.
    return letters >= SPELLED_LETTERS or (letters == 1 and asked is QuestionKind.SPELLING)


def _digits_at_end(words: list[str]) -> tuple[int, int]:
    """Return (digits, words) of the number at the end."""
    digits = taken = certain = 0
    last_was_unit = False
    # At the first word that is only a digit among several.
    before_homophone: tuple[int, int] | None = None
    for at in range(len(words) - 1, -1, -1):
        word = words[at]
        is_homophone = word in HOMOPHONES and last_was_unit and at > 0 and words[at - 1] in DIGITS
        if is_homophone:
            before_homophone = before_homophone or (digits, taken)
            digits += 1
        elif word.isdigit():
            digits += len(word)
        elif word in DIGITS:
            digits += 1
            certain += 1
        elif word in TENS:
            # "forty two": the unit after it has been counted already.
            digits += 1 if last_was_unit and word.endswith("ty") else 2
        elif word in REPEATS and taken:
            digits += REPEATS[word] - 1
        else:
            break
        last_was_unit = is_homophone or word in DIGITS
        taken += 1
    if before_homophone is not None and certain < LEAST_CERTAIN:
        return before_homophone
    return digits, taken


def _number_is_open(words: list[str], asked: QuestionKind) -> bool:
    digits, taken = _digits_at_end(words)
    before = words[: len(words) - taken]
    if not digits:
        # "my number is": the number itself is to come.
        return _carries_number(before) and words[-1] in {"is", "was", "are"}
    if not (asked is QuestionKind.NUMBER or _carries_number(before) or taken >= BARE_DIGITS):
        return False
    nouns = [word for word in before[-CARRIER_WORDS:] if word in WHOLE_BY_NOUN]
    return digits not in (WHOLE_BY_NOUN[nouns[-1]] if nouns else WHOLE_DIGITS)


def _carries_number(before: list[str]) -> bool:
    carriers = before[-CARRIER_WORDS:]
    # A verb of being announces the number; without it ("card two") the noun is only named.
    return bool(set(carriers) & NUMBER_NOUNS) and bool(set(carriers) & {"is", "was", "are", "it's", "that's"})


def _address_is_open(words: list[str], asked: QuestionKind) -> bool:
    place = next(
        (
            index + 2
            for index in range(len(words) - 2, -1, -1)
            if (words[index], words[index + 1]) in {("address", "is"), ("live", "at"), ("moved", "to")}
        ),
        None,
    )
    if place is None:
        if asked is not QuestionKind.ADDRESS:
            return False
        place = 0
    said = words[place:]
    if not said or said[-1] in DIGITS or said[-1] in TENS:
        return True
    # A house number needs its street; a street alone may be the whole address.
    return (said[0] in DIGITS or said[0] in TENS or said[0].isdigit()) and not set(said) & STREETS
