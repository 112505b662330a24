"""Encoding of conditional questions and their answers as facts and bytes of the worker link. Pure.

A dialogue is sent as bytes, because it may be larger than the facts of a message. Inconsistent facts are
refused: worker and client must not trust each other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parley.core.errors import PeerError
from parley.models.llm import Message
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Prefilled
from parley.models.llm.kv.segments import CacheHandle
from parley.protocols.facts import from_facts, from_rows, to_facts, to_rows

# A million tokens of text are about four megabytes, and six bytes a character for text that is not ASCII.
MOST_DIALOGUE_BYTES = 33_554_432
MOST_NAME = 200


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """Facts of ``GenerationRequest``; ``append`` is the number of messages at the end of the dialogue that
    are appended.
    """

    condition: CacheHandle | None
    keep: int
    answer: str | None
    rest: str | None
    append: int


@dataclass(frozen=True, slots=True)
class PrefilledFacts:
    """Facts of ``Prefilled``; ``condition`` is the outcome of the condition."""

    cached_tokens: int
    input_tokens: int
    cropped_tokens: int
    condition: Literal["none", "equal", "cropped", "refused"]


@dataclass(frozen=True, slots=True)
class AnsweredFacts:
    """Facts of ``GenerationResult``; ``handle`` is the condition for the next question."""

    handle: CacheHandle
    asked_digest: str
    text: str
    char_ends: tuple[int, ...]
    chain: tuple[tuple[str, int], ...]


def of_asked(asked: GenerationRequest, condition: CacheHandle | None) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the payload of a question.

    Args:
        asked: the dialogue, and the condition.
        condition: handle of the cache to continue from; its digest is that of ``asked``.
    """
    facts = GenerationFacts(condition, asked.keep, asked.answer, asked.rest, len(asked.append))
    return to_facts(facts), json.dumps(to_rows(asked.full)).encode()


def to_asked(facts: Mapping[str, Any], payload: bytes) -> tuple[GenerationRequest, CacheHandle | None]:
    """Return the question that was received, and its condition.

    Raises:
        PeerError: the message is not a valid question.
    """
    asked, condition = from_facts(GenerationFacts, facts), None
    if asked.condition is not None:
        condition = _checked(asked.condition)
    try:
        full = from_rows(Message, json.loads(payload) if len(payload) <= MOST_DIALOGUE_BYTES else None)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"unreadable dialogue: {type(error).__name__}") from error
    if not full or asked.append > len(full):
        raise PeerError("unreadable dialogue: the end is missing")
    digest = None if condition is None else condition.digest
    _check_names(asked.answer or "")
    return (
        GenerationRequest(
            full, digest, asked.keep, asked.answer, asked.rest, full[len(full) - asked.append :]
        ),
        condition,
    )


def of_prefilled(prefilled: Prefilled, *, is_conditional: bool) -> dict[str, Any]:
    """Return the facts of ``prefilled``: the counts, and the outcome of the condition."""
    held = "equal" if not prefilled.cropped_tokens else "cropped"
    condition = "refused" if prefilled.refused else held if is_conditional else "none"
    return to_facts(prefilled, without=("refused",)) | {"condition": condition}


def to_prefilled(given: object) -> Prefilled:
    """Return the counts that were received.

    Raises:
        PeerError: the facts are not valid.
    """
    facts = from_facts(PrefilledFacts, given)
    refused = facts.condition == "refused"
    return Prefilled(facts.cached_tokens, facts.input_tokens, refused, facts.cropped_tokens)


def of_answered(answered: GenerationResult, worker: str, incarnation: str) -> dict[str, Any]:
    """Return the facts of ``answered``, with the handle for the next question."""
    handle = CacheHandle(worker, incarnation, answered.digest, answered.kv_tokens)
    return to_facts(
        AnsweredFacts(handle, answered.asked_digest, answered.text, answered.char_ends, answered.chain)
    )


def to_answered(given: object) -> tuple[GenerationResult, CacheHandle]:
    """Return the answer that was received, and its handle.

    Raises:
        PeerError: the facts are not valid.
    """
    facts = from_facts(AnsweredFacts, given)
    handle, text, ends = _checked(facts.handle), facts.text, facts.char_ends
    if any(end > len(text) for end in ends) or list(ends) != sorted(ends):
        raise PeerError("unreadable answer: tokens end after its text")
    _check_names(facts.asked_digest, *(digest for digest, _ in facts.chain))
    return GenerationResult(
        facts.asked_digest, handle.digest, handle.kv_tokens, text, ends, facts.chain
    ), handle


def _checked(handle: CacheHandle) -> CacheHandle:
    _check_names(handle.worker, handle.incarnation, handle.digest)
    return handle


def _check_names(*names: str) -> None:
    if any(len(name) > MOST_NAME for name in names):
        raise PeerError("unreadable message: a name is too long")
