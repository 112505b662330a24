"""Contract of the session store for used tokens, on a SQLite file and on a real PostgreSQL server."""

import asyncio

import sqlalchemy as sa

from parley.session_store.schema import used_token_table
from parley.session_store.store import SessionStore
from parley.session_store.used_tokens import SKEW_US, UsedTokens
from tests.contracts.test_session_store import NOW_US, Opener, opening, url  # noqa: F401
from tests.peers.postgres import postgres, postgres_url  # noqa: F401

UNTIL_S = NOW_US / 1e6 + 120
PROCESSES, TOKENS = 4, 10


async def test_of_processes_that_take_a_token_at_once_one_gets_it(opening: Opener, url: str) -> None:  # noqa: F811
    processes = [UsedTokens(await opening(url)) for _ in range(PROCESSES)]
    taken = await asyncio.gather(
        *(each.take(f"token{number}", until_s=UNTIL_S) for number in range(TOKENS) for each in processes)
    )
    assert sum(taken) == TOKENS
    assert not await UsedTokens(await opening(url)).take("token0", until_s=UNTIL_S)


async def test_a_process_that_got_no_answer_may_take_its_token_again(opening: Opener, url: str) -> None:  # noqa: F811
    here, there = UsedTokens(await opening(url)), UsedTokens(await opening(url))
    assert await here.take("token", until_s=UNTIL_S)
    assert await here.take("token", until_s=UNTIL_S)
    assert not await there.take("token", until_s=UNTIL_S)


async def test_a_token_is_forgotten_when_no_clock_accepts_it_any_more(opening: Opener, url: str) -> None:  # noqa: F811
    now_us = NOW_US
    store: SessionStore = await opening(url, now_us=lambda: now_us)
    tokens = UsedTokens(store)
    assert await tokens.take("first", until_s=UNTIL_S)
    count = sa.select(sa.func.count()).select_from(used_token_table)
    last_us = round(UNTIL_S * 1e6) + SKEW_US
    # The row of the first one, and one more for each of these; then without the first one.
    for now_us, rows in ((last_us - 1, 2), (last_us, 2)):
        assert await tokens.take(str(now_us), until_s=UNTIL_S + 300)
        assert await store.query(lambda connection: connection.scalar(count)) == rows
