"""Identify clients, and decide what they may begin and use.

With keys (a variable of the environment that holds one or several, separated by commas), a client presents a
credential to begin a call, open a socket or create a session. The credential is a key, a token
(``client_keys``) or the operator's token. An application's back end gets tokens for its users by ``POST
/api/token``, with a body that narrows what the user may do. Each token begins one conversation, within
``CALL_TOKEN_S``. ``next_token`` in the answer begins another one for the same user, until
``CALL_TOKEN_RENEWED_S`` after the first. Until then any of a user's tokens, even a used one, reads, types
into and deletes the sessions that this user has begun.

A session belongs to the client that began it: to a key, to a user of a key, or to a browser without a
credential, identified by a cookie that the page gets. With keys, a session's id alone opens nothing; an
application may use the sessions of its users. Without keys, an id is enough to read and type; deleting needs
the cookie or the operator's token. Sessions of phone calls, and those without an owner, are the
operator's.

A browser cannot set headers of a WebSocket. There the token is one of the subprotocols that it offers:
``parley.token.TOKEN`` or, as OpenAI's clients do, ``openai-insecure-api-key.TOKEN``. It is never part of an
address, because addresses end up in logs. A browser cannot set headers of an event stream or a link either.
``POST /api/client`` turns a token into a cookie, with which it can read and type, but begin nothing.

Used tokens are remembered until they would have expired, here and in the session store: a token begins
nothing on another process either. With more than ``MOST_USED`` of them here, or without an answer of the
store, nothing begins with a token. Without keys, a bearer token at the beginning of a call is the operator's
or has no meaning: many clients always send one, so a wrong one is not counted.
"""

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from parley.core.errors import StoreUnavailableError
from parley.core.grants import BROWSER_PREFIX, ClientIdentity, Grants, KeyScope
from parley.serving.gateway.admin.apps import AppId
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.auth_failures import AuthFailures
from parley.serving.gateway.auth.client_keys import (
    CALL_TOKEN_S,
    EPHEMERAL,
    MOST_TOKEN_CHARS,
    ClientKeys,
    ClientToken,
    TokenError,
    narrowed,
)
from parley.serving.gateway.http.ranges import Range
from parley.serving.gateway.http.requests import check_origin, client_of
from parley.serving.gateway.settings import CALL_KEYS_ENV, COUNTED_CLIENTS, ServerSettings

MOST_USED = 100_000
SUBPROTOCOLS = ("parley.token.", "openai-insecure-api-key.")
NEEDED = "a key or a token is needed: Authorization: Bearer, or a subprotocol parley.token.TOKEN"
USED = "the token has been used; get another one"
COOKIE = "parley_client"
# Not the digest of a key, by which the other tenants are named.
OPERATOR = "operator"
# 256 random bits, as ``secrets.token_urlsafe(32)`` writes them.
BROWSER = re.compile(r"[A-Za-z0-9_-]{43}")
BROWSER_S = 400 * 86_400
SESSION_ID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
MOST_USER_CHARS = 200

Name = Annotated[str, Field(min_length=1, max_length=100)]


class TokenRequest(BaseModel):
    """Body of ``POST /api/token``: grants of the user; the deployment decides those that are left out."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(None, min_length=1, max_length=MOST_USER_CHARS)
    scopes: list[KeyScope] | None = Field(None, min_length=1, max_length=len(KeyScope))
    surfaces: list[AppId] | None = None
    instructions: bool = False
    client_tools: bool = False
    client_mcp: bool = False
    deployment_tools: list[Name] | None = Field(None, max_length=50)
    sessions: list[Annotated[str, Field(pattern=SESSION_ID_PATTERN)]] | None = Field(None, max_length=20)
    turns_per_minute: Annotated[int | None, Range(1, 1_000_000)] = None
    max_calls: Annotated[int | None, Range(1, 10_000)] = None
    max_requests: Annotated[int | None, Range(1, 1_000_000)] = None
    expires_s: Annotated[float | None, Range(1, 7 * 86_400)] = None

    def grants(self, default: Grants) -> Grants:
        """Return the grants of the user, where ``default`` is what the deployment gives users."""
        wanted = Grants(
            scopes=None if self.scopes is None else frozenset(self.scopes),
            surfaces=None if self.surfaces is None else frozenset(self.surfaces),
            instructions=self.instructions,
            client_tools=self.client_tools,
            client_mcp=self.client_mcp,
            deployment_tools=None if self.deployment_tools is None else frozenset(self.deployment_tools),
            sessions=None if self.sessions is None else frozenset(self.sessions),
        )
        # Numbers may exceed the default of users, up to those of the key.
        most = replace(
            default,
            instructions=True,
            client_tools=True,
            client_mcp=True,
            turns_per_minute=None,
            max_calls=None,
        )
        return replace(
            narrowed(wanted, most),
            turns_per_minute=self.turns_per_minute or default.turns_per_minute,
            max_calls=self.max_calls or default.max_calls,
            max_requests=self.max_requests,
        )


class SecretLifetime(BaseModel):
    """Field ``expires_after`` of ``POST /v1/realtime/client_secrets``, with the bounds of that protocol."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Range(10, 7_200)] = 600


