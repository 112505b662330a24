"""The events of a session: what is written to the timeline and never changed.

``Draft`` is an event before its commit, ``Event`` after it. ``seq`` is the order of commit, gapless from 1 in
each session; ``event_us`` is when it happened. A late event has a late ``seq``; a correction is a new event
whose payload names the one that it ``supersedes``. Payloads are JSON objects with a version ``v``, so that a
timeline of an older release can be read.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from os import urandom
from typing import Any

PAYLOAD_VERSION = 1


def new_key() -> str:
    """A key that nobody else has: the wall clock in nanoseconds, then 64 random bits, 32 hexadecimal digits.

    The time is for the database and for nobody to read: its index of keys grows at one end.
    """
    return f"{time.time_ns():016x}{urandom(8).hex()}"


class Kind(StrEnum):
    """What an event says. The keys are those of its payload, beside ``v``."""

    # A transport came or went. transport, call_id; of a call that we placed and that is over, answered_by
    JOINED = "joined"
    LEFT = "left"
    # What the person said or typed, complete. text, transport, and where more than the words was perceived:
    # tokens (enriched tokens as JSON), rendered (the words as the model is shown them)
    USER_TURN = "user_turn"
    # What of a reply was heard so far; the last one of a reply is what counts until its BOT_TURN.
    # reply_id, text, audio_ms, last_word, source
    HEARD = "heard"
    # A reply that is over. reply_id, text (what was heard or read), truncated, unheard (the rest), audio_ms,
    # last_word, source, transport; of a typed one turn (seq of what it answers), supersedes
    BOT_TURN = "bot_turn"
    # call_id, name, arguments, idempotent, effect_key (what the tool is given to know a repeated call by),
    # turn (seq of the USER_TURN that it was made for)
    TOOL_CALL = "tool_call"
    # call_id, name, result, outcome ("done", "failed" or "unknown": nobody knows whether it took effect)
    TOOL_RESULT = "tool_result"
    # What is known about the conversation; a later key wins. speaker, intent, slots
    STATE = "state"
    # Older turns in short. text, until_seq, state (what was known at those turns), by (who wrote it)
    SUMMARY = "summary"
    # One report of a specialist, in the place that the sequencer gave it. order (of the call, from 0),
    # statement, stream, identity, revision, late, call_id, body
    ANNOTATION = "annotation"
    # What went into the sequencer of a call, as far as its order depends on it. call_id, settings (with the
    # first of a call), operations (JSON lines; the payload of a report is left out)
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that waits for its commit.

    Attributes:
        kind: see ``Kind``.
        payload: JSON object; the store adds ``v``.
        event_us: when it happened, on the session clock.
        arrival_us: when this process learnt of it.
        source: who says so: a specialist, "user", "bot", "tool", "system".
        speaker: whose it is.
        final: a partial may be superseded.
        confidence: 0..1.
        key: idempotency key, unique in the session. A draft whose key is stored already is not stored again.
    """

    kind: Kind
    payload: Mapping[str, Any]
    event_us: int
    arrival_us: int
    source: str
    speaker: str | None = None
    final: bool = True
    confidence: float = 1.0
    key: str = field(default_factory=new_key)

    def at(self, session_id: str, seq: int, epoch: int) -> "Event":
        """The event that this becomes when it is committed there."""
        return Event(
            session_id=session_id,
            seq=seq,
            epoch=epoch,
            kind=self.kind,
            payload=self.payload,
            event_us=self.event_us,
            arrival_us=self.arrival_us,
            source=self.source,
            speaker=self.speaker,
            final=self.final,
            confidence=self.confidence,
            key=self.key,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """A committed draft.

    Attributes:
        session_id: of which session.
        seq: place in the order of commit, from 1 without a gap.
        epoch: of the claim under which it was written.
    """

    session_id: str
    seq: int
    epoch: int
    kind: Kind
    payload: Mapping[str, Any]
    event_us: int
    arrival_us: int
    source: str
    speaker: str | None
    final: bool
    confidence: float
    key: str
