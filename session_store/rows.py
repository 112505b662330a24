"""Rows of the tables and the objects that they represent.

Decides what may be stored. A draft is validated before it is queued. A draft that no database accepts is thus
refused to its caller, and never reaches a transaction that others share.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from parley.core.errors import StoreError
from parley.session_store.events import PAYLOAD_VERSION, Draft, Event, Kind

# PostgreSQL indexes at most 2,704 bytes of a key, and a character takes up to four.
MAX_NAME_CHARS = 500
MAX_INT = 2**63 - 1
# Characters of an id in a log: enough to identify the session, too few to use it.
SHOWN_CHARS = 8
SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Row = dict[str, Any]
# Columns of ``event`` after the place of the event in the timeline: session, seq and epoch.
DRAFT_COLUMNS = (
    *("event_us", "arrival_us", "kind", "source", "speaker", "final", "confidence", "payload", "key"),
)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Session as it was read.

    Attributes:
        id: unguessable.
        tenant: to which it belongs.
        epoch: of its newest claim, 0 before the first.
        last_seq: of its newest event, and so the number of its events.
        created_us: wall clock, microseconds since the Unix epoch.
        last_us: the latest time of any of its events, or of its creation.
        owner: digest of the client that created it (``core.grants``); None: the operator. Not exported.
        kv_handle: context that a worker has of it; None: there is none. Not exported.
    """

    id: str
    tenant: str
    epoch: int
    last_seq: int
    created_us: int
    last_us: int
    owner: str | None = None
    kv_handle: str | None = None


def shown_id(session_id: str) -> str:
    """Return the beginning of an id, for logs and messages.

    Without client keys a whole id gives access to its session.
    """
    return f"{session_id[:SHOWN_CHARS]}..."


def session_info(row: sa.Row[Any]) -> SessionInfo:
    """Return a session from a whole row of ``session``."""
    return SessionInfo(
        row.id,
        row.tenant,
        row.epoch,
        row.next_seq - 1,
        row.created_us,
        row.last_us,
        row.owner,
        row.kv_handle,
    )


def draft_row(draft: Draft, *, max_payload_bytes: int) -> Row:
    """Return a draft as a row without its place: session, seq and epoch.

    Raises:
        StoreError: no database would accept it.
    """
    payload = payload_json({"v": PAYLOAD_VERSION, **draft.payload}, max_bytes=max_payload_bytes)
    row = {
        "event_us": draft.event_us,
        "arrival_us": draft.arrival_us,
        "kind": draft.kind,
        "source": draft.source,
        "speaker": draft.speaker,
        "final": draft.final,
        "confidence": draft.confidence,
        "payload": payload,
        "key": draft.key,
    }
    check_row(row)
    return row


def payload_json(payload: Mapping[str, Any], *, max_bytes: int) -> str:
    """Return a payload as stored: ASCII, so that it has as many bytes as characters.

    Raises:
        StoreError: not JSON, or too long.
    """
    try:
        text = _encoder.encode(payload)
    except (TypeError, ValueError, RecursionError) as error:
        # Not the encoder's message, which may quote the conversation.
        raise StoreError(f"a payload is not JSON ({type(error).__name__})") from None
    if len(text) > max_bytes:
        raise StoreError(f"a payload of {len(text)} bytes is over the limit of {max_bytes}")
    return text


def is_tenant(name: str) -> bool:
    """Return whether a tenant may have this name."""
    return 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def check_row(row: Mapping[str, Any]) -> None:
    """Check every column but the payload.

    Raises:
        StoreError: a database would not accept it, or would return another value.
    """
    for name in ("event_us", "arrival_us"):
        _check(name, type(row[name]) is int and 0 <= row[name] <= MAX_INT)
    _check("kind", row["kind"] in _KINDS)
    for name in ("source", "key"):
        _check(name, _is_name(row[name]))
    _check("speaker", row["speaker"] is None or _is_name(row["speaker"]))
    _check("final", isinstance(row["final"], bool))
    _check(
        "confidence",
        isinstance(row["confidence"], int | float)
        and not isinstance(row["confidence"], bool)
        and math.isfinite(row["confidence"]),
    )


def event_of(row: Mapping[str, Any]) -> Event:
    """Return an event from a whole row of ``event``.

    Raises:
        StoreError: its kind is unknown to this release.
    """
    return _event(row, json.loads(row["payload"]), row["session_id"], row["seq"], row["epoch"])


def event_text(row: Mapping[str, Any], *, with_session: bool) -> str:
    """Return a whole row of ``event`` as JSON; the payload is JSON already and is not parsed.

    Raises:
        StoreError: its kind is unknown to this release.
    """
    if row["kind"] not in _KINDS:
        raise _unknown_kind(row["kind"])
    place = ("session_id", "seq", "epoch", "kind") if with_session else ("seq", "epoch", "kind")
    before = _encoder.encode({name: row[name] for name in place})
    after = _encoder.encode({name: row[name] for name in DRAFT_COLUMNS if name not in ("kind", "payload")})
    return f'{before[:-1]},"payload":{row["payload"]},{after[1:]}'


def new_event(draft: Row, *, session_id: str, seq: int, epoch: int) -> Event:
    """Return the event of a ``draft_row`` that has received its place.

    The payload is decoded from its text all the same. The event equals the one that a reader of the database
    gets, and does not change with the draft.
    """
    payload, _end = _decoder.raw_decode(draft["payload"])
    return _event(draft, payload, session_id, seq, epoch)


def _unknown_kind(kind: object) -> StoreError:
    return StoreError(f"an event is of the kind {kind!r}, which a newer release has written")


def _event(row: Mapping[str, Any], payload: Any, session_id: str, seq: int, epoch: int) -> Event:
    kind = _KINDS.get(row["kind"])
    if kind is None:
        raise _unknown_kind(row["kind"])
    return Event(
        session_id=session_id,
        seq=seq,
        epoch=epoch,
        kind=kind,
        payload=payload,
        event_us=row["event_us"],
        arrival_us=row["arrival_us"],
        source=row["source"],
        speaker=row["speaker"],
        final=row["final"],
        confidence=float(row["confidence"]),
        key=row["key"],
    )


_KINDS = {kind.value: kind for kind in Kind}
_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder()


def _is_name(value: object) -> bool:
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS or "\0" in value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(name: str, good: bool) -> None:
    if not good:
        raise StoreError(f"the {name} of an event cannot be stored")