class SecretSession(BaseModel):
    """Field ``session`` of ``POST /v1/realtime/client_secrets``.

    A token holds grants and no settings: the client sends its settings by ``session.update``.
    """

    type: Literal["realtime"] = "realtime"
    model: str = Field("parley", max_length=100)
    instructions: None = Field(None, description="not here: the client sends them, where its grants permit")
    tools: None = Field(None, description="as instructions")


class SecretRequest(BaseModel):
    """Body of ``POST /v1/realtime/client_secrets``."""

    expires_after: SecretLifetime = SecretLifetime()
    session: SecretSession = SecretSession()


@dataclass(frozen=True, slots=True)
class AdmittedClient:
    """Client that may begin something.

    Attributes:
        identity: of the client.
        next_token: for its next beginning; None where none is needed or due.
    """

    identity: ClientIdentity
    next_token: str | None = None


class TakesTokens(Protocol):
    """Tokens that were used up by any process (``session_store.used_tokens``)."""

    async def take(self, token_id: str, *, until_s: float) -> bool:
        """Use up a token; return False when another process has used it up."""
        ...


class Access:
    """Access of clients to one process.

    Args:
        settings: of the server.
        tokens: used up by all processes; None: this is the only one.
        operators: clients that need no key; None: there are none.
        keys: of applications; None: those of the environment.
        auth_failures: counts wrong credentials.
        audit: records them.
        wall_s: Unix time.

    Raises:
        ConfigError: a key is too short.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        tokens: TakesTokens | None = None,
        operators: AdminAuth | None = None,
        keys: ClientKeys | None = None,
        auth_failures: AuthFailures | None = None,
        audit: AuditLog | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._operators = operators
        self._keys = ClientKeys(settings, wall_s=wall_s) if keys is None else keys
        self._auth_failures = auth_failures or AuthFailures(clients=COUNTED_CLIENTS)
        self._audit = audit or AuditLog()
        self._used: OrderedDict[str, float] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """True when any client that reaches the server may begin calls."""
        return not self._keys

    async def check(self, connection: HTTPConnection, surface: str | None = None) -> ClientIdentity:
        """Identify a client that is about to begin something; its token remains unused.

        Args:
            connection: of the client.
            surface: id of the app that it opens.

        Raises:
            HTTPException: 401, no credential, or one that is wrong, used or expired; 403, the surface or the
                scope is not granted; 429, too many wrong credentials are being answered.
        """
        identity, _ = await self._beginning(connection, surface)
        return identity

    async def admit(self, connection: HTTPConnection, surface: str | None = None) -> AdmittedClient:
        """Admit a client that begins something; its token is used up.

        Raises:
            HTTPException: as ``check`` does; 503, too many used tokens are remembered.
            StoreUnavailableError: it is not known whether another process has used the token.
        """
        identity, token = await self._beginning(connection, surface)
        return AdmittedClient(identity, None if token is None else await self._take(token))

    def compare(self, connection: HTTPConnection) -> ClientIdentity:
        """Identify a client for counting, by comparisons alone.

        Returns:
            The operator, or an application that presents its key; any other client is its address.
        """
        known = self._known(connection, shown_by(connection))
        return known or ClientIdentity(address=self._address(connection))

    def tenant_of(self, connection: HTTPConnection) -> str | None:
        """Return the account of a request, by comparisons alone: the operator, or an application.

        Returns:
            None for a client that presents no valid key, token or cookie of a token.
        """
        if self._operators is not None and self._operators.holds(connection):
            return OPERATOR
        if self.is_open:
            return None
        shown = shown_by(connection)
        if shown and (application := self._keys.application_of(shown)) is not None:
            return application
        token = self._readable(shown or connection.cookies.get(COOKIE, "")[:MOST_TOKEN_CHARS])
        return None if token is None else token.application

    def check_current(self, identity: ClientIdentity) -> None:
        """Check that the grants of a client have not ended.

        Raises:
            HTTPException: 401, they have.
        """
        expires_s = identity.grants.expires_s
        if expires_s is not None and expires_s <= self._keys.now_s:
            raise HTTPException(401, "the grants of this client have expired; get another token")

    async def identify(self, connection: HTTPConnection, scope: KeyScope) -> ClientIdentity:
        """Identify a client that begins nothing, but reads, types or continues.

        Args:
            connection: of the client.
            scope: that it needs.

        Raises:
            HTTPException: as ``check`` does.
        """
        identity = await self._identified(connection)
        self.check_scope(identity, scope)
        return identity

    async def _identified(self, connection: HTTPConnection) -> ClientIdentity:
        shown = shown_by(connection)
        known = self._known(connection, shown)
        if known is not None:
            return known
        if not shown:
            # A browser sends a cookie on its own: an expired one is ignored and not counted as a guess.
            token = self._readable(connection.cookies.get(COOKIE, "")[:MOST_TOKEN_CHARS])
            if token is None:
                raise HTTPException(401, NEEDED, {"WWW-Authenticate": "Bearer"})
            return self._user(connection, token)
        token = self._readable(shown)
        if token is None:
            raise await self._wrong(connection, "the token was not issued by this server, or has expired")
        return self._user(connection, token)

    def may_use(self, identity: ClientIdentity, session_id: str, owner: str | None) -> bool:
        """Return whether a client may read a session, type into it and continue it."""
        if identity.is_operator or self.is_open:
            return True
        if identity.grants.sessions is not None:
            return session_id in identity.grants.sessions and self._same_application(identity, owner)
        return identity.owns(owner)

    def check_use(self, identity: ClientIdentity, session_id: str, owner: str | None) -> None:
        """Check that ``may_use`` holds.

        Raises:
            HTTPException: 403, it does not.
        """
        if not self.may_use(identity, session_id, owner):
            raise HTTPException(403, "the session belongs to another client")

    def check_scope(self, identity: ClientIdentity, scope: KeyScope) -> None:
        """Check that the key of a client, and its token, have a scope.

        Raises:
            HTTPException: 403, they do not.
        """
        scopes = identity.grants.scopes
        if scopes is not None and scope not in scopes:
            raise HTTPException(
                403, f"this needs the scope {scope}, which the key or the token does not have"
            )

    async def identify_reader_of_vault(self, connection: HTTPConnection) -> ClientIdentity:
        """Identify an application whose key names the scope of the vault.

        Raises:
            HTTPException: as ``identify`` does; 403 also for a token, a key without scopes, and the operator.
        """
        identity = await self.identify(connection, KeyScope.REVEAL)
        if identity.grants.scopes is None or not identity.is_application:
            raise HTTPException(
                403, f"this needs a key of an application that names the scope {KeyScope.REVEAL}"
            )
        return identity

    def check_surface(self, identity: ClientIdentity, surface: str) -> None:
        """Check that a client may open a surface.

        Raises:
            HTTPException: 403, it may not.
        """
        surfaces = identity.grants.surfaces
        if surfaces is not None and surface not in surfaces:
            raise HTTPException(403, f"this client may not open {surface}")

    def check_new_session(self, identity: ClientIdentity) -> None:
        """Check that a client may begin sessions, and not only continue named ones.

        Raises:
            HTTPException: 403, it may not.
        """
        if identity.grants.sessions is not None:
            raise HTTPException(403, "this client may not begin sessions: name one that it may resume")

    async def check_deletion(self, connection: HTTPConnection, owner: str | None) -> ClientIdentity:
        """Identify a client that deletes a session of this owner.

        Raises:
            HTTPException: as ``identify`` does; 403, it is neither the owner nor the operator.
        """
        identity = await self._identified(connection)
        if identity.owns(owner) and identity.grants.sessions is None:
            self.check_scope(identity, KeyScope.OPERATE)
            return identity
        if self._operators is not None and await self._operators.is_operator(connection):
            return self._operator(connection)
        raise HTTPException(403, "a session can be deleted only by its owner or an operator")

    def set_cookie(self, connection: HTTPConnection, response: Response) -> str | None:
        """Give a client without a credential the cookie by which it owns the sessions that it begins.

        Returns:
            The owner that the cookie identifies; None where it has one already, or needs another credential.
        """
        if not self.is_open or BROWSER.fullmatch(connection.cookies.get(COOKIE, "")):
            return None
        cookie = secrets.token_urlsafe(32)
        set_client_cookie(connection, response, cookie, max_age_s=BROWSER_S)
        return _browser_of(cookie)

    def router(self) -> APIRouter:
        """Return the routes ``POST /api/token`` (for back ends with a key), the same in the form of OpenAI's
        protocol, and ``POST /api/client`` (for pages).
        """
        router = APIRouter()

        async def application(request: Request) -> str:
            if self.is_open:
                raise HTTPException(404, f"no token is needed here, because {CALL_KEYS_ENV} is not set")
            shown = shown_by(request)
            found = self._keys.application_of(shown) if shown else None
            if found is None:
                why = "a key is needed to get a token"
                if not shown or self._keys.is_credential(shown):
                    raise HTTPException(401, why, {"WWW-Authenticate": "Bearer"})
                raise await self._wrong(request, why)
            return found

        @router.post("/api/token")
        async def token(
            application: Annotated[str, Depends(application)], body: TokenRequest | None = None
        ) -> dict[str, object]:
            """Return a token for one user of an application, with at most the grants of its key."""
            wanted = body or TokenRequest()
            key = ClientIdentity(application, grants=self._keys.grants_of_key(application))
            for scope in wanted.scopes or ():
                self.check_scope(key, scope)
            grants = wanted.grants(self._settings.clients.user.grants())
            made = self._keys.mint(application, user=wanted.user, grants=grants, for_s=wanted.expires_s)
            expires_s = min(CALL_TOKEN_S, wanted.expires_s or CALL_TOKEN_S)
            return {"token": made, "expires_s": expires_s}

        @router.post("/v1/realtime/client_secrets")
        async def client_secret(
            application: Annotated[str, Depends(application)], body: SecretRequest | None = None
        ) -> dict[str, object]:
            """Return a token for one call by OpenAI's realtime protocol, as its clients read it."""
            wanted = body or SecretRequest()
            key = ClientIdentity(application, grants=self._keys.grants_of_key(application))
            self.check_scope(key, KeyScope.TALK)
            default = self._settings.clients.user.grants()
            # The body has no fields for these: the deployment decides.
            request = TokenRequest(
                surfaces=["openai_realtime"],
                instructions=default.instructions,
                client_tools=default.client_tools,
                client_mcp=default.client_mcp,
            )
            grants = request.grants(default)
            # The time in which it begins a call, at most that of any token; the call may last longer.
            begin_s = min(CALL_TOKEN_S, wanted.expires_after.seconds)
            return {
                "value": EPHEMERAL + self._keys.mint(application, grants=grants, begin_s=begin_s),
                "expires_at": int(self._keys.now_s + begin_s),
                "session": {
                    "type": "realtime",
                    "object": "realtime.session",
                    "id": f"sess_{secrets.token_hex(12)}",
                    "model": wanted.session.model,
                },
            }

        @router.post("/api/client", status_code=204)
        async def client(request: Request, response: Response) -> None:
            """Set the cookie that identifies a browser; with client keys from its token."""
            check_origin(request, allowed=self._settings.allowed_origins)
            if self.is_open:
                self.set_cookie(request, response)
                return
            identity = await self._identified(request)
            shown = shown_by(request)
            token = self._readable(shown) if shown else None
            if token is None or identity.is_operator:
                raise HTTPException(400, "a cookie needs a token: send Authorization: Bearer TOKEN")
            max_age_s = int(token.until_s - self._keys.now_s)
            set_client_cookie(request, response, shown, max_age_s=max(1, max_age_s))

        return router

    async def _beginning(
        self, connection: HTTPConnection, surface: str | None
    ) -> tuple[ClientIdentity, ClientToken | None]:
        token: ClientToken | None = None
        shown = shown_by(connection)
        identity = self._known(connection, shown)
        if identity is None:
            if not shown:
                raise HTTPException(401, NEEDED, {"WWW-Authenticate": "Bearer"})
            token = await self._unused(connection, shown)
            identity = self._user(connection, token)
        self.check_scope(identity, KeyScope.TALK)
        if surface is not None:
            self.check_surface(identity, surface)
        return identity, token

    def _known(self, connection: HTTPConnection, shown: str) -> ClientIdentity | None:
        """Return the identity of a client that needs no token; None for any other.

        That is the operator, any client of a server without keys, or an application with its key.
        """
        if self._operators is not None and self._operators.holds(connection):
            return self._operator(connection)
        if self.is_open:
            return self._anonymous(connection)
        application = self._keys.application_of(shown) if shown else None
        if application is None:
            return None
        return ClientIdentity(application, self._address(connection), self._keys.grants_of_key(application))

    def _operator(self, connection: HTTPConnection) -> ClientIdentity:
        most = Grants(instructions=True, client_tools=True, client_mcp=True)
        return ClientIdentity("", self._address(connection), most, is_operator=True)

    def _user(self, connection: HTTPConnection, token: ClientToken) -> ClientIdentity:
        return ClientIdentity(token.owner, self._address(connection), token.grants)

    def _anonymous(self, connection: HTTPConnection) -> ClientIdentity:
        cookie = connection.cookies.get(COOKIE, "")
        return ClientIdentity(
            "",
            self._address(connection),
            self._settings.clients.anonymous.grants(),
            browser=_browser_of(cookie) if BROWSER.fullmatch(cookie) else "",
        )

    def _address(self, connection: HTTPConnection) -> str:
        return client_of(connection, trusted_proxies=self._settings.trusted_proxies)

    def _same_application(self, identity: ClientIdentity, owner: str | None) -> bool:
        """Return whether an owner belongs to the client's application.

        A token that names sessions opens none of another application, and none of the operator.
        """
        return owner is not None and ClientIdentity(owner).application == identity.application

    def _readable(self, shown: str) -> ClientToken | None:
        """Return the token if it may still read, which it may for longer than it begins; otherwise None."""
        try:
            token = self._keys.read(shown)
        except TokenError:
            return None
        return token if token.until_s > self._keys.now_s else None

    async def _unused(self, connection: HTTPConnection, shown: str) -> ClientToken:
        """Return the token if it may begin a conversation; raise HTTPException otherwise."""
        try:
            token = self._keys.read(shown)
        except TokenError as error:
            raise await self._wrong(connection, str(error)) from error
        now_s = self._keys.now_s
        while self._used and next(iter(self._used.values())) <= now_s:
            self._used.popitem(last=False)
        # These tokens carry our signature, so they are not guesses.
        if token.begin_until_s <= now_s:
            raise HTTPException(401, "the token has expired; get another one")
        if token.token_id in self._used:
            raise HTTPException(401, USED)
        return token

    async def _take(self, token: ClientToken) -> str | None:
        if len(self._used) >= MOST_USED:
            raise HTTPException(503, "too many calls are starting at this moment, try again later")
        if token.token_id in self._used:
            # Another beginning with it was admitted meanwhile.
            raise HTTPException(401, USED)
        self._used[token.token_id] = token.begin_until_s
        if self._tokens is not None:
            try:
                is_new = await self._tokens.take(token.token_id, until_s=token.begin_until_s)
            except StoreUnavailableError:
                # Nothing has begun with it, and the client tries again.
                self._used.pop(token.token_id, None)
                raise
            if not is_new:
                raise HTTPException(401, USED)
        return self._keys.next_of(token)

    async def _wrong(self, connection: HTTPConnection, why: str) -> HTTPException:
        address = self._address(connection)
        self._audit.record_wrong_credential("credential.wrong", address=address, path=_path_of(connection))
        return await self._auth_failures.refuse(
            address, HTTPException(401, why, {"WWW-Authenticate": "Bearer"})
        )


