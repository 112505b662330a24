"""Recognise turns that are no question: a farewell, a request for a person, a command to the bot.

The rules are in this one place for every transport. The phone ends or transfers a call by them, the idle
watch ends a browser's call, and the embedded answerer checks them before it searches documents. A turn that
contains anything else ("goodbye was what I said") is a question like any other. The module is
pure and takes the words of a recogniser, with punctuation or without.
"""

import re

from parley.core.tiers import Medium
from parley.language.english import medium_requests
from parley.language.english.courtesies import AROUND, MOST_WORDS, bare_request, plain_request
from parley.language.english.spelling import SPELLINGS
from parley.language.intents import CallerIntent
from parley.language.words import ends_in, plain

_BYE = re.compile(
    r"(?:goodbye|bye(?: bye)*|see you(?: later| soon)?|have a (?:nice|good|great) (?:day|evening|one|"
    r"weekend)|talk to you (?:later|soon)|so long|take care|"
    r"hang up|(?:end|quit|leave|finish) (?:the|this) (?:call|conversation|chat)|quit|exit)"
    r"(?: now| then| for now)?\b"
)
# A recogniser writes "by" for "bye"; it counts last after these courtesies: "no that's all thank you by".
_BEFORE_BY = ("thank", "that")
# Said alone these ask for a person; "the manager" may answer a question of the bot.
_ALONE = (
    r"(?:(?:an? )?(?:(?:real|live|human|actual) )?(?:person|human being|human|agent|operator|representative)|"
    r"the human)"
)
_SOMEBODY = (
    r"(?:(?:an?|the|some|your|another) )?(?:(?:real|live|human|actual) )?"
    r"(?:person|human being|human|somebody|someone|anybody|anyone|agent|operator|representative|"
    r"colleague|supervisor|manager|member of staff|customer service|support|advisor|adviser)"
    r"(?: (?:else|real|there|"
    r"(?:from|of|in|at) (?:the |your )?(?:support|service|staff|team|office|bank|company)))?"
)
_ASKS = (
    r"(?:(?:can|could|may) (?:i|you) |"
    r"i(?:'d| would)? (?:want(?:ed)?|like|need|wish|prefer|rather) (?:you )?(?:to )?|"
    r"let me |is it possible to )?(?:please )?"
)
_VERB = (
    r"(?:(?:to )?(?:speak|talk) (?:to|with)|(?:to )?(?:be )?(?:connect|transfer|put)(?:ed|red)?"
    r"(?: me)?(?: through)?(?: to| with)?|(?:to )?(?:get|fetch)(?: me)?|give me|have)"
)
_WANTS = r"(?:i(?:'d| would)? (?:want|need|like|prefer)|is there) "
_NOBODY = re.compile(_ALONE)
_TO_TALK_TO = (
    rf"{_WANTS}{_SOMEBODY} (?:(?:that |who |whom )?i (?:can|can't|could|may) (?:speak|talk) (?:to|with)|"
    r"to (?:speak|talk) (?:to|with))"
)
_PERSON = re.compile(
    rf"{_ASKS}{_VERB} {_SOMEBODY}|{_ASKS}(?:put|transfer|connect) me(?: through| over)?|"
    rf"{_WANTS}(?:the )?(?:{_ALONE}|an? colleague)(?: (?:there|here))?|{_TO_TALK_TO}|{_ALONE}"
)

# A farewell contains few other words: "okay thank you bye", not "how do I say goodbye to my old bank".
_FAREWELL_WORDS = 8
# "Is that a good by", "how do I say goodbye", "I had a good night".
_SPOKEN_ABOUT = (["a"], ["an"], ["the"], ["say"], ["said"], ["says"], ["saying"])
_AFTER_FAREWELLS = ("thanks", "thank you", "then", "for now", "for today", "so much", "very much")
FAREWELLS = (
    "bye", "goodbye", "bye bye", "see you", "see you later", "talk to you later",
    "have a nice day", "have a good day", "good night",
    *(f"{that} {all_}" for that in ("that's", "that is", "that was", "that will be", "that'll be")
      for all_ in ("all", "everything")), "that's it",
)  # fmt: skip
MOMENTS = (
    "wait", "wait a moment", "wait a minute", "wait a second", "one moment", "one second", "one minute",
    "just a moment", "just a second", "just a minute", "hold on", "hang on", "let me think", "let me see",
    "let me look", "let me check", "let me find it", "give me a moment", "give me a second",
    "give me a minute", "hold on a second",
    "hold on a minute", "hold on a moment", "hang on a second",
    "i am looking", "i'm looking", "i have to look",
)  # fmt: skip
_MOMENTS = frozenset(phrase.removeprefix("just ") for phrase in MOMENTS)
_BEFORE_COMMANDS = re.compile(
    r"(?:okay|well|alright|all right|no|oh|so|but|um|uh|sorry|hey|just|please|"
    r"(?:can|could|would|will) you(?: please)?)(?: |$)"
)
_AFTER_COMMANDS = re.compile(r"(?: |^)(?:please|now|right now|for me|thanks|thank you|at once|immediately)$")
_THAT = r"(?: (?:that|it|this|your (?:last )?answer|the last (?:answer|sentence)))?"
_COMMANDS = (
    (
        CallerIntent.STOP,
        re.compile(
            r"(?:stop|stop it|stop (?:talking|speaking|reading|there)|be quiet|quiet|shut up|silence|hush|"
            r"enough|that(?:'s| is) enough|cancel|cancel that|i(?:'ve| have) heard enough)"
        ),
    ),
    (
        CallerIntent.REPEAT,
        re.compile(
            rf"(?:repeat{_THAT}(?: once)?(?: more| again)?|say{_THAT} (?:again|once more|one more time)|"
            r"what did you (?:just )?say|what was that|come again|one more time|once more|again|pardon|"
            r"pardon me|excuse me|sorry|what|i (?:did not|didn't|could not|couldn't) "
            r"(?:hear|catch|get|understand) (?:that|it|you))(?: again)?"
        ),
    ),
    (
        CallerIntent.MORE,
        re.compile(
            r"(?:and )?(?:(?:tell|give) me (?:some |a bit |a little )?more(?: about (?:it|that|this))?|"
            r"tell me (?:everything|all|the rest)|more|more details|some more|what else|anything else|"
            r"is there (?:more|anything else)|go on|continue|keep going|carry on|read on|the rest|and then|"
            r"what (?:more|else) (?:is there|do you know)(?: about (?:it|that|this))?|"
            r"more (?:about|on) (?:it|that|this)|go ahead)"
        ),
    ),
)


