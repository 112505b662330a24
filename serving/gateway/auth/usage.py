"""Usage of one client: sessions and turns per minute, model requests in all, and concurrent calls.

A turn is counted when a model is requested to answer it. Further requests within it, after tool results, are
not counted as turns; the total of a token (``Grants.max_requests``) counts every request. Totals are
counted over all processes (``request_budgets``).

Usage is counted by identity (``core.grants``): by owner for an application and its users, by address for an
anonymous client. The operator is not counted, nor is an identity without owner and address (a call on this
machine). One object of each kind serves the whole process and all surfaces: a client gets no new allowance
with another protocol.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from fastapi import HTTPException
from loguru import logger

from parley.core.errors import CapacityError, StoreUnavailableError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.auth.request_budgets import RequestBudgets
from parley.serving.gateway.auth.tenants import Tenants
from parley.serving.gateway.http.requests import BodyError
from parley.serving.gateway.limits import Rate, ShareError, Slot
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerSettings
from parley.session_store.store import SessionStore
from parley.session_store.token_requests import TokenRequests

# Share of the lines for one address whose client presents no key.
ADDRESS_LINES = 0.75
# Share of a minute's turns that may be taken at once: 60 of 240 by default.
REQUESTS_AT_ONCE = 0.25


class RequestRate:
    """Rate of one kind of request, of an address or of an application with a key.

    Args:
        settings: of the server.
        per_minute: of one address.
        key_per_minute: of one application, whatever addresses its back ends have.
        full: message of an empty bucket, as in ``Rate``.
    """

    def __init__(self, settings: ServerSettings, per_minute: int, *, key_per_minute: int, full: str) -> None:
        self._key_per_minute = key_per_minute
        self._rate = Rate(per_minute, full, clients=COUNTED_CLIENTS)

    def take(self, identity: ClientIdentity) -> None:
        """Count one request, except of the operator.

        Raises:
            ShareError: the client has used up its rate.
        """
        if not identity.is_operator:
            client, limit = self._bucket(identity)
            self._rate.take(client, limit=limit)

    def put_back(self, identity: ClientIdentity) -> None:
        """Take back the count of a request."""
        if not identity.is_operator:
            client, limit = self._bucket(identity)
            self._rate.put_back(client, limit=limit)

    def _bucket(self, identity: ClientIdentity) -> tuple[str, int | None]:
        """Return the client that a request counts for, and its own limit."""
        return (identity.owner, self._key_per_minute) if identity.is_application else (identity.address, None)


class UsageLimits:
    """Rates of every client, totals of tokens, and limits of tenants.

    Args:
        settings: of the server.
        wall_s: Unix time.

    Attributes:
        tenants: of the deployment.
    """

    def __init__(self, settings: ServerSettings, *, wall_s: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._wall_s = wall_s
        self.tenants = Tenants(settings.tenants, wall_us=lambda: round(wall_s() * 1e6))
        self._budgets = RequestBudgets(wall_s=wall_s)
        self._requests = Rate(
            1,
            "over {limit} turns a minute of this client, try again later",
            clients=COUNTED_CLIENTS,
            burst=REQUESTS_AT_ONCE,
        )
        self._sessions = RequestRate(
            settings,
            settings.sessions_per_minute,
            key_per_minute=settings.clients.key_sessions_per_minute,
            full="over {limit} new sessions a minute from this address, try again later",
        )

    def start(self, store: SessionStore, tenants: Mapping[str, str]) -> None:
        """Begin to count in the store; the owner calls ``close``.

        Args:
            store: open.
            tenants: as for ``Tenants.start``.
        """
        self._budgets.start(TokenRequests(store))
        self.tenants.start(store, tenants)

    async def close(self) -> None:
        """Report to the store what is left."""
        await self._budgets.close()
        await self.tenants.close()

    async def take(self, identity: ClientIdentity) -> Slot:
        """Count one turn in every count that it is part of or, where one of them refuses it, in none.

        Returns:
            The counted turn, to be released where no model request is made.

        Raises:
            ShareError: the client has used up its rate, its tenant a limit, or its grants have ended.
            StoreUnavailableError: the total of its token cannot be counted.
        """
        self.tenants.check_turn(identity)
        return await self._take(identity)

    async def _take(self, identity: ClientIdentity) -> Slot:
        limits = self._limits(identity)
        for client, limit in limits:
            self._requests.check(client, limit=limit)
        for client, limit in limits:
            self._requests.take(client, limit=limit)
        try:
            await self._budgets.take(identity.grants)
        except BaseException:
            for client, limit in limits:
                self._requests.put_back(client, limit=limit)
            raise
        return Slot(partial(self._put_back, identity, limits))

    def _put_back(self, identity: ClientIdentity, limits: Sequence[tuple[str, int]]) -> None:
        self._budgets.put_back(identity.grants)
        for client, limit in limits:
            self._requests.put_back(client, limit=limit)

    async def try_take_further(self, identity: ClientIdentity) -> bool:
        """Count a model request after a tool result; return whether the client may have it."""
        try:
            await self._budgets.take(identity.grants)
        except (ShareError, StoreUnavailableError) as error:
            _log_uncounted(error)
            return False
        return True

    def check(self, identity: ClientIdentity) -> None:
        """Check that ``take`` would count another turn; counts none.

        Raises:
            ShareError: as ``take`` does.
        """
        self.tenants.check_turn(identity)
        self._check(identity)

    def _check(self, identity: ClientIdentity) -> None:
        for client, limit in self._limits(identity):
            self._requests.check(client, limit=limit)
        self._budgets.check(identity.grants)

    def has_request(self, identity: ClientIdentity) -> bool:
        """Return whether ``try_take`` would count another turn; counts none."""
        try:
            self._check(identity)
        except ShareError:
            return False
        return True

    async def try_take(self, identity: ClientIdentity) -> bool:
        """Count one turn of a running call if the client may have it; return whether it may.

        A limit of the client's tenant does not refuse it: such a call is ended, or goes on (``Tenants``). A
        store that does not answer refuses a turn of a token with a total.
        """
        try:
            await self._take(identity)
        except (ShareError, StoreUnavailableError) as error:
            _log_uncounted(error)
            return False
        return True

    def _limits(self, identity: ClientIdentity) -> list[tuple[str, int]]:
        """Return every count that a turn of this client is part of, with its limit."""
        if identity.is_operator:
            return []
        expires_s = identity.grants.expires_s
        if expires_s is not None and expires_s <= self._wall_s():
            raise ShareError(
                "the grants of this client have expired; get another token", limit=0, retry_s=None
            )
        clients = self._settings.clients
        limit = identity.grants.turns_per_minute
        if not identity.owner:
            anonymous = limit or clients.anonymous.turns_per_minute
            return [(identity.address, anonymous)] if identity.address else []
        # Requests of its users count for the application too, because it pays for them.
        own = [] if identity.is_application else [(identity.owner, limit or clients.user.turns_per_minute)]
        return [*own, (identity.application, clients.key.turns_per_minute)]

    def take_session(self, identity: ClientIdentity) -> Slot:
        """Count one new session.

        Returns:
            The counted session, to be released where the conversation is refused (``unless_refused``).

        Raises:
            ShareError: the client has used up its rate, or its tenant may store no more.
        """
        self.tenants.check_session(identity)
        self._sessions.take(identity)
        return Slot(partial(self._sessions.put_back, identity))


def _log_uncounted(error: Exception) -> None:
    if isinstance(error, StoreUnavailableError):
        logger.warning(f"a request of a token with a total is refused: {error}")


@contextmanager
def unless_refused(counted: Slot | None) -> Iterator[None]:
    """Release what was counted, if anything, when a conversation is refused in the block, or not stored.

    A refusal costs its client nothing, nor does a store that does not answer, nor a body that is not
    accepted, which includes that of a client that left before its answer. Another error of the client, such
    as an offer that cannot be negotiated, remains counted: each attempt of it makes work.
    """
    try:
        yield
    except (HTTPException, BodyError, CapacityError, StoreUnavailableError):
        if counted is not None:
            counted.give_back()
        raise


def share_of(lines: int, share: float, *, least: int = 1) -> int:
    """Return the number of lines in a share: not all of them, unless there are no more than ``least``.

    Args:
        lines: present number.
        share: between 0 and 1.
        least: minimum, even where the share is smaller.
    """
    return lines if lines <= least else min(max(least, int(lines * share)), lines - 1)


class CallShares:
    """Concurrent calls of every client.

    Args:
        settings: of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._clients = settings.clients
        self._max_calls = settings.max_calls
        self._taken: dict[str, int] = {}

    def check(
        self, identity: ClientIdentity, *, lines: int | None = None, heard_lines: int | None = None
    ) -> None:
        """Check that the client may have one more call.

        Args:
            identity: of the client.
            lines: present number of lines; None: ``max_calls``.
            heard_lines: those for calls that use the recogniser, if this is one; None: it is not.

        Raises:
            ShareError: it has as many as it may have at a time.
        """
        lines = self._max_calls if lines is None else lines
        for client, limit in self._limits(identity, lines, heard_lines).items():
            if self._taken.get(client, 0) >= limit:
                raise ShareError(
                    f"this client has {limit} concurrent calls, the most that it may have", limit=limit
                )

    def take(
        self, identity: ClientIdentity, *, lines: int | None = None, heard_lines: int | None = None
    ) -> Slot:
        """Take a share for one call.

        Args:
            identity, lines, heard_lines: as for ``check``.

        Raises:
            ShareError: as ``check`` does.
        """
        self.check(identity, lines=lines, heard_lines=heard_lines)
        limits = self._limits(identity, self._max_calls, heard_lines)
        for client in limits:
            self._taken[client] = self._taken.get(client, 0) + 1
        return Slot(lambda: self._free(limits))

    def _free(self, clients: Mapping[str, int]) -> None:
        for client in clients:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]

    def _limits(self, identity: ClientIdentity, lines: int, heard_lines: int | None) -> dict[str, int]:
        """Return every count that a call of this client is part of, with its limit."""
        if identity.is_operator:
            return {}
        limits: dict[str, int] = {}
        if identity.owner:
            limits[identity.application] = self._clients.key.max_calls or self._max_calls
        if not identity.is_application:
            if identity.owner and identity.grants.max_calls is not None:
                limits[identity.owner] = identity.grants.max_calls
            if identity.address:
                limits[f"address {identity.address}"] = self._of_address(lines)
                if heard_lines is not None:
                    limits[f"heard of {identity.address}"] = self._of_address(heard_lines)
        return limits

    def _of_address(self, lines: int) -> int:
        # With two lines in all, a person with two pages may have both.
        return self._clients.anonymous.max_calls or share_of(lines, ADDRESS_LINES, least=2)
