"""Who may begin a conversation: a key of an application, or a token that it was given for one of its users.

Without keys everybody may who reaches the server, which listens on loopback by default. With keys (a variable
of the environment, several of them separated by commas) whoever begins a call, opens a socket or makes a
session shows one of them, or a token. An application's back end gets tokens for its users by ``POST
/api/token``: each is good for one beginning, within ``call_token_s``. What a token began is known by ids that
nobody can guess, and needs no second one; ``next_token`` in the answer is for another beginning of the same
user, until ``call_token_renewed_s`` after the first one.

A browser cannot set headers of a WebSocket: there the token is one of the subprotocols that it offers,
``parley.token.TOKEN`` or, as OpenAI's clients do, ``openai-insecure-api-key.TOKEN``. It is never part of an
address, which ends up in logs.

Pure but for its clock. Used tokens are remembered until they would have expired; more than ``MOST_USED`` at a
time and nobody gets in until some have.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request
from starlette.requests import HTTPConnection

from core.errors import ConfigError
from serving.gateway.limits import Rate
from serving.gateway.requests import client_of
from serving.gateway.settings import ServerSettings

LEAST_KEY_CHARS = 16
MOST_TOKEN_CHARS = 1_000
MOST_USED = 100_000
SUBPROTOCOLS = ("parley.token.", "openai-insecure-api-key.")
NEEDED = "a key or a token is needed: Authorization: Bearer, or a subprotocol parley.token.TOKEN"


@dataclass(frozen=True, slots=True)
class _Token:
    """What a token says.

    Attributes:
        token_id: of it alone.
        expires_s: Unix time.
        renewed_until_s: so long the same user is given another one.
    """

    token_id: str
    expires_s: float
    renewed_until_s: float


class Access:
    """Of one process.

    Args:
        settings: names the variable with the keys.
        wall_s: Unix time.

    Raises:
        ConfigError: a key is too short to be one.
    """

    def __init__(self, settings: ServerSettings, *, wall_s: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._wall_s = wall_s
        given = os.environ.get(settings.call_keys_env, "")
        self._keys = tuple(key.strip().encode() for key in given.split(",") if key.strip())
        if any(len(key) < LEAST_KEY_CHARS for key in self._keys):
            raise ConfigError(f"{settings.call_keys_env}: a key has at least {LEAST_KEY_CHARS} characters")
        # Every process with the same keys takes the same tokens; each remembers those that were used with it.
        self._secret = hashlib.sha256(b"parley call tokens\0" + b"\0".join(self._keys)).digest()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._wrong = Rate(
            settings.wrong_tokens_per_minute,
            "too many wrong tokens from this address, try again later",
            clients=settings.counted_clients,
        )

    @property
    def is_open(self) -> bool:
        """Whether everybody may who reaches the server."""
        return not self._keys

    def admit(self, connection: HTTPConnection) -> str | None:
        """Let somebody begin.

        Returns:
            A token for another beginning of the same user; None where none is needed or due.

        Raises:
            HTTPException: 401, nothing was shown, or it is wrong, used or too old.
            ShareError: too much that was wrong came from there.
        """
        token = self._good(connection)
        return None if token is None else self._take(token)

    def check(self, connection: HTTPConnection) -> None:
        """The same as ``admit``, before anything else is looked at: the token stays as good as it is."""
        self._good(connection)

    def _good(self, connection: HTTPConnection) -> _Token | None:
        """The token that somebody shows, which was not used yet; None where none is needed."""
        if self.is_open:
            return None
        shown = _shown(connection)
        if not shown:
            raise HTTPException(401, NEEDED, {"WWW-Authenticate": "Bearer"})
        client = client_of(connection, trusted_proxies=self._settings.trusted_proxies)
        self._wrong.check(client)
        if self._is_key(shown):
            return None
        try:
            return self._unused(shown)
        except HTTPException:
            self._wrong.take(client)
            raise

    def router(self) -> APIRouter:
        """``POST /api/token``, for back ends that have a key."""
        router = APIRouter()

        @router.post("/api/token")
        async def token(request: Request) -> dict[str, object]:
            if self.is_open:
                raise HTTPException(
                    404, f"no token is needed here: {self._settings.call_keys_env} is not set"
                )
            shown, client = (
                _shown(request),
                client_of(request, trusted_proxies=self._settings.trusted_proxies),
            )
            self._wrong.check(client)
            if not shown or not self._is_key(shown):
                self._wrong.take(client)
                raise HTTPException(401, "a key is needed to get a token", {"WWW-Authenticate": "Bearer"})
            return {"token": self.mint(), "expires_s": self._settings.call_token_s}

        return router

    def mint(self, *, renewed_until_s: float | None = None) -> str:
        """A token that was not used yet."""
        now_s = self._wall_s()
        until_s = now_s + self._settings.call_token_renewed_s if renewed_until_s is None else renewed_until_s
        facts = [secrets.token_urlsafe(12), now_s + self._settings.call_token_s, until_s]
        body = base64.urlsafe_b64encode(json.dumps(facts).encode()).rstrip(b"=")
        return f"{body.decode()}.{self._signature(body)}"

    def _signature(self, body: bytes) -> str:
        return hmac.new(self._secret, body, hashlib.sha256).hexdigest()

    def _is_key(self, shown: str) -> bool:
        # All of them are looked at, whichever it is.
        return any([hmac.compare_digest(shown.encode(), key) for key in self._keys])

    def _unused(self, shown: str) -> _Token:
        token = self._read(shown)
        now_s = self._wall_s()
        while self._used and next(iter(self._used.values())) <= now_s:
            self._used.popitem(last=False)
        if token.expires_s <= now_s:
            raise HTTPException(401, "the token is too old, get another one")
        if token.token_id in self._used:
            raise HTTPException(401, "the token has been used, get another one")
        return token

    def _take(self, token: _Token) -> str | None:
        now_s = self._wall_s()
        if len(self._used) >= MOST_USED:
            raise HTTPException(503, "too many calls begin at this moment, try again later")
        self._used[token.token_id] = token.expires_s
        return self.mint(renewed_until_s=token.renewed_until_s) if token.renewed_until_s > now_s else None

    def _read(self, shown: str) -> _Token:
        body, _, signature = shown.partition(".")
        if not hmac.compare_digest(self._signature(body.encode()).encode(), signature.encode()):
            raise HTTPException(401, "the token is none of this server's")
        try:
            token_id, expires_s, until_s = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            return _Token(str(token_id), float(expires_s), float(until_s))
        except (ValueError, TypeError, binascii.Error) as error:
            raise HTTPException(401, "the token cannot be read") from error


def _shown(connection: HTTPConnection) -> str:
    """The key or token that somebody shows; empty when there is none."""
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()[:MOST_TOKEN_CHARS]
    for offered in connection.scope.get("subprotocols") or []:
        for prefix in SUBPROTOCOLS:
            if offered.startswith(prefix):
                return str(offered)[len(prefix) :][:MOST_TOKEN_CHARS]
    return ""
