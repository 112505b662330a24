"""Records of the connections that a call has lost, read when it goes on over a new one.

Input: the timeline of the session. Output: the announcements that the caller has heard to their end, and the
place in the session at which the call began. The streams of one phone call carry its name (``line``) in their
JOINED events. That of a page's call is the id of its first connection, and stands in the events of the later
ones.
"""

from collections.abc import Iterable

from loguru import logger

from parley.core.errors import StoreError
from parley.pipelines.call import EarlierStreams
from parley.session_store.events import Event, Kind
from parley.session_store.store import SessionStore

# Newest events that are read: a stream leaves two, and a recorded one about five.
MOST_READ = 200
KINDS = (Kind.JOINED, Kind.LEFT, Kind.RECORDING, Kind.DISCLOSED)


async def read_earlier_streams(store: SessionStore, session_id: str, line: str) -> EarlierStreams:
    """Return the records of the connections of a call; without any knowledge where they cannot be read.

    Args:
        store: open.
        session_id: of the session.
        line: name of the call in its events.
    """
    try:
        events = await store.timeline(session_id, limit=MOST_READ, kinds=KINDS, newest_first=True)
    except StoreError as error:
        logger.warning(f"cannot read what the caller of a lost connection has heard: {error}")
        return EarlierStreams()
    return earlier_streams(events, line, is_whole=len(events) < MOST_READ)


def earlier_streams(events: Iterable[Event], line: str, *, is_whole: bool) -> EarlierStreams:
    """Return the records of the connections of a call.

    Args:
        events: newest events of the session, of ``KINDS``.
        line: name of the call.
        is_whole: there are no older events of these kinds.
    """
    known = list(events)
    joined = [
        each
        for each in known
        if each.kind is Kind.JOINED and line in (each.payload.get("line"), each.payload.get("call_id"))
    ]
    call_ids = {each.payload.get("call_id") for each in joined}
    announced = {
        text
        for each in known
        if (each.kind is Kind.DISCLOSED or each.payload.get("state") == "announced")
        and each.payload.get("call_id") in call_ids
        and isinstance(text := each.payload.get("text"), str)
    }
    if joined:
        return EarlierStreams(frozenset(announced), min(each.seq for each in joined))
    # A process that died at once has recorded nothing of the call: all events are older.
    return EarlierStreams(since_seq=max((each.seq for each in known), default=0) if is_whole else None)
