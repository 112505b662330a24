"""What of a dialogue a model has read already, and what it is asked to do now. Pure.

``Asked`` is how a model is asked on a condition: go on from the context with this digest, else read
everything. ``Remembered`` is what the one who asks remembers of a conversation between its turns: behind each
answer the digests that it may go on from, and where each token of the answer ends in its text. It is a memory
and no knowledge: whoever has the context compares the digest, and a wrong memory costs time only.

An answer that was interrupted is in the dialogue as far as it was heard: the context is cut behind the last
token that was heard to its end, and what the text has behind that, such as the mark of the interruption, is
read. An answer that was made anew, edited or left out is cut where the dialogue first differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.llm import Message


@dataclass(frozen=True, slots=True)
class Asked:
    """A dialogue to be answered.

    Attributes:
        full: all of it, the last message the user's.
        condition: digest of the context to go on from; None: none is known.
        keep: so many tokens of the answer behind that stay.
        answer: digest behind that answer, all of it; None where nothing of one stays.
        rest: text that ends the answer behind them; None where the answer is whole, or the model is to answer
            what it was asked at the condition.
        append: messages behind the answer.
    """

    full: tuple[Message, ...]
    condition: str | None = None
    keep: int = 0
    answer: str | None = None
    rest: str | None = None
    append: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The question was read.

    Attributes:
        cached_tokens: that were in the context already.
        input_tokens: that were read.
        refused: there was a condition, and it did not hold.
        cropped_tokens: that the context had behind the condition, and has no more.
    """

    cached_tokens: int
    input_tokens: int
    refused: bool
    cropped_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a question.

    Attributes:
        asked_digest: of the context behind the question: the answer may be made anew from there.
        digest: behind the answer, as far as it is in the context.
        kv_tokens: of the context.
        text: of the answer, as far as it is in the context.
        char_ends: for each of its tokens, how many characters of the text are whole behind it.
        chain: digests of the context's segments with how many tokens each ends at, the oldest first.
    """

    asked_digest: str
    digest: str
    kv_tokens: int
    text: str
    char_ends: tuple[int, ...]
    chain: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Turn:
    """A dialogue that was answered, and its answer."""

    question: tuple[Message, ...]
    answered: Answered


class Remembered:
    """Of one conversation.

    Args:
        most_turns: that are remembered; older ones are read anew when a dialogue goes back to them.
    """

    def __init__(self, most_turns: int = 64) -> None:
        self._most_turns = most_turns
        self._turns: list[_Turn] = []

    @property
    def newest(self) -> Answered | None:
        """The last answer."""
        return self._turns[-1].answered if self._turns else None

    def answered(self, asked: Asked, answered: Answered) -> None:
        """An answer was made, or broken off."""
        # The chain is of one context: that of the newest has all there is.
        self._turns = [
            replace(turn, answered=replace(turn.answered, chain=()))
            for turn in self._turns
            if _begins(asked.full, turn.question)
        ]
        self._turns.append(_Turn(asked.full, answered))
        del self._turns[: -self._most_turns]

    def forget(self) -> None:
        """The context is gone."""
        self._turns.clear()

    def ask(self, dialogue: Sequence[Message]) -> Asked:
        """How to ask for the answer to a dialogue: from as late as what is remembered allows."""
        full = tuple(dialogue)
        for turn in reversed(self._turns):
            if not _begins(full, turn.question):
                continue
            done, behind = turn.answered, full[len(turn.question) :]
            if not behind:
                # The same once more: another answer.
                return Asked(full, done.asked_digest)
            if behind[0].role != "assistant":
                # Nothing was heard of the answer: what follows stands behind an empty one.
                return Asked(full, done.asked_digest, rest="", append=behind)
            if behind[0].text == done.text:
                return Asked(full, done.digest, append=behind[1:])
            keep, rest = _kept(done, behind[0].text)
            return Asked(full, done.asked_digest, keep, done.digest if keep else None, rest, behind[1:])
        return Asked(full)


def _begins(dialogue: tuple[Message, ...], beginning: tuple[Message, ...]) -> bool:
    return dialogue[: len(beginning)] == beginning


def _kept(answered: Answered, text: str) -> tuple[int, str]:
    """How many tokens of an answer are in a text, and what the text has behind them."""
    same = 0
    for mine, theirs in zip(answered.text, text, strict=False):
        if mine != theirs:
            break
        same += 1
    heard = max((end for end in answered.char_ends if end <= same), default=0)
    # Tokens behind it that end no character are the beginning of what was not heard.
    keep = answered.char_ends.index(heard) + 1 if heard else 0
    return keep, text[heard:]
