"""Words that mean more with what was perceived meanwhile: "this one", "that's fine", "no, keep it".

Pure; takes the words of a recogniser, with punctuation or without.
"""

import re

from parley.language.words import plain

_MOST_CHARS = 1_000
# A word that points, with its noun where that is empty ("this one", "that thing").
_POINTS = re.compile(
    r"\b(?:this|that|these|those)(?: (?:one|ones|thing|things|here|there|over (?:here|there)))*\b", re.I
)
_PLACE = re.compile(r"\b(?:over )?(?:here|there)\b", re.I)
_IT = re.compile(r"\b(?:it|them)(?=[\s.,?!]*$)", re.I)
# After these the word that points stands for the thing itself. Before any other word it goes with a noun
# ("this subscription"), or begins a clause ("that I bought").
_AFTER = re.compile(
    r"\s*(?:[.,;:?!]|$|(?:is|isn't|are|aren't|was|wasn't|were|has|have|had|does|doesn't|do|did|didn't|can|"
    r"could|would|will|should|must|may|and|or|but|not|instead|too|as|at|by|for|from|in|into|of|on|to|"
    r"with|without|please|now|today|tomorrow|then|because|if|when|while|cost|costs|take|takes|work|works|"
    r"come|comes|last|lasts|include|includes|need|needs|mean|means|weigh|weighs|arrive|arrives|run|runs|"
    r"end|ends|start|starts|cover|covers|any|again|back|up|off|out|there|yet)\b)",
    re.I,
)
_CLAUSE = re.compile(r"\s*(?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|a|an|there)\b", re.I)
# "there is", "is there": no place is meant.
_EXISTS = re.compile(r"\b(?:is|are|was|were) there\b|\bthere (?:is|are|was|were|'s)\b|\bthere's\b", re.I)
_APPROVAL = re.compile(
    r"(?:(?:yes|yeah|yep|no|well|oh|ok|okay|right|sure|fine|great|good|perfect|really|honestly|i guess|"
    r"i suppose|of course|thanks|thank you)(?: |$))*"
    r"(?:(?:(?:it|this|that|everything|all)(?:'s| is| was| will be)?(?: all| just| really| quite)? "
    r"(?:fine|ok|okay|good|great|perfect|all right|alright|well)|"
    r"i(?:'m| am)(?: really| quite)? (?:fine|ok|okay|good|happy|satisfied)|"
    r"(?:it|that|this) (?:works|suits me)|no problem|no worries|never mind|"
    r"fine|okay|ok|great|perfect|all right|alright)"
    r"(?: with me| for me| by me| then| now| with (?:it|that|this)| thanks| thank you)*"
    r"(?: |$))+"
)
_DENIES = re.compile(
    r"\b(?:no|nope|don't|do not|not|never|wait|stop|rather not|leave (?:it|that|them)|"
    r"keep (?:it|that|them|the|this|my|our|both))\b"
)
_WANTS = re.compile(
    r"\b(?:please|cancel|keep|take|book|order|send|change|close|open|stop|start|want|like|need|renew|return|"
    r"pay|buy|move|make|let's|use|add|remove|delete|go|leave|put|get|yes)\b"
)
# "Not this one": the thing is named to be excluded, and a question about it is not meant.
_EXCLUDED = re.compile(
    r"(?:\band )?(?:\bi (?:do not|don't) mean|\bnot|\binstead of|\brather than|\bexcept(?: for)?) $", re.I
)
# "How is that done", "is that right": what was said is meant.
_OF_WORDS = re.compile(r"\s*(?:done|said|right|true|correct|possible|all|so|why|how)\b", re.I)
_IS = re.compile(r"\b(?:is|are|was|were) $", re.I)
# Before a place: "in here" becomes "in the box", and "here" alone "at the box".
_WHERE = re.compile(r"\b(?:at|in|on|to|from|for|of|under|behind|inside|near|around|over|up|down) $", re.I)
# "No idea", "no thanks": nothing is opposed.
_NOT_OPPOSED = re.compile(
    r"\bno (?:idea|thanks|thank you|problem|worries|hurry|rush|doubt|wonder|more)\b|"
    r"\b(?:don't|do not) (?:know|mind|worry|remember|care|see|understand)\b|"
    r"\bnot (?:sure|certain|yet|bad)\b|\b(?:can't|cannot|can not) wait\b|\bwait for\b"
)


def name_referent(text: str, referent: str, before: str = "") -> str:
    """Return ``before`` and ``text`` with what was pointed at in the place of its pointing word.

    A word with a noun of its own keeps it ("this bill, the one of May"). Without any such word the texts are
    returned as they are; one that excludes the thing ("not this one") is left out.
    """
    before = before[-_MOST_CHARS:].rstrip()
    start = len(before) + 1 if before else 0
    said = f"{before} {text}" if before else text
    # A pointing word far behind the beginning of a long text is not looked for.
    end = start + _MOST_CHARS
    for found in reversed(list(_POINTS.finditer(said, start, end))):
        if (excluded := _EXCLUDED.search(said, 0, found.start())) is not None:
            return f"{said[: excluded.start()]}{said[found.end() :]}".strip()
        if _OF_WORDS.match(said, found.end()):
            continue
        is_subject = _IS.search(said, 0, found.start()) is not None
        if is_subject or " " in found[0] or _AFTER.match(said, found.end()):
            return f"{said[: found.start()]}{referent}{said[found.end() :]}"
        if not _CLAUSE.match(said, found.end()):
            return f"{said.rstrip(' .,?!')}, {referent}{_mark(said)}"
    exists = [found.span() for found in _EXISTS.finditer(said, 0, end)]
    for found in reversed(list(_PLACE.finditer(said, start, end))):
        if not any(first <= found.start() < last for first, last in exists):
            at = "" if _WHERE.search(said, 0, found.start()) else "at "
            return f"{said[: found.start()]}{at}{referent}{said[found.end() :]}"
    it = _IT.search(said, start) if len(text) <= _MOST_CHARS else None
    return said if it is None else f"{said[: it.start()]}{referent}{said[it.end() :]}"


def last_pointing(text: str) -> tuple[int, int] | None:
    """Return where the last words that point begin and end: "this one", "that lamp", "over there".

    Of a long text the end is read. A word that begins a clause ("the lamp that I bought") or refers to words
    ("is that right") does not point.
    """
    start = max(0, len(text) - _MOST_CHARS)
    exists = [found.span() for found in _EXISTS.finditer(text, start)]
    places = [
        found.span()
        for found in _PLACE.finditer(text, start)
        if not any(first <= found.start() < last for first, last in exists)
    ]
    things = [
        found.span()
        for found in _POINTS.finditer(text, start)
        if not _CLAUSE.match(text, found.end()) and not _OF_WORDS.match(text, found.end())
    ]
    return max(places + things, default=None)


def approves(text: str) -> bool:
    """Return whether a text says that all is well, and nothing else."""
    words = plain(text[:_MOST_CHARS])
    return 0 < len(words) <= 12 and _APPROVAL.fullmatch(" ".join(words)) is not None


def opposes(first: str, second: str) -> bool:
    """Return whether the second of two people wants the opposite of what the first one has said."""
    wish, answer = (" ".join(plain(text[:_MOST_CHARS])) for text in (first, second))
    return bool(_WANTS.search(wish) and _DENIES.search(_NOT_OPPOSED.sub("", answer)))


def _mark(text: str) -> str:
    """Return the mark at the end of a text."""
    bare = text.rstrip()
    return bare[-1] if bare.endswith((".", "?", "!")) else ""