def caller_intent(text: str) -> CallerIntent | None:
    """Return the request that a turn makes when it contains nothing else; None for anything else."""
    if requests_human(text):
        return CallerIntent.HUMAN
    if ends_in_farewell(text):
        return CallerIntent.FAREWELL
    if asks_for_a_moment(text):
        return CallerIntent.MOMENT
    bare = _bare(plain_request(text))
    for intent, pattern in _COMMANDS:
        if pattern.fullmatch(bare):
            return intent
    return None


def is_farewell(text: str) -> bool:
    """Return whether a turn takes leave and says nothing else."""
    rest, byes, before = plain_request(text), 0, ""
    while rest:
        piece = _BYE.match(rest)
        if rest == "by" and before.startswith(_BEFORE_BY):
            return True
        byes += piece is not None
        piece = piece or AROUND.match(rest)
        if piece is None:
            return False
        before, rest = piece.group(), rest[piece.end() :].lstrip()
    return byes > 0


def requests_human(text: str) -> bool:
    """Return whether a turn asks to talk to a person and says nothing else."""
    before, rest = bare_request(text)
    if before == "no" and _NOBODY.fullmatch(rest):
        # "No, no agent."
        return False
    return _PERSON.fullmatch(rest) is not None


def requested_medium(text: str, *, is_shown: bool) -> Medium | None:
    """Return the medium that a turn asks for and says nothing else; see ``IntentRules``."""
    return medium_requests.requested_medium(text, is_shown=is_shown)


def ends_in_farewell(text: str) -> bool:
    """Return whether a short turn ends in a farewell, or says that it was all."""
    words = SPELLINGS.respelled(plain(text))
    if is_farewell(text):
        return True
    if len(words) > _FAREWELL_WORDS:
        return False
    while not (found := _takes_leave(words)) and ends_in(words, _AFTER_FAREWELLS):
        after = next(phrase for phrase in _AFTER_FAREWELLS if ends_in(words, (phrase,)))
        words = words[: -len(after.split())]
    return found


def _takes_leave(words: list[str]) -> bool:
    """Return whether the last words are a farewell, and not one that is spoken about."""
    lengths = (len(phrase.split()) for phrase in FAREWELLS if ends_in(words, (phrase,)))
    return any(words[-length - 1 : -length] not in _SPOKEN_ABOUT for length in lengths)


def asks_for_a_moment(text: str) -> bool:
    """Return whether a short turn asks the bot to wait."""
    spelled = SPELLINGS.respelled(plain(text))
    words = [word for word in spelled if word not in ("please", "okay", "uh", "um", "oh", "yes", "just")]
    said = _once(" ".join(words))
    # Articles are short, and a recogniser confuses them.
    return said in _MOMENTS or said.replace(" the ", " a ") in _MOMENTS


def says_goodbye(text: str) -> bool:
    """Return whether a text of the bot, of any length, ends with "bye"."""
    return ends_in(plain(text), ("bye", "goodbye"))


def _bare(text: str) -> str:
    """Remove courtesies around a command: "okay, please stop now" is "stop"."""
    while (found := _BEFORE_COMMANDS.match(text)) is not None:
        text = text[found.end() :]
    while (found := _AFTER_COMMANDS.search(text)) is not None:
        text = text[: found.start()]
    return _once(text)


def _once(text: str) -> str:
    """Return the words that a short text repeats, or the text: "hold on hold on" is "hold on"."""
    words = text.split()
    if len(words) <= MOST_WORDS:
        for length in range(1, len(words) // 2 + 1):
            if words[:length] * (len(words) // length) == words:
                return " ".join(words[:length])
    return text
