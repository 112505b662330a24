"""Context that a worker has of a session, as the session's row keeps it.

A gateway writes it with the next commit of the session, and whichever gateway has the session's next stream
prefers the worker that it names. It is a hint: the worker compares what it has, and a context of a process
that has ended costs only time.
"""

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from parley.models.llm.kv.segments import CacheHandle

# The last segments are enough to find the context, and the row is written with every turn.
NOTED_SEGMENTS = 16
# Leases of one stream; each has an epoch above those of the streams before.
STREAM_EPOCHS = 2**16


@dataclass(frozen=True, slots=True)
class CachedDialogue:
    """Context of a conversation that its last worker reported. A hint for placement.

    Attributes:
        handle: of the context; None before the first answer.
        chain: digests of its segments, the oldest first, with the number of tokens at which each ends.
    """

    handle: CacheHandle | None = None
    chain: tuple[tuple[str, int], ...] = ()


class SessionCache(Protocol):
    """Session that keeps the context of one stream at a time. Thread-safe."""

    @property
    def session_id(self) -> str:
        """Id of the session, under which workers have its context."""
        ...

    def take_cache(self) -> tuple[int, str | None] | None:
        """Return the number of the stream, which grows over all processes, and the kept text.

        Returns:
            None while another stream of the session has it.
        """
        ...

    def note_cache(self, text: str) -> None:
        """Keep a text with the next commit."""
        ...

    def release_cache(self) -> None:
        """Let another stream take it."""
        ...


def cache_text(cached: CachedDialogue) -> str:
    """Return a context as the text of a row."""
    handle = None if cached.handle is None else asdict(cached.handle)
    return json.dumps({"handle": handle, "chain": cached.chain[-NOTED_SEGMENTS:]}, separators=(",", ":"))


def cache_of(text: str | None) -> CachedDialogue:
    """Return the context of a row; without a handle where there is none, or another release wrote it."""
    if text is None:
        return CachedDialogue()
    try:
        found = json.loads(text)
        handle = CacheHandle(**found["handle"])
        chain = tuple((str(digest), int(tokens)) for digest, tokens in found["chain"])
    except (ValueError, TypeError, KeyError):
        return CachedDialogue()
    return CachedDialogue(handle, chain)
