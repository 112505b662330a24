"""Call of a session that has lost its connection, found in the session's events.

A client that says its call goes on (``reconnect``) is believed where the newest call of the session was over
the same transport, and ended, or left its last record, so recently that a client may still try to go on. A
page cannot say more: hanging up and losing the connection leave the same records.
"""

from collections.abc import Collection, Sequence

from parley.session_store.events import Event, Kind
from parley.session_store.store import SessionStore

US_PER_S = 1_000_000
# Longer than a page tries to go on (a minute), by the time in which a server notices that it is gone.
LEFT_S = 90
# Time since the last record of a call that did not end here: its caller may have been silent before.
SILENT_S = 600
# Newest events that are read: a call leaves two of these, and two more for each time its camera is shared.
MOST_READ = 50
KINDS = (Kind.JOINED, Kind.LEFT)
CAMERA = "camera"


async def lost_call(
    store: SessionStore, session_id: str, *, transports: Collection[str], now_us: int
) -> str | None:
    """Return the name of the call that a client may go on with; None when there is none.

    Args:
        store: open.
        session_id: of the session.
        transports: of the client, as in the session's records.
        now_us: present time.

    Raises:
        UnknownSessionError: there is no such session.
        StoreUnavailableError: the database does not answer.
    """
    newest = await store.timeline(session_id, limit=1, newest_first=True)
    bounds = await store.timeline(session_id, limit=MOST_READ, kinds=KINDS, newest_first=True)
    return name_of_lost(bounds, newest, transports=transports, now_us=now_us)


def name_of_lost(
    bounds: Sequence[Event], newest: Sequence[Event], *, transports: Collection[str], now_us: int
) -> str | None:
    """Return the name of the lost call; None when there is none.

    Args:
        bounds: events of ``KINDS``, newest first.
        newest: newest event of the session; empty without any.
        transports: of the client.
        now_us: present time.
    """
    calls = [each for each in bounds if each.payload.get("transport") != CAMERA]
    joined = next((each for each in calls if each.kind is Kind.JOINED), None)
    if joined is None or joined.payload.get("transport") not in transports:
        return None
    call_id = joined.payload.get("call_id")
    left = next(
        (each for each in calls if each.kind is Kind.LEFT and each.payload.get("call_id") == call_id), None
    )
    # The session may go on after its call, in writing.
    last, within_s = (left, LEFT_S) if left is not None else (newest[0], SILENT_S)
    if now_us - last.arrival_us > within_s * US_PER_S:
        return None
    return str(joined.payload.get("line") or call_id)
