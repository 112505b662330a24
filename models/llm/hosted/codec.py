"""Questions on a condition, and what became of them, as facts and bytes of the worker link. Pure.

A dialogue crosses as bytes: it may be larger than the facts of a message. What the facts do not bear out is
refused: a worker must not trust who leases it, nor the other way.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from core.errors import PeerError
from models.llm import Message
from models.llm.kv.dialogue import Answered, Asked, Prefilled
from models.llm.kv.segments import CacheHandle

# A million tokens of text are about four megabytes, and six bytes a character where it is not of ASCII.
MOST_DIALOGUE_BYTES = 33_554_432
MOST_NAME = 200
ROLES = ("system", "user", "assistant")


def of_asked(asked: Asked, condition: CacheHandle | None) -> tuple[dict[str, Any], bytes]:
    """To be sent.

    Args:
        asked: the dialogue, and where to go on from.
        condition: who has what is gone on from; its digest is that of ``asked``.
    """
    facts = {
        "condition": None if condition is None else of_handle(condition),
        "keep": asked.keep,
        "answer": asked.answer,
        "rest": asked.rest,
        # They are the end of the dialogue.
        "append": len(asked.append),
    }
    return facts, json.dumps([[each.role, each.text] for each in asked.full]).encode()


def to_asked(facts: Mapping[str, Any], payload: bytes) -> tuple[Asked, CacheHandle | None]:
    """As it was received.

    Raises:
        PeerError: it is none.
    """
    try:
        if len(payload) > MOST_DIALOGUE_BYTES:
            raise ValueError("a dialogue that is too long")
        full = tuple(_message(each) for each in json.loads(payload))
        condition = None if facts["condition"] is None else to_handle(facts["condition"])
        count = _count(facts["append"])
        if not full or count > len(full):
            raise ValueError("a dialogue without its end")
        asked = Asked(
            full,
            None if condition is None else condition.digest,
            _count(facts["keep"]),
            None if facts["answer"] is None else _name(facts["answer"]),
            None if facts["rest"] is None else _text(facts["rest"]),
            full[len(full) - count :],
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PeerError(f"a dialogue that cannot be read: {type(error).__name__}") from error
    return asked, condition


def of_prefilled(prefilled: Prefilled, *, is_conditional: bool) -> dict[str, Any]:
    """To be sent: the counts, and what became of the condition."""
    held = "equal" if not prefilled.cropped_tokens else "cropped"
    condition = "refused" if prefilled.refused else held if is_conditional else "none"
    return {
        "cached_tokens": prefilled.cached_tokens,
        "input_tokens": prefilled.input_tokens,
        "cropped_tokens": prefilled.cropped_tokens,
        "condition": condition,
    }


def to_prefilled(given: object) -> Prefilled:
    """As it was received.

    Raises:
        PeerError: it is none.
    """
    try:
        facts = _facts(given)
        if facts["condition"] not in ("none", "equal", "cropped", "refused"):
            raise ValueError("a condition of which nothing is known")
        return Prefilled(
            _count(facts["cached_tokens"]),
            _count(facts["input_tokens"]),
            facts["condition"] == "refused",
            _count(facts["cropped_tokens"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a count of tokens that cannot be read: {type(error).__name__}") from error


def of_answered(answered: Answered, worker: str, incarnation: str) -> dict[str, Any]:
    """To be sent, with the handle to go on from."""
    return {
        "handle": of_handle(CacheHandle(worker, incarnation, answered.digest, answered.kv_tokens)),
        "asked_digest": answered.asked_digest,
        "text": answered.text,
        "char_ends": list(answered.char_ends),
        "chain": [list(each) for each in answered.chain],
    }


def to_answered(given: object) -> tuple[Answered, CacheHandle]:
    """As it was received.

    Raises:
        PeerError: it is none.
    """
    try:
        facts = _facts(given)
        handle, text = to_handle(facts["handle"]), _text(facts["text"])
        ends = tuple(map(_count, facts["char_ends"]))
        if any(end > len(text) for end in ends) or list(ends) != sorted(ends):
            raise ValueError("tokens that end behind their text")
        chain = tuple((_name(digest), _count(end)) for digest, end in facts["chain"])
        asked_digest = _name(facts["asked_digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"an answer that cannot be read: {type(error).__name__}") from error
    return Answered(asked_digest, handle.digest, handle.kv_tokens, text, ends, chain), handle


def of_handle(handle: CacheHandle) -> dict[str, Any]:
    """To be sent."""
    return {
        "worker": handle.worker,
        "incarnation": handle.incarnation,
        "digest": handle.digest,
        "kv_tokens": handle.kv_tokens,
    }


def to_handle(given: object) -> CacheHandle:
    """As it was received.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    facts = _facts(given)
    worker, incarnation, digest = (_name(facts[name]) for name in ("worker", "incarnation", "digest"))
    return CacheHandle(worker, incarnation, digest, _count(facts["kv_tokens"]))


def _facts(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ValueError("no facts")
    return given


def _message(given: object) -> Message:
    if not isinstance(given, list) or len(given) != 2:
        raise ValueError("a message that is none")
    role, text = given
    if role not in ROLES:
        raise ValueError("a message of nobody")
    return Message(cast(Literal["system", "user", "assistant"], role), _text(text))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _name(value: object) -> str:
    if len(text := _text(value)) > MOST_NAME:
        raise ValueError("a name that is too long")
    return text


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("no count")
    return value
