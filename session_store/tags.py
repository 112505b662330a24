"""Tags of sessions, by which an operator finds them again.

A change of the tags is an event of the session, which names all of its tags from then on: they are exported
and deleted with it. The newest tags are also rows of their own with an index, for the search. Both are
written in one transaction and without a claim, so that a session can be tagged during a call, also one of
another process: the event comes between those of the claim's holder, which keep their order.
"""

import unicodedata
from collections.abc import Callable
from functools import partial

import sqlalchemy as sa

from parley.core.errors import StoreError
from parley.session_store.committing import Append, commit_appends, standing_epoch, write_tags
from parley.session_store.events import Draft, Kind
from parley.session_store.reading import read_tags
from parley.session_store.rows import Row, draft_row
from parley.session_store.store import SessionStore

# Tags of one session, and characters of one.
MOST_TAGS, MOST_TAG_CHARS = 20, 40
_MOST_PAYLOAD_BYTES = 20_000


class TagError(StoreError):
    """A text is no tag, or a session has as many as it may have."""


def normalised(text: str) -> str:
    """Return a tag as it is stored and compared: in one form of Unicode, in small letters, single spaces.

    Raises:
        TagError: it is empty or too long, or has a comma or a character that is not shown.
    """
    tag = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if not 0 < len(tag) <= MOST_TAG_CHARS:
        raise TagError(f"a tag has 1 to {MOST_TAG_CHARS} characters")
    if "," in tag or not tag.isprintable():
        raise TagError("a tag has no comma and no control characters")
    return tag


class SessionTags:
    """Tags of all sessions of a store.

    Args:
        store: that holds them.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def of_session(self, session_id: str) -> tuple[str, ...]:
        """Return the tags of a session, in the order of the alphabet.

        Raises:
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        await self._store.info(session_id)
        return await self._store.look(partial(read_tags, session_id=session_id))

    async def add(self, session_id: str, tag: str) -> tuple[str, ...]:
        """Add a normalised tag; return all of them. One that is there changes nothing.

        Raises:
            TagError: the session has ``MOST_TAGS``.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        return await self._change(session_id, lambda tags: tags | {tag})

    async def remove(self, session_id: str, tag: str) -> tuple[str, ...]:
        """Remove a normalised tag, if it is there; return those that are left. Raises as ``add``."""
        return await self._change(session_id, lambda tags: tags - {tag})

    async def _change(
        self, session_id: str, change: Callable[[frozenset[str]], frozenset[str]]
    ) -> tuple[str, ...]:
        now_us = self._store.wall_us()
        # The key of the event: a second attempt, after the answer to the first was lost, changes nothing.
        draft = Draft(Kind.TAGS, {}, now_us, now_us, "system")
        work = partial(_changed, session_id=session_id, draft=draft, change=change)
        tags = await self._store.transact(work)
        self._store.announce(session_id)
        return tags


def _changed(
    connection: sa.Connection,
    *,
    session_id: str,
    draft: Draft,
    change: Callable[[frozenset[str]], frozenset[str]],
) -> tuple[str, ...]:
    # It locks the session: two changes at a time come one after the other.
    epoch = standing_epoch(connection, session_id)
    before = read_tags(connection, session_id)
    tags = tuple(sorted(change(frozenset(before))))
    if tags == before:
        return before
    if len(tags) > MOST_TAGS:
        raise TagError(f"this session has {MOST_TAGS} tags already")
    row = _row(draft, tags)
    [outcome] = commit_appends(connection, [Append(session_id, epoch, [row])])
    if isinstance(outcome, Exception):
        raise outcome
    write_tags(connection, session_id, tags)
    return tags


def _row(draft: Draft, tags: tuple[str, ...]) -> Row:
    made = Draft(
        draft.kind, {"tags": list(tags)}, draft.event_us, draft.arrival_us, draft.source, key=draft.key
    )
    return draft_row(made, max_payload_bytes=_MOST_PAYLOAD_BYTES)
