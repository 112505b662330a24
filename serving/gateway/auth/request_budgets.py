"""Total model requests of tokens that carry a limit (``Grants.max_requests``), over all processes.

A request is counted in the session store before the model is asked: one durable write, for such tokens alone.
Where the store does not answer, the request is refused. A total that is used up is remembered for
``USED_UP_S`` without asking the store again. Counts of requests that were not made are used for the next
request of their token here, or go back to the store by a task. One for which the store does not answer stays
counted, because it may be there already: a total is never exceeded. Owns that task, from ``put_back`` to
``close``.

Without a store totals are kept in the memory of this process, which begins anew.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from loguru import logger

from parley.core.errors import StoreError
from parley.core.grants import Grants
from parley.serving.gateway.limits import ShareError
from parley.session_store.token_requests import TokenRequests

# Number of token totals that are kept, some 20 MB, and how long after its last request one is kept: longer
# than any token is valid.
MOST_BUDGETS, BUDGET_S = 100_000, 8 * 86_400.0
# Clocks of the processes agree to this.
SKEW_S = 60.0
# Meanwhile another process may have given a request back.
USED_UP_S = 5.0


class RequestBudgets:
    """Totals of tokens.

    Args:
        most: number of totals that are kept. A token with a further one gets no request until some are
            removed, because one that is removed early could be spent again; with a store that holds them, the
            oldest ones are removed.
        wall_s: Unix time.
    """

    def __init__(self, *, most: int = MOST_BUDGETS, wall_s: Callable[[], float] = time.time) -> None:
        self._most = most
        self._wall_s = wall_s
        self._store: TokenRequests | None = None
        # Requests of each token and the time of the last one, the least recently used first; with a store
        # those that it last reported.
        self._spent: dict[str, tuple[int, float]] = {}
        # Requests that were counted in the store and not made.
        self._unmade: dict[str, int] = {}
        self._returning: asyncio.Task[None] | None = None

    def start(self, store: TokenRequests) -> None:
        """Count in the store from here on; the owner calls ``close``."""
        self._store = store

    async def close(self) -> None:
        """Give back to the store what was not made."""
        if self._unmade:
            self._begin_return()
        if self._returning is not None:
            await asyncio.wait({self._returning})

    def check(self, grants: Grants) -> None:
        """Check that a request is left, as far as this process knows.

        Raises:
            ShareError: none is left, or too many totals are kept.
        """
        total = grants.max_requests
        if total is None:
            return
        spent, at_s = self._spent.get(grants.budget, (0, 0.0))
        is_known = self._store is None or self._wall_s() - at_s < USED_UP_S
        if spent >= total and is_known and grants.budget not in self._unmade:
            raise _used_up(total)
        if self._store is None and grants.budget not in self._spent and len(self._spent) >= self._most:
            self._forget()
            if len(self._spent) >= self._most:
                raise ShareError(
                    "too many tokens with a request limit are in use, try again later", limit=self._most
                )

    async def take(self, grants: Grants) -> None:
        """Count a request.

        Raises:
            ShareError: as ``check`` does.
            StoreUnavailableError: the store does not answer.
        """
        self.check(grants)
        total, budget = grants.max_requests, grants.budget
        if total is None:
            return
        if self._store is None or budget in self._unmade:
            self._take_unmade(budget)
            self._note(budget, self._known(budget) + 1)
            return
        until_s = self._wall_s() + BUDGET_S
        if grants.expires_s is not None:
            until_s = min(until_s, grants.expires_s + SKEW_S)
        spent = await self._taken(self._store, grants, total, until_s)
        self._note(budget, total if spent is None else spent)
        if spent is None:
            raise _used_up(total)

    async def _taken(self, store: TokenRequests, grants: Grants, total: int, until_s: float) -> int | None:
        """Count in the store; where the wait for it is cancelled, give back what it has counted."""
        taking = asyncio.create_task(
            store.take(grants.budget, total=total, until_s=until_s), name="gateway.budgets.take"
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(partial(self._put_back_taken, grants))
            raise

    def _put_back_taken(self, grants: Grants, taking: asyncio.Task[int | None]) -> None:
        if not taking.cancelled() and taking.exception() is None and taking.result() is not None:
            self.put_back(grants)

    def put_back(self, grants: Grants) -> None:
        """Take back the count of a request that was not made."""
        budget = grants.budget
        if grants.max_requests is None or (self._store is None and budget not in self._spent):
            return
        spent, at_s = self._spent.get(budget, (0, 0.0))
        self._spent[budget] = max(0, spent - 1), at_s
        if self._store is not None and (budget in self._unmade or len(self._unmade) < self._most):
            self._unmade[budget] = self._unmade.get(budget, 0) + 1
            self._begin_return()

    def _known(self, budget: str) -> int:
        return self._spent.get(budget, (0, 0.0))[0]

    def _note(self, budget: str, spent: int) -> None:
        self._spent.pop(budget, None)
        self._spent[budget] = spent, self._wall_s()
        if self._store is not None and len(self._spent) > self._most:
            del self._spent[next(iter(self._spent))]

    def _take_unmade(self, budget: str) -> None:
        count = self._unmade.pop(budget, 0) - 1
        if count > 0:
            self._unmade[budget] = count

    def _begin_return(self) -> None:
        if self._returning is None or self._returning.done():
            self._returning = asyncio.create_task(self._return(), name="gateway.budgets")

    async def _return(self) -> None:
        while self._unmade and self._store is not None:
            budget = next(iter(self._unmade))
            count = self._unmade.pop(budget)
            try:
                await self._store.give_back(budget, count)
            except StoreError as error:
                logger.warning(f"{count} requests of a token that were not made remain counted: {error}")

    def _forget(self) -> None:
        before_s = self._wall_s() - BUDGET_S
        while self._spent and next(iter(self._spent.values()))[1] < before_s:
            del self._spent[next(iter(self._spent))]


def _used_up(total: int) -> ShareError:
    return ShareError(
        f"this token has used its {total} model requests; get another token", limit=total, retry_s=None
    )
