"""Judgement of what a caller has heard: silences, first sounds, and words twice or never. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.evals.failover.replies import REPLIES, words_of
from parley.evals.failover.sounds import WORD_MS, Sounding, lengths_ms

# A voice that breaks off within the first half of a word is followed by the whole word, which the caller
# hears one and a half times at most. A step of the recording may count for the word before it.
MOST_OF_A_WORD_MS = WORD_MS * 3 // 2 + 40
# A word of which this much was heard was heard.
HEARD_MS = WORD_MS // 3


@dataclass(frozen=True, slots=True)
class Turn:
    """Question of a caller, in milliseconds of the recording.

    Attributes:
        asked_ms: end of the question.
        until_ms: beginning of the next one, or end of the call.
    """

    asked_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """Answer to a question, as its caller heard it.

    Attributes:
        first_ms: from the end of the question to the first sound; None without any.
        silence_ms: longest silence from the end of the question to the last sound of the answer; where words
            are missing and nothing else was said at the end, to the end of the wait for them.
        replies: numbers of the replies of which a word was heard.
        missing: words of them that were not heard; all of one where none was.
        says_other: other words than those of a reply were said: a bridge, an apology, another answer.
    """

    first_ms: int | None
    silence_ms: int
    replies: tuple[int, ...]
    missing: tuple[str, ...]
    says_other: bool


def judge(heard: Sequence[Sounding], turn: Turn) -> HeardTurn:
    """Judge the answer to a question.

    Args:
        heard: sounds of the recording.
        turn: the question.
    """
    sounds = [each for each in heard if turn.asked_ms <= each.start_ms < turn.until_ms]
    lengths = lengths_ms(sounds)
    said = {word for word, length_ms in lengths.items() if length_ms >= HEARD_MS}
    replies = tuple(number for number in range(REPLIES) if said & set(words_of(number)))
    expected = [word for number in replies for word in words_of(number)] or list(words_of(0))
    missing = tuple(word for word in expected if word not in said)
    # The edge between two words is no word either, and short.
    other_ms = sum(each.length_ms for each in sounds if not each.word and each.length_ms >= HEARD_MS)
    says_other = other_ms >= WORD_MS * 2
    edges = [turn.asked_ms, *(each.end_ms for each in sounds)]
    starts = [*(each.start_ms for each in sounds)]
    ends_well = not missing or (bool(sounds) and says_other)
    if not ends_well:
        starts.append(turn.until_ms)
    silence_ms = max((start - end for start, end in zip(starts, edges, strict=False)), default=0)
    first_ms = sounds[0].start_ms - turn.asked_ms if sounds else None
    return HeardTurn(first_ms, silence_ms, replies, missing, says_other)


def repeated(heard: Sequence[Sounding]) -> list[str]:
    """Return the words of a call that were heard again."""
    return [word for word, length_ms in lengths_ms(heard).items() if length_ms > MOST_OF_A_WORD_MS]
