"""Events of a session: immutable entries of its timeline.

``Draft`` is an event before its commit, ``Event`` after it. ``seq`` is the order of commit, gapless from 1 in
each session; ``event_us`` is when it happened. A late event has a late ``seq``. A correction is a new event
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
    """Return a unique key: the wall clock in nanoseconds, then 64 random bits; 32 hexadecimal digits.

    The time is there only for the database, whose index of keys then grows at one end. It is not meant to be
    parsed.
    """
    return f"{time.time_ns():016x}{urandom(8).hex()}"


class Kind(StrEnum):
    """Type of an event. The comments list the keys of its payload, in addition to ``v``."""

    # A transport, or the camera ("camera") or shared screen ("screen") of a call, joined or left. transport,
    # call_id; for a phone call that may lose its stream, line (the same for each of its streams); for the end
    # of an outbound call, answered_by; for the beginning of a call whose caller chose something, choices
    # (names by field of the call; true for instructions)
    JOINED = "joined"
    LEFT = "left"
    # Complete words that the person said or typed. text, transport; where more than the words was perceived,
    # tokens (enriched tokens as JSON), rendered (the words as the model receives them); where pictures were
    # shown, pictures (of each: key of its PICTURE, width, height, number in the session from 0,
    # source "screen" for that of a shared screen); where words were redacted and are kept, redacted (names of
    # their entries in the vault, in the order of the marks)
    USER_TURN = "user_turn"
    # Picture that the person showed; a USER_TURN after it names its key. media_type, width, height, data (the
    # file in base64)
    PICTURE = "picture"
    # Part of a reply heard so far; the last one of a reply counts until its BOT_TURN. reply_id, text, rest
    # (what is still to be said; null while the model may write more), audio_ms, last_word, source
    HEARD = "heard"
    # Reply that is over. reply_id, text (the part heard or read), truncated, unheard (the rest),
    # unwritten (true where its model was still writing, so that the rest is longer), audio_ms, last_word,
    # source, transport; for a typed one turn (seq of the turn that it answers), supersedes; where
    # it rests on documents, passages (of each: document, heading, number in the document from 1); by ("human"
    # for words of a human at the desk); where the session has evidence, made_by (``core.provenance``) for
    # words of a model
    BOT_TURN = "bot_turn"
    # Tool call. call_id, name, arguments, idempotent, effect_key (by which the tool recognises a repeated
    # call), turn (seq of the USER_TURN for which it was made)
    TOOL_CALL = "tool_call"
    # Result of a tool call. call_id, name, result, outcome ("done", "failed", or "unknown" when it may have
    # taken effect)
    TOOL_RESULT = "tool_result"
    # State of the conversation; a later key wins. speaker, intent, slots; language (tag, where a phone call
    # as text has switched to it)
    STATE = "state"
    # Change of the tier (core.tiers). tier, epoch, reason, note (of the human who handed the session back),
    # cause (why a human or a medium was offered), to (medium of a step), declined (media that are not offered
    # again)
    TIER = "tier"
    # Summary of older turns. text, until_seq, state (at those turns), by (the author)
    SUMMARY = "summary"
    # Voiceprints of the speakers so far; the last one counts. call_id, voices (of each: speaker, embedding,
    # seconds)
    VOICES = "voices"
    # The caller has heard bot.disclosure to its end. call_id, text
    DISCLOSED = "disclosed"
    # Consent to keep personal data in the session. to ("voiceprints"), by ("deployment"), call_id
    CONSENT = "consent"
    # Another engine went on in place of one that failed, or one that had failed works again. stage
    # ("hearing", "thinking", "speaking", "duplex"), engine, successor (names of their rows), reason
    # (core.failover; for "thinking" llm_timeouts.FailureReason), call_id (none for a typed turn)
    FAILOVER = "failover"
    # Use of engines and its cost, where the deployment has prices; cost is null where a part of it is not
    # known. scope ("turn", "call" for the sum at its end, or "typed"), call_id (none for "typed"), turn
    # (number in the call, 0 for the greeting; for "typed" seq of its USER_TURN), used (of each model: stage,
    # engine, model, its amounts, cost, unpriced), cost, known_cost, currency
    USAGE = "usage"
    # Report of a specialist, in the place that the sequencer gave it. order (in the call, from 0), statement,
    # stream, identity, revision, late, call_id, body
    ANNOTATION = "annotation"
    # Input of the sequencer of a call, as far as its order depends on it. call_id, settings (with the first
    # of a call), operations (JSON lines; the payload of a report is left out)
    JOURNAL = "journal"
    # Recording of a call. call_id, state ("announced", "started", "degraded", "ended"; "paused" and "resumed"
    # for a private pause, also of a call that is not recorded); with "announced" text; with "degraded"
    # reason, lost_ms; with "ended" duration_ms, lost_ms; with "paused" and "resumed" by ("operator", "tool",
    # "time")
    RECORDING = "recording"
    # Signed entry of the evidence about an event (``session_store.evidence``). of (its seq), kind, digest,
    # number (from 1), previous (hash of the entry before), signer (public key), signature
    EVIDENCE = "evidence"
    # Hold of a call. call_id, state ("began", "ended"); at its end by ("caller", "time", "goodbye")
    HOLD = "hold"
    # An operator listens to a call while it lasts, or no longer. call_id, state ("began", "ended")
    LISTENED = "listened"
    # An operator has changed the tags of the session. tags (all of them from here on, in order)
    TAGS = "tags"


@dataclass(frozen=True, slots=True)
class Draft:
    """Event that waits for its commit.

    Attributes:
        kind: type of the event.
        payload: JSON object; the store adds ``v``.
        event_us: when it happened, on the session clock.
        arrival_us: when this process received it.
        source: reporter of the event: a specialist, "user", "bot", "tool", "system".
        speaker: person it is about.
        final: false for a partial, which may be superseded.
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
        """Return the event that the draft becomes when it is committed at that place."""
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
    """Committed draft.

    Attributes:
        session_id: of the session.
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
