"""Whether a caller takes leave, or asks for a person. Pure, for one turn's words.

For calls whose model has no tools to end or to pass on a call: a turn that is a goodbye and nothing else
ends the call behind the answer to it, and one that asks for somebody to talk to passes it on. A turn that
says more than that ("goodbye was what I said") is no wish. English; the words of a recogniser, without a
mark or with one.
"""

import re

# Longer turns say something else.
MOST_WORDS = 20

# One piece at a time from the left, the longest first: no text takes longer than its words.
_AROUND = re.compile(
    r"(?:ok|okay|well|alright|all right|great|good|fine|perfect|yes|no|so|um|uh|please|now|then|again|"
    r"(?:thank you|thanks)(?: so much| very much| a lot| again)?"
    r"(?: for (?:your|the|all your) (?:help|time))?|"
    r"that(?:'s| is| was| will be) (?:all|everything|it)(?: i needed| for now| for today)?|"
    r"i(?:'m| am) (?:done|all set)|nothing else)\b"
)
_BYE = re.compile(
    r"(?:good ?bye|bye(?:[ -]bye)*|see you(?: later| soon)?|have a (?:nice|good|great) (?:day|evening|one|"
    r"weekend)|talk to you (?:later|soon)|so long|take care)(?: now| then| for now)?\b"
)
# Said by themselves these ask for a person; "the manager" may answer a question of the bot.
_ALONE = (
    r"(?:an? )?(?:(?:real|live|human|actual) )?(?:person|human being|human|agent|operator|representative)"
)
_SOMEBODY = (
    r"(?:(?:an?|the|some|your|another) )?(?:(?:real|live|human|actual) )?"
    r"(?:person|human being|human|somebody|someone|agent|operator|representative|colleague|supervisor|"
    r"manager|member of staff|customer service|advisor|adviser)(?: (?:else|real|there))?"
)
_ASKS = (
    r"(?:(?:can|could|may) (?:i|you) |i(?:'d| would)? (?:want(?:ed)?|like|need|wish) (?:you )?(?:to )?|"
    r"let me |is it possible to )?(?:please )?"
)
_VERB = (
    r"(?:(?:to )?(?:speak|talk) (?:to|with)|(?:to )?(?:be )?(?:connect|transfer|put)(?:ed|red)?"
    r"(?: me)?(?: through)?(?: to| with)?|get(?: me)?|give me|have)"
)
_WANTS = r"(?:i(?:'d| would)? (?:want|need|like|prefer)|is there) "
_NOBODY = re.compile(_ALONE)
_PERSON = re.compile(rf"{_ASKS}{_VERB} {_SOMEBODY}|{_WANTS}{_ALONE}(?: (?:there|here))?|{_ALONE}")


def says_goodbye(text: str) -> bool:
    """Whether a turn takes leave and says nothing else."""
    rest, byes = _plain(text), 0
    while rest:
        piece = _BYE.match(rest)
        byes += piece is not None
        piece = piece or _AROUND.match(rest)
        if piece is None:
            return False
        rest = rest[piece.end() :].lstrip()
    return byes > 0


def asks_for_a_person(text: str) -> bool:
    """Whether a turn asks to talk to a person and says nothing else."""
    rest = _plain(text)
    before = ""
    while (piece := _AROUND.match(rest)) is not None:
        before, rest = piece.group(), rest[piece.end() :].lstrip()
    for tail in (" please", " now", " thank you", " thanks"):
        rest = rest.removesuffix(tail)
    if before == "no" and _NOBODY.fullmatch(rest):
        # "No, no agent."
        return False
    return _PERSON.fullmatch(rest) is not None


def _plain(text: str) -> str:
    words = re.sub(r"[,.!?;:]", " ", text.lower().replace("\u2019", "'")).split()
    return " ".join(words) if len(words) <= MOST_WORDS else ""
