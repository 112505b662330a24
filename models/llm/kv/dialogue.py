"""Condition of a question: which part of a dialogue a model has already read. Pure.

``GenerationRequest`` is a question on a condition: continue from the context with this digest, else read
everything.
``Remembered`` is the client-side record of which context the server probably has. It holds, for each answer,
the digests to continue from, and where each token of the answer ends in its text. It is a hint: the server
verifies the digest, and a stale record costs only a full read.

An answer that was interrupted is in the dialogue as far as it was heard. The context is cropped after the
last token that was heard in full, and the text after that, such as the mark of the interruption, is read. An
answer that was generated again, edited or left out is cropped where the dialogue first differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parley.models.llm import Message


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Dialogue to be answered.

    Attributes:
        full: the whole dialogue; the last message is the user's.
        condition: digest of the context to continue from; None if none is known.
        keep: number of tokens to keep of the answer after it.
        answer: digest after the whole of that answer; None where none of it is kept.
        rest: text that ends the answer after the kept tokens. None where the answer is whole, or the question
            at the condition is to be answered.
        append: messages after the answer.
    """

    full: tuple[Message, ...]
    condition: str | None = None
    keep: int = 0
    answer: str | None = None
    rest: str | None = None
    append: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Counts of a question that was read.

    Attributes:
        cached_tokens: tokens that were in the context already.
        input_tokens: tokens that were read.
        refused: a condition was given and did not hold.
        cropped_tokens: tokens that were removed from the end of the context.
    """

    cached_tokens: int
    input_tokens: int
    refused: bool
    cropped_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Answer to a question, and the state of the context.

    Attributes:
        asked_digest: digest after the question, from which the answer may be generated again.
        digest: digest after the answer, as far as it is in the context.
        kv_tokens: number of tokens in the context.
        text: text of the answer, as far as it is in the context.
        char_ends: for each of its tokens, the number of characters of the text that are complete after it.
        chain: digests of the context's segments with the number of tokens up to the end of each, oldest
            first.
    """

    asked_digest: str
    digest: str
    kv_tokens: int
    text: str
    char_ends: tuple[int, ...]
    chain: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Turn:
    """Dialogue that was answered, and its answer."""

    question: tuple[Message, ...]
    answered: GenerationResult


class Remembered:
    """Client-side record of one conversation's answers.

    Args:
        most_turns: number of turns that are kept; a dialogue that returns to older ones is read anew.
    """

    def __init__(self, most_turns: int = 64) -> None:
        self._most_turns = most_turns
        self._turns: list[_Turn] = []

    @property
    def newest(self) -> GenerationResult | None:
        """Last answer; None before the first."""
        return self._turns[-1].answered if self._turns else None

    def answered(self, asked: GenerationRequest, answered: GenerationResult) -> None:
        """Record an answer, complete or broken off."""
        # A chain belongs to one context, so only the newest answer keeps it.
        self._turns = [
            replace(turn, answered=replace(turn.answered, chain=()))
            for turn in self._turns
            if _begins(asked.full, turn.question)
        ]
        self._turns.append(_Turn(asked.full, answered))
        del self._turns[: -self._most_turns]

    def forget(self) -> None:
        """Discard the record, because the context is gone."""
        self._turns.clear()

    def ask(self, dialogue: Sequence[Message]) -> GenerationRequest:
        """Return the question for a dialogue, with the latest condition that the record allows."""
        full = tuple(dialogue)
        for turn in reversed(self._turns):
            if not _begins(full, turn.question):
                continue
            done, following = turn.answered, full[len(turn.question) :]
            if not following:
                # The same dialogue again: another answer is requested.
                return GenerationRequest(full, done.asked_digest)
            if following[0].role != "assistant":
                # The answer was not heard: the following messages come after an empty one.
                return GenerationRequest(full, done.asked_digest, rest="", append=following)
            if following[0].text == done.text:
                return GenerationRequest(full, done.digest, append=following[1:])
            keep, rest = _kept(done, following[0].text)
            return GenerationRequest(
                full, done.asked_digest, keep, done.digest if keep else None, rest, following[1:]
            )
        return GenerationRequest(full)


def _begins(dialogue: tuple[Message, ...], beginning: tuple[Message, ...]) -> bool:
    return dialogue[: len(beginning)] == beginning


def _kept(answered: GenerationResult, text: str) -> tuple[int, str]:
    """Return the number of tokens of an answer that a text contains, and the text after them."""
    same = 0
    for mine, theirs in zip(answered.text, text, strict=False):
        if mine != theirs:
            break
        same += 1
    heard = max((end for end in answered.char_ends if end <= same), default=0)
    # Later tokens that complete no character belong to the part that was not heard.
    keep = answered.char_ends.index(heard) + 1 if heard else 0
    return keep, text[heard:]