def shown_by(connection: HTTPConnection) -> str:
    """Return the key or token that a client presents; empty when there is none."""
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()[:MOST_TOKEN_CHARS]
    for offered in connection.scope.get("subprotocols") or []:
        for prefix in SUBPROTOCOLS:
            if offered.startswith(prefix):
                return str(offered)[len(prefix) :][:MOST_TOKEN_CHARS]
    return ""


def set_client_cookie(connection: HTTPConnection, response: Response, value: str, *, max_age_s: int) -> None:
    """Set the cookie of a client, which no script can read and no page of another site can send."""
    response.set_cookie(
        COOKIE,
        value,
        max_age=max_age_s,
        httponly=True,
        samesite="strict",
        # Where a proxy terminates TLS, only the page's own origin reveals it.
        secure=connection.url.scheme == "https" or connection.headers.get("origin", "").startswith("https:"),
    )


def _browser_of(cookie: str) -> str:
    """Return the owner of the sessions of a browser with this cookie."""
    return f"{BROWSER_PREFIX}{hashlib.sha256(cookie.encode()).hexdigest()[:32]}"


def _path_of(connection: HTTPConnection) -> str:
    """Return the path template of the route; without a route, the first part of the path."""
    route = connection.scope.get("route")
    path = getattr(route, "path", None)
    return str(path) if path else f"/{connection.scope.get('path', '').strip('/').partition('/')[0]}"
