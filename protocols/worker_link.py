"""Messages between whoever has a conversation and the worker that its engine runs in.

Over a WebSocket. A message without bytes is a JSON text: ``type``, ``number``, and facts beside them. One
with bytes (audio, pictures) is a binary message: the length of such a JSON text, the text, the bytes. No
base64: a second of float32 audio is 64 kB and not 85.

Every question has a number above zero, which its answer (``done``, ``failed``) and what comes before that
(``piece``) repeat; what has the number zero is answered by nobody. Pure; the standard library alone: a worker
has a Python environment of its own.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from core.errors import PeerError

LENGTH = struct.Struct("<I")
MOST_FACTS_BYTES = 1_048_576
# Eight pictures of 1,344 x 1,344 are 43 MB.
MOST_MESSAGE_BYTES = 67_108_864 + MOST_FACTS_BYTES


class Type(StrEnum):
    """What a message is."""

    # To the worker, first of all.
    LEASE = "lease"
    WATCH = "watch"
    # To the worker, of a conversation.
    PREPARE = "prepare"
    PREFILL = "prefill"
    GENERATE = "generate"
    FINALIZE = "finalize"
    CLEANUP = "cleanup"
    # The same, of a stream that is recognised: an utterance, its audio, its end.
    START = "start"
    AUDIO = "audio"
    FINISH = "finish"
    DISCARD = "discard"
    # And of one that speaks: a clause.
    SPEAK = "speak"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    RELEASE = "release"
    # To the worker, of an operator.
    DRAIN = "drain"
    # From the worker.
    LEASED = "leased"
    REFUSED = "refused"
    PIECE = "piece"
    DONE = "done"
    FAILED = "failed"
    REVOKED = "revoked"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class LinkMessage:
    """One message.

    Attributes:
        type: what it is.
        number: of a question, and of its answer; 0 of what is neither.
        facts: whatever belongs to its type.
        payload: bytes, laid out as the facts say.
    """

    type: Type
    number: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


def encode(message: LinkMessage) -> str | bytes:
    """As it is sent: a text, or bytes where there are any.

    Raises:
        ValueError: it is larger than a message may be, or its facts name ``type`` or ``number``.
    """
    if message.facts.keys() & {"type", "number"}:
        raise ValueError("facts that name a field of every message")
    text = json.dumps({"type": message.type.value, "number": message.number, **message.facts})
    written = text.encode()
    if len(written) > MOST_FACTS_BYTES or len(written) + len(message.payload) > MOST_MESSAGE_BYTES:
        raise ValueError(f"{len(written)} and {len(message.payload)} bytes do not fit in one message")
    if not message.payload:
        return text
    return LENGTH.pack(len(written)) + written + message.payload


def decode(data: str | bytes) -> LinkMessage:
    """What was received.

    Raises:
        PeerError: the other side does not speak this protocol.
    """
    written: str | bytes = data
    payload = b""
    if isinstance(data, str) and len(data) > MOST_FACTS_BYTES:
        raise PeerError(f"{len(data)} characters of facts")
    if isinstance(data, bytes):
        if len(data) < LENGTH.size:
            raise PeerError(f"a message of {len(data)} bytes")
        (length,) = LENGTH.unpack_from(data)
        if length > MOST_FACTS_BYTES or LENGTH.size + length > len(data):
            raise PeerError(f"{length} bytes of facts in a message of {len(data)}")
        written, payload = data[LENGTH.size : LENGTH.size + length], data[LENGTH.size + length :]
    try:
        facts = json.loads(written)
        type_, number = Type(facts.pop("type")), facts.pop("number", 0)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise PeerError(f"a message that cannot be read: {type(error).__name__}") from error
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise PeerError("a message whose number is none")
    return LinkMessage(type_, number, facts, payload)
