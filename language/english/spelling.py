"""Spellings of a recogniser that mean the same as those of the rules. Tables only.

The recogniser of short turns writes "ok" and "okay", "good by" and "goodbye", "rep resentative", "whats". A
rule that compares a whole turn with phrases has one spelling of each and reads the turn in that spelling. A
spelling is here only if it means nothing else in a turn that the rules accept: "good buy", "note" for "nope"
and "by" alone are not.
"""

from collections.abc import Iterator

from parley.language.words import Spellings

# A recogniser, or a person, divides these anywhere.
_COMPOUNDS = (
    "goodbye somebody someone anybody anyone anything something everything representative operator "
    "supervisor colleague instead understood absolutely definitely"
).split()
_LEAST_PART = 2
# Without the apostrophe none of these is a word that a rule has; "its", "well", "ill", "were" and "id" are.
_CONTRACTIONS = (
    "i'm i've that's what's there's let's you're don't didn't doesn't can't couldn't won't wouldn't"
).split()
_PHRASES = {
    "ok": "okay", "thanx": "thanks", "yea": "yeah", "ya": "yeah", "see ya": "see you",
    "nevermind": "never mind", "al right": "all right", "mmhmm": "mm hmm", "uhhuh": "uh huh",
    "good by": "goodbye", "goodby": "goodbye", "byebye": "bye bye", "by by": "bye bye", "bye by": "bye bye",
    "by bye": "bye bye",
    "wanna": "want to", "gimme": "give me", "lemme": "let me", "can not": "can't", "cannot": "can't",
    "id like": "i'd like", "id rather": "i'd rather", "id prefer": "i'd prefer",
    "go head": "go ahead", "go a head": "go ahead", "customers service": "customer service",
    "let switch": "let's switch", "less switch": "let's switch", "my scream": "my screen",
}  # fmt: skip


def _divided(word: str) -> Iterator[str]:
    for at in range(_LEAST_PART, len(word) - _LEAST_PART + 1):
        yield f"{word[:at]} {word[at:]}"


SPELLINGS = Spellings(
    {divided: word for word in _COMPOUNDS for divided in _divided(word)}
    | {word.replace("'", ""): word for word in _CONTRACTIONS}
    | _PHRASES
)
