"""Model requests of tokens that carry a total, counted over all processes with one store.

One statement counts a request and checks the total, so that processes that count at once never exceed it.
A row stays until its token, and the tokens that renew it, can make no request any more.
"""

from functools import partial

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.session_store.schema import token_request_table
from parley.session_store.store import SessionStore

# Time between two deletions of expired rows by one process: not with each request.
PURGE_US = 60_000_000
_row = token_request_table.c


class TokenRequests:
    """Requests of all processes with one store, for one of them.

    Args:
        store: that holds them.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._purged_us: int | None = None

    async def take(self, budget: str, *, total: int, until_s: float) -> int | None:
        """Count a request.

        Args:
            budget: id under which the requests of a token count.
            total: greatest number of requests.
            until_s: Unix time until which the count is needed.

        Returns:
            Number of requests with this one; None when none was left.

        Raises:
            StoreUnavailableError: the database does not answer; the request may be counted, even twice.
        """
        now_us = self._store.wall_us()
        purges = self._purged_us is None or now_us - self._purged_us >= PURGE_US
        until_us = round(until_s * 1e6)
        work = partial(
            _take, budget=budget, total=total, until_us=until_us, purged_us=now_us if purges else None
        )
        count = await self._store.transact(work)
        if purges:
            self._purged_us = now_us
        return count

    async def give_back(self, budget: str, count: int) -> None:
        """Take back the count of requests that were not made.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        await self._store.transact(partial(_give_back, budget=budget, count=count))


def _take(
    connection: sa.Connection, *, budget: str, total: int, until_us: int, purged_us: int | None
) -> int | None:
    if purged_us is not None:
        connection.execute(sa.delete(token_request_table).where(_row.until_us <= purged_us))
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    counted = (
        insert(token_request_table)
        .values(budget=budget, requests=1, until_us=until_us)
        .on_conflict_do_update(
            index_elements=[_row.budget],
            set_={"requests": _row.requests + 1, "until_us": until_us},
            where=_row.requests < total,
        )
        .returning(_row.requests)
    )
    count = connection.scalar(counted)
    return None if count is None else int(count)


def _give_back(connection: sa.Connection, *, budget: str, count: int) -> None:
    connection.execute(
        sa.update(token_request_table)
        .where(_row.budget == budget, _row.requests >= count)
        .values(requests=_row.requests - count)
    )
