"""Contract of the session store for requests of tokens with a total, on SQLite and on a real PostgreSQL."""

import asyncio

import pytest
import sqlalchemy as sa

from parley.core.errors import StoreUnavailableError
from parley.core.grants import Grants
from parley.serving.gateway.auth.request_budgets import BUDGET_S, SKEW_S, RequestBudgets
from parley.serving.gateway.limits import ShareError
from parley.session_store.schema import token_request_table
from parley.session_store.store import SessionStore
from parley.session_store.token_requests import PURGE_US, TokenRequests
from tests.contracts.test_session_store import NOW_US, Opener, opening, url  # noqa: F401
from tests.peers.postgres import postgres, postgres_url  # noqa: F401

NOW_S = NOW_US / 1e6
PROCESSES, TOTAL = 4, 10
COUNT = sa.select(sa.func.count()).select_from(token_request_table)
GRANTS = Grants(max_requests=TOTAL, budget="a")


async def budgets_of(store: SessionStore) -> RequestBudgets:
    """Return the totals as one process counts them."""
    budgets = RequestBudgets(wall_s=lambda: store.wall_us() / 1e6)
    budgets.start(TokenRequests(store))
    return budgets


async def taken(budgets: RequestBudgets, grants: Grants = GRANTS) -> bool:
    try:
        await budgets.take(grants)
    except ShareError:
        return False
    return True


async def test_processes_that_count_at_once_never_exceed_a_total(opening: Opener, url: str) -> None:  # noqa: F811
    processes = [await budgets_of(await opening(url)) for _ in range(PROCESSES)]
    wanted = [taken(each) for _ in range(TOTAL) for each in processes]
    assert sum(await asyncio.gather(*wanted)) == TOTAL
    # Another process, or the same one after a restart.
    late = await budgets_of(await opening(url))
    assert not await taken(late)
    assert await taken(late, Grants(max_requests=TOTAL, budget="another"))


async def test_a_request_that_was_not_made_is_there_for_another_process(opening: Opener, url: str) -> None:  # noqa: F811
    here, there = await budgets_of(await opening(url)), await budgets_of(await opening(url))
    grants = Grants(max_requests=1, budget="a")
    assert await taken(here, grants)
    here.put_back(grants)
    await here.close()
    assert await taken(there, grants)
    assert not await taken(here, grants)


async def test_a_row_is_deleted_when_its_token_can_ask_no_more(opening: Opener, url: str) -> None:  # noqa: F811
    now_us = NOW_US
    store: SessionStore = await opening(url, now_us=lambda: now_us)
    budgets = await budgets_of(store)
    assert await taken(budgets, Grants(max_requests=1, budget="ends", expires_s=NOW_S + 120))
    assert await taken(budgets, Grants(max_requests=1, budget="stays"))
    ends_us = round((NOW_S + 120 + SKEW_S) * 1e6)
    # The row of the token that takes, and the ones that are left.
    for now_us, rows in (
        (ends_us - PURGE_US, 3),
        (ends_us, 2),
        (round((NOW_S + BUDGET_S + 1) * 1e6), 1),
    ):
        ends_s = now_us / 1e6 + BUDGET_S
        assert await taken(budgets, Grants(max_requests=9, budget="takes", expires_s=ends_s))
        assert await store.query(lambda connection: connection.scalar(COUNT)) == rows


async def test_a_store_that_does_not_answer_refuses_a_token_with_a_total_alone(
    opening: Opener,  # noqa: F811
    url: str,  # noqa: F811
) -> None:
    store: SessionStore = await opening(url)
    budgets = await budgets_of(store)
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await budgets.take(GRANTS)
    await budgets.take(Grants())
