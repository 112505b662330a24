"""Tokens that have begun a conversation: none begins another one, on any process of a deployment.

A row stays until its token can begin nothing any more. The primary key decides between two processes that
take one token at the same time.
"""

import secrets
from functools import partial

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.session_store.schema import used_token_table
from parley.session_store.store import SessionStore

# Clocks of the processes agree to this.
SKEW_US = 60_000_000
_used = used_token_table.c


class UsedTokens:
    """Used tokens of all processes with one store, for one of them.

    Args:
        store: that holds them.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._taker = secrets.token_hex(8)

    async def take(self, token_id: str, *, until_s: float) -> bool:
        """Use up a token; its owner asks once, and again only where there was no answer.

        Args:
            token_id: unique to it.
            until_s: Unix time until which it could begin a conversation.

        Returns:
            False when another process has used it up.

        Raises:
            StoreUnavailableError: the database does not answer; the token may or may not be used up.
        """
        work = partial(
            _take,
            token_id=token_id,
            taker=self._taker,
            until_us=round(until_s * 1e6) + SKEW_US,
            now_us=self._store.wall_us(),
        )
        return await self._store.transact(work)


def _take(connection: sa.Connection, *, token_id: str, taker: str, until_us: int, now_us: int) -> bool:
    connection.execute(sa.delete(used_token_table).where(_used.until_us <= now_us))
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = {"token_id": token_id, "taker": taker, "until_us": until_us}
    connection.execute(insert(used_token_table).values(row).on_conflict_do_nothing())
    # It may be the row of an earlier transaction of this process, whose answer was lost.
    by = connection.scalar(sa.select(_used.taker).where(_used.token_id == token_id))
    return bool(by == taker)
