"""Find signs in the grammar of a turn that more is coming.

Input: the words of the turn so far. Output: a set of ``SyntaxSign``. Each but one is the sign of a sentence
that is not whole yet: a modifier without its noun, a subordinate clause without its main clause, a noun
phrase without its verb. The other is the sign of a verb that often has an object and has none here.
``cue_words`` reads the last word alone; here the beginning of the sentence counts too. The lists are
closed classes of English and a few verbs that rarely stand last. No sign is a proof, and their weights
(``end_predictor``) are counted, not chosen. A short turn is no sign: an answer of a word or two is as whole
as any.

The module is pure.
"""

from parley.language.cue_words import SyntaxSign
from parley.language.english.cue_words import (
    FILLERS,
    OPENING_WORDS,
    QUESTION_WORDS,
    YES_NO_WORDS,
    words_of,
)

# These stand before the word that they modify.
_MODIFIERS = frozenset(
    "very quite just only even another next other every each no some any more most such both all many few "
    "new first second main either neither between through during without against until than over under "
    "after before across behind near since whether".split()
)
# The object or clause of these verbs follows them.
_VERBS = frozenset(
    "want wants wanted need needs needed have has had get got know knew tell say says said think thought "
    "wondering trying going looking called named asking told took take make made give gave find put bring "
    "send see saw try let keep use enter press dial be been being would could should must may might "
    "can't don't didn't doesn't won't isn't aren't wasn't haven't hasn't there's that's it's what's "
    "who's he's she's you're they're we're i've you've we've i'd".split()
)
_SUBORDINATORS = frozenset(
    "if when whenever while although though because since unless until once after before as".split()
)
_DETERMINERS = frozenset("the a an my your his her our their this these those".split())
_SUBJECTS = frozenset("i you he she it we they there i'm i'll i'd i've you're we're they're it's".split())
_FINITE = YES_NO_WORDS | frozenset(
    "had must might need needs want wants says said means isn't aren't wasn't don't doesn't didn't can't "
    "won't hasn't haven't went got gets goes came comes works stopped lost".split()
)
_REQUESTS = frozenset("please press enter tell give call say dial wait hold".split())
# A longer clause contains its main clause, whatever was recognised.
_CLAUSE_WORDS = 9
# Number of words that a clause takes before its own subject is over.
_OWN_WORDS = 3


def syntax_signs(text: str) -> frozenset[SyntaxSign]:
    """Return the signs in ``text``; none without words."""
    words = words_of(text)
    while len(words) > 1 and (words[0] in OPENING_WORDS or words[0] in FILLERS):
        words = words[1:]
    if not words:
        return frozenset()
    signs = set[SyntaxSign]()
    if words[-1] in _MODIFIERS:
        signs.add(SyntaxSign.MODIFIER)
    elif words[-1] in _VERBS:
        signs.add(SyntaxSign.VERB)
    if _is_open_clause(words):
        signs.add(SyntaxSign.CLAUSE)
    elif words[0] in _DETERMINERS and not _FINITE.intersection(words):
        signs.add(SyntaxSign.NOUN_PHRASE)
    return frozenset(signs)


def _is_open_clause(words: list[str]) -> bool:
    """Return whether the turn begins with a subordinate clause and has no main clause."""
    if words[0] not in _SUBORDINATORS or not 1 < len(words) <= _CLAUSE_WORDS:
        return False
    # "When do you open" asks.
    if words[0] == "when" and words[1] in YES_NO_WORDS:
        return False
    rest = words[_OWN_WORDS:]
    return not ((QUESTION_WORDS - YES_NO_WORDS) | _REQUESTS | _SUBJECTS).intersection(rest)
