"""Call of a session that has lost its connection, found in the session's events.

A client that says its call goes on (``reconnect``) is believed where the newest call of the session was one
of such a client, and ended, or left its last turn, so recently that a client may still try to go on. A call
that the server ended after a goodbye or at a limit is over; one that a stopping server or a failed engine
ended goes on. The records do not tell whether a client hung up or lost the connection.
"""

from collections.abc import Sequence

from parley.core.pictures import CAMERA, SCREEN
from parley.session_store.events import Event, Kind
from parley.session_store.store import SessionStore

US_PER_S = 1_000_000
# A page tries for a minute, and its last attempt may take ten seconds; the server may notice before the page.
LEFT_S = 90
# Time since the last turn of a call whose end is not recorded: its caller may have been silent before.
SILENT_S = 600
# Names of the transports whose clients may go on, in the records of sessions.
TRANSPORTS = ("webrtc", "pipecat", "eval", "duplex_ws")
# Newest events that are read: a call leaves two bounds, and two more for each time its camera is shared.
MOST_BOUNDS, MOST_TURNS = 50, 20
BOUNDS, TURNS = (Kind.JOINED, Kind.LEFT), (Kind.USER_TURN, Kind.BOT_TURN)
# Transports of a call that are no call of their own.
SHOWN = (CAMERA, SCREEN)
# Reasons for which a server ends a call and is right to, in the record of its end: no client goes on with it.
FINAL = (
    "silence",
    "goodbye",
    "rate_limit_exceeded",
    "tenant_limit",
    "grants_expired",
    "ended_by_operator",
)


async def lost_call(store: SessionStore, session_id: str, *, now_us: int) -> str | None:
    """Return the name of the call that a client may go on with; None when there is none.

    Args:
        store: open.
        session_id: of the session.
        now_us: present time.

    Raises:
        UnknownSessionError: there is no such session.
        StoreUnavailableError: the database does not answer.
    """
    bounds = await store.timeline(session_id, limit=MOST_BOUNDS, kinds=BOUNDS, newest_first=True)
    turns = await store.timeline(session_id, limit=MOST_TURNS, kinds=TURNS, newest_first=True)
    return name_of_lost(bounds, turns, now_us=now_us)


def name_of_lost(bounds: Sequence[Event], turns: Sequence[Event], *, now_us: int) -> str | None:
    """Return the name of the lost call; None when there is none.

    Args:
        bounds: events of ``BOUNDS``, newest first.
        turns: events of ``TURNS``, newest first.
        now_us: present time.
    """
    calls = [each for each in bounds if each.payload.get("transport") not in SHOWN]
    joined = next((each for each in calls if each.kind is Kind.JOINED), None)
    if joined is None or joined.payload.get("transport") not in TRANSPORTS:
        return None
    call_id = joined.payload.get("call_id")
    left = next(
        (each for each in calls if each.kind is Kind.LEFT and each.payload.get("call_id") == call_id), None
    )
    if left is not None and left.payload.get("reason") in FINAL:
        return None
    last, within_s = (left, LEFT_S) if left is not None else (_last_of(joined, turns), SILENT_S)
    if now_us - last.arrival_us > within_s * US_PER_S:
        return None
    return str(joined.payload.get("line") or call_id)


def _last_of(joined: Event, turns: Sequence[Event]) -> Event:
    """Return the newest turn of a call, or its beginning: its session may go on in writing."""
    own = [each for each in turns if each.payload.get("transport") == joined.payload.get("transport")]
    return max((joined, *own), key=lambda each: each.seq)
