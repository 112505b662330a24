"""Recognise answers around a human: the offer of one is accepted, or the wait for one given up. Pure.

The words are plain (``language.words.plain``). A turn may say more than the answer itself: "Yes, fetch a
colleague", "Oh, never mind then".
"""

from collections.abc import Collection, Sequence

from parley.language.vocabulary import UtteranceVocabulary
from parley.turn_taking.clarification import is_made_of

# Words before a withdrawal that may reverse it: "I don't want to | go on with you".
REVERSING_WORDS = 3


def accepts(words: Sequence[str], vocabulary: UtteranceVocabulary) -> bool:
    """Return whether a turn accepts what was offered.

    It consists of agreement, or begins with an acceptance and neither negates nor asks anything after it.
    """
    if is_made_of(words, vocabulary.affirmative | vocabulary.polite):
        return not is_made_of(words, vocabulary.polite)
    around = vocabulary.polite | vocabulary.fillers | vocabulary.hesitations | vocabulary.backchannels
    rest = words[_opening(words, around - vocabulary.acceptances) :]
    lengths = _lengths(rest, vocabulary.acceptances)
    if not any(lengths[:1]) or any(_lengths(rest, vocabulary.withdrawals)):
        return False
    return not (vocabulary.negations | vocabulary.questions).intersection(_uncovered(rest, lengths))


def withdraws(words: Sequence[str], vocabulary: UtteranceVocabulary) -> bool:
    """Return whether a turn gives up the wait for a human.

    A withdrawal of one word ("cancel") is one only alone: it may be a part of what the human is needed for.
    """
    around = vocabulary.polite | vocabulary.negative | vocabulary.affirmative
    around |= vocabulary.fillers | vocabulary.backchannels
    alone = vocabulary.withdrawals | vocabulary.lone_withdrawals
    if is_made_of(words, alone | around) and not is_made_of(words, around):
        return True
    # "No, I'll go on with you"; the beginning of "I don't want to wait" stays.
    rest = words[_opening(words, {phrase for phrase in around if " " not in phrase}) :]
    return any(
        length and not vocabulary.negations.intersection(rest[max(0, at - REVERSING_WORDS) : at])
        for at, length in enumerate(_lengths(rest, vocabulary.withdrawals))
    )


def _lengths(words: Sequence[str], phrases: Collection[str]) -> list[int]:
    """Return, for each word, the number of words in the longest phrase that begins there; 0 for none."""
    sizes = sorted({len(phrase.split()) for phrase in phrases}, reverse=True)
    return [
        next((size for size in sizes if " ".join(words[at : at + size]) in phrases), 0)
        for at in range(len(words))
    ]


def _opening(words: Sequence[str], phrases: Collection[str]) -> int:
    """Return the number of words in the phrases with which the words begin."""
    lengths, at = _lengths(words, phrases), 0
    while at < len(words) and lengths[at]:
        at += lengths[at]
    return min(at, len(words))


def _uncovered(words: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return the words that belong to no phrase."""
    rest: list[str] = []
    at = 0
    while at < len(words):
        if not lengths[at]:
            rest.append(words[at])
        at += lengths[at] or 1
    return rest
