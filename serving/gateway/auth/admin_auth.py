"""Identify the operator: the client that may change this server, or read data of other clients.

The operator always presents a token: that of the environment (``ADMIN_TOKEN_ENV``), or the one generated at
the first start (``admin_token``). It comes as ``Authorization: Bearer``, or once to the login of the admin
page, which sets a cookie. The cookie is HttpOnly, so that no script reads it, and SameSite=Strict, so that no
request of another page carries it. A connection from this machine is not an identity: a proxy or a tunnel on
it forwards requests of strangers, which cannot be distinguished.

Wrong tokens are counted and answered late (``auth_failures``); the right one is never refused. Logins belong
to this process: a restart ends them, and each replica of a gateway has its own.

    GET    /api/admin/session     whether this request is the operator's, and the variable of the token
    POST   /api/admin/session     {token}: log in
    DELETE /api/admin/session     log out
"""

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Request, Response
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from parley.core.bounded_dict import BoundedDict
from parley.serving.gateway.auth.admin_token import LEAST_CHARS
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.auth_failures import AuthFailures
from parley.serving.gateway.http.requests import check_origin, client_of
from parley.serving.gateway.settings import ADMIN_TOKEN_ENV, COUNTED_CLIENTS, ServerSettings
from parley.session_store.rows import SHOWN_CHARS

PATH = "/api/admin"
COOKIE = "parley_operator"
LOGIN_S = 12 * 3600
# Number of logins; a further one ends the oldest.
MOST_LOGINS = 100
READING = ("GET", "HEAD", "OPTIONS")


class Login(BaseModel):
    """Body of a login."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=1_000)


class OperatorState(BaseModel):
    """State of a login.

    Attributes:
        is_operator: true when the request is the operator's.
        token_env: variable that sets the token.
    """

    is_operator: bool
    token_env: str


def _no_client(_shown: str) -> bool:
    return False


class AdminAuth:
    """Operators of one process.

    Args:
        settings: of the server.
        token: used where the environment has none; empty: a random one that is never shown, so that there is
            no operator.
        auth_failures: counts wrong tokens.
        is_client: returns whether a bearer token is a credential of a client, which is not a guess.
        audit: records logins, wrong tokens and actions.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        token: str = "",
        auth_failures: AuthFailures | None = None,
        is_client: Callable[[str], bool] = _no_client,
        audit: AuditLog | None = None,
    ) -> None:
        self._settings = settings
        given = os.environ.get(ADMIN_TOKEN_ENV, "")
        self._token = given or token or secrets.token_urlsafe(32)
        self._auth_failures = auth_failures or AuthFailures(clients=COUNTED_CLIENTS)
        self._is_client = is_client
        self._audit = audit or AuditLog()
        # Digest of the cookie, so that a lookup takes equally long for every cookie, to the loop time at
        # which the login ends.
        self._logins: BoundedDict[str, float] = BoundedDict(MOST_LOGINS)
        if given and len(given) < LEAST_CHARS:
            logger.warning(f"the token of {ADMIN_TOKEN_ENV} is shorter than {LEAST_CHARS} characters")

    async def check(self, request: Request) -> None:
        """Refuse a client that is not the operator: a dependency of the operator's routes.

        Raises:
            HTTPException: 403, another client, or a page of another origin; 429, too many wrong tokens are
                being answered.
        """
        if not self.holds(request):
            shown = _bearer(request)
            error = HTTPException(
                403,
                "for the operator: send the operator's token as a bearer token. The server prints it when it "
                f"starts and keeps it in its data folder; {ADMIN_TOKEN_ENV} sets another",
            )
            raise error if not shown or self._is_client(shown) else await self._wrong(request, error)
        if request.method not in READING:
            # A browser sends the cookie of a login on its own.
            check_origin(request, allowed=self._settings.allowed_origins)
            self._audit.record("operator.act", address=self._address(request), **_act_of(request))

    def holds(self, connection: HTTPConnection) -> bool:
        """Return whether a client is the operator, without counting a wrong token."""
        return self._is_logged_in(connection) or self._is_token(_bearer(connection))

    async def is_operator(self, connection: HTTPConnection) -> bool:
        """Return whether a client is the operator, for routes that others may use too.

        A guess is answered late.

        Raises:
            HTTPException: 429, too many wrong tokens are being answered.
        """
        if self.holds(connection):
            return True
        shown = _bearer(connection)
        if shown and not self._is_client(shown):
            error = await self._wrong(connection, HTTPException(403))
            if error.status_code != 403:
                raise error
        return False

    def router(self) -> APIRouter:
        """Return the routes of the login."""
        router = APIRouter(prefix=f"{PATH}/session")

        @router.get("")
        async def state(request: Request) -> OperatorState:
            """Return whether the request is the operator's."""
            return self._state(is_operator=await self.is_operator(request))

        @router.post("")
        async def log_in(body: Login, request: Request, response: Response) -> OperatorState:
            """Log the operator in with the token; sets a cookie."""
            check_origin(request, allowed=self._settings.allowed_origins)
            if not self._is_token(body.token):
                raise await self._wrong(request, HTTPException(403, "the token is wrong"))
            self._audit.record("operator.login", address=self._address(request))
            response.set_cookie(
                COOKIE,
                self._logged_in(),
                max_age=LOGIN_S,
                httponly=True,
                samesite="strict",
                # Behind a proxy that terminates TLS, only the page's own origin reveals it.
                secure=request.url.scheme == "https"
                or request.headers.get("origin", "").startswith("https:"),
            )
            return self._state(is_operator=True)

        @router.delete("")
        async def log_out(request: Request, response: Response) -> OperatorState:
            """End the login of this cookie."""
            check_origin(request, allowed=self._settings.allowed_origins)
            if self._logins.pop(_digest(request.cookies.get(COOKIE, "")), None) is not None:
                self._audit.record("operator.logout", address=self._address(request))
            response.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return self._state(is_operator=False)

        return router

    def _state(self, *, is_operator: bool) -> OperatorState:
        return OperatorState(is_operator=is_operator, token_env=ADMIN_TOKEN_ENV)

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), self._token.encode())

    async def _wrong(self, connection: HTTPConnection, error: HTTPException) -> HTTPException:
        address = self._address(connection)
        self._audit.record_wrong_credential("operator.wrong_token", address=address)
        return await self._auth_failures.refuse(address, error)

    def _address(self, connection: HTTPConnection) -> str:
        return client_of(connection, trusted_proxies=self._settings.trusted_proxies)

    def _is_logged_in(self, connection: HTTPConnection) -> bool:
        ends_s = self._logins.get(_digest(connection.cookies.get(COOKIE, "")))
        return ends_s is not None and asyncio.get_running_loop().time() < ends_s

    def _logged_in(self) -> str:
        cookie = secrets.token_urlsafe(32)
        self._logins[_digest(cookie)] = asyncio.get_running_loop().time() + LOGIN_S
        return cookie


def _bearer(connection: HTTPConnection) -> str:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _act_of(request: Request) -> dict[str, str]:
    """Return the route, with the beginning of the id of a session in its path."""
    route = request.scope.get("route")
    facts = {"method": request.method, "path": str(getattr(route, "path", ""))}
    session_id = request.path_params.get("session_id")
    return {**facts, "session": str(session_id)[:SHOWN_CHARS]} if session_id else facts


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()
