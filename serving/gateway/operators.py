"""Who the operator is: whoever may change this server, or see what is others'.

With a token in the environment (``admin_token_env``) it is whoever sends it, as ``Authorization: Bearer`` or
once to the login of the admin page, which is a cookie from then on: HttpOnly, so that no script reads it, and
SameSite=Strict, so that no other page's request carries it. Without a token it is whoever is on this machine,
while the server listens on a loopback address and no proxy is in between; on another address nobody is, and
they are told what to set.

A wrong token costs its sender's address one of ``WRONG_PER_MINUTE``; who has none left is refused before it
is compared. A cookie is 256 bits of chance and needs no such bound. Logins are of this process: a restart
ends them, and each replica of a gateway has its own.

    GET    /api/admin/session     whether this request is the operator's, and what would make it so
    POST   /api/admin/session     {token}: log in
    DELETE /api/admin/session     log out
"""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import secrets

from fastapi import APIRouter, HTTPException, Request, Response
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from core.newest import Newest
from serving.gateway.limits import Rate
from serving.gateway.middleware import is_loopback
from serving.gateway.requests import check_origin, client_of
from serving.gateway.settings import ServerSettings

PATH = "/api/admin"
COOKIE = "parley_operator"
LOGIN_S = 12 * 3600
# Browsers of operators; the oldest login ends when there is one more.
MOST_LOGINS = 100
WRONG_PER_MINUTE = 10
# 96 bits as hexadecimal; less can be guessed at ten a minute from many addresses.
LEAST_TOKEN_CHARS = 24
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Login(BaseModel):
    """Body of a login."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=1_000)


class OperatorState(BaseModel):
    """What a page has to know.

    Attributes:
        is_operator: whoever asks may change things.
        needs_token: a login is possible.
        token_env: variable that would have to be set for one.
    """

    is_operator: bool
    needs_token: bool
    token_env: str


class Operators:
    """See the module.

    Args:
        settings: of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._wrong = Rate(
            WRONG_PER_MINUTE,
            f"over {WRONG_PER_MINUTE} wrong tokens a minute from this address, try again later",
            clients=settings.counted_clients,
        )
        # By digest, so that a lookup takes as long for every cookie; when it ends, by the loop's clock.
        self._logins: Newest[str, float] = Newest(MOST_LOGINS)
        token = self._token()
        if token and len(token) < LEAST_TOKEN_CHARS:
            logger.warning(
                f"the token of {settings.admin_token_env} is shorter than {LEAST_TOKEN_CHARS} characters"
            )

    async def check(self, request: Request) -> None:
        """A dependency of routes that are the operator's.

        Raises:
            HTTPException: 403, it is somebody else.
            ShareError: too many wrong tokens came from there.
        """
        if self.is_operator(request):
            return
        token_env = self._settings.admin_token_env
        if self._token():
            raise HTTPException(403, f"for the operator: send the token of {token_env} as a bearer token")
        raise HTTPException(
            403,
            f"for the operator, who is known by a token: set {token_env} where the server runs, and send it "
            "as a bearer token",
        )

    def is_operator(self, request: Request) -> bool:
        """Whether whoever asks may see and change everything. Raises ShareError as ``check``."""
        token = self._token()
        if not token:
            return self._is_near(request)
        if self._is_logged_in(request):
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and bool(given) and self._is_token(request, given.strip())

    def router(self) -> APIRouter:
        """The login."""
        router = APIRouter(prefix=f"{PATH}/session")

        @router.get("")
        async def state(request: Request) -> OperatorState:
            return self._state(is_operator=self.is_operator(request))

        @router.post("")
        async def log_in(body: Login, request: Request, response: Response) -> OperatorState:
            check_origin(request, allowed=self._settings.allowed_origins)
            if not self._token():
                await self.check(request)
                return self._state(is_operator=True)
            if not self._is_token(request, body.token):
                raise HTTPException(403, "that is not the token")
            response.set_cookie(
                COOKIE,
                self._logged_in(),
                max_age=LOGIN_S,
                httponly=True,
                samesite="strict",
                # Behind a proxy that speaks TLS only the page's own origin tells.
                secure=request.url.scheme == "https"
                or request.headers.get("origin", "").startswith("https:"),
            )
            return self._state(is_operator=True)

        @router.delete("")
        async def log_out(request: Request, response: Response) -> OperatorState:
            check_origin(request, allowed=self._settings.allowed_origins)
            self._logins.pop(_digest(request.cookies.get(COOKIE, "")), None)
            response.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return self._state(is_operator=not self._token() and self._is_near(request))

        return router

    def _state(self, *, is_operator: bool) -> OperatorState:
        return OperatorState(
            is_operator=is_operator,
            needs_token=bool(self._token()),
            token_env=self._settings.admin_token_env,
        )

    def _token(self) -> str:
        return os.environ.get(self._settings.admin_token_env, "")

    def _is_token(self, request: Request, given: str) -> bool:
        client = client_of(request, trusted_proxies=self._settings.trusted_proxies)
        self._wrong.check(client)
        if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token().encode()):
            return True
        self._wrong.take(client)
        return False

    def _is_near(self, request: Request) -> bool:
        """On this machine, and not by way of a proxy on it: what that passes on comes from anywhere."""
        settings = self._settings
        named = settings.allowed_hosts or settings.trusted_proxies
        if named or any(name in request.headers for name in FORWARDING_HEADERS):
            return False
        return is_loopback(settings.host) and _is_loopback_peer(request)

    def _is_logged_in(self, request: Request) -> bool:
        ends_s = self._logins.get(_digest(request.cookies.get(COOKIE, "")))
        return ends_s is not None and asyncio.get_running_loop().time() < ends_s

    def _logged_in(self) -> str:
        cookie = secrets.token_urlsafe(32)
        self._logins[_digest(cookie)] = asyncio.get_running_loop().time() + LOGIN_S
        return cookie


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()


def _is_loopback_peer(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
