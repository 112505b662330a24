"""Keys of applications, and tokens that they give to their users.

Keys are listed in a variable of the environment (``CALL_KEYS_ENV``), plain or hashed (``key_entries``). A
token is ``v2.BODY.SIGNATURE``. The body is JSON in base64url, the signature an HMAC-SHA256 under the secret
of the key with which the token was made. Every process with the key accepts it, and removing a key
invalidates its tokens. A client secret of OpenAI's protocol has ``ek_`` before it. A token
names the application (a digest of the key), its user and the grants (``core.grants``). It holds two times:
until when it begins a conversation, and until when the same user gets another token and reads their sessions.

Decides what keys and tokens are; ``access`` finds them in requests. Pure except for its clock.
"""

import base64
import binascii
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from parley.core.errors import ConfigError, PeerError
from parley.core.grants import USER_SEPARATOR, Grants
from parley.serving.gateway.auth.key_entries import KeyEntry, hash_of, read_entries
from parley.serving.gateway.settings import CALL_KEYS_ENV, ServerSettings

# Enough for grants that name 20 sessions; a handshake carries it as a subprotocol.
MOST_TOKEN_CHARS = 3_000
VERSION = "v2"
# Precedes a token that is a client secret of OpenAI's: its clients for pages take no other credential.
EPHEMERAL = "ek_"
_DIGEST_CHARS = 32


# Validity of a token that an application gets for a user, and the time for which the same user gets another
# one with every beginning.
CALL_TOKEN_S = 120.0
CALL_TOKEN_RENEWED_S = 28_800.0


class TokenError(PeerError):
    """The token was not made by this server."""


@dataclass(frozen=True, slots=True)
class ClientToken:
    """Content of a token.

    Attributes:
        token_id: unique to it.
        application: digest of the key with which it was made.
        user: digest of the application's name for its user.
        begin_until_s: Unix time until which it begins one conversation.
        until_s: Unix time until which the same user gets another one, and reads and types.
        grants: of the user.
    """

    token_id: str
    application: str
    user: str
    begin_until_s: float
    until_s: float
    grants: Grants

    @property
    def owner(self) -> str:
        """Owner of the user's sessions (``core.grants.ClientIdentity``)."""
        return f"{self.application}{USER_SEPARATOR}{self.user}"


class ClientKeys:
    """Keys of one process.

    Args:
        settings: of the server.
        wall_s: Unix time.

    Raises:
        ConfigError: an entry of a variable is no key.
    """

    def __init__(self, settings: ServerSettings, *, wall_s: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._wall_s = wall_s
        named = {} if settings.tenants is None else settings.tenants.named
        self._keys: dict[str, KeyEntry] = {}
        self._tenants: dict[str, str] = {}
        for name, variable in [("", CALL_KEYS_ENV), *((name, each.keys_env) for name, each in named.items())]:
            keys = read_entries(variable)
            if name and not keys:
                raise ConfigError(
                    f"server.tenants.named.{name}: set the variable {variable} to the keys of the tenant"
                )
            for key in keys:
                self._add(name, key)

    @property
    def tenants(self) -> Mapping[str, str]:
        """Name of the tenant of each application; empty for one without a name."""
        return self._tenants

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def now_s(self) -> float:
        """Unix time."""
        return self._wall_s()

    def application_of(self, shown: str) -> str | None:
        """Return the application whose key this is; None for any other text."""
        hashed = hash_of(shown)
        # All of them are compared, so that the time reveals nothing.
        found = [application for application, key in self._keys.items() if key.matches(hashed)]
        return found[0] if found else None

    def is_credential(self, shown: str) -> bool:
        """Return whether a text is a key, or a token that has not expired completely."""
        if self.application_of(shown) is not None:
            return True
        try:
            return self.read(shown).until_s > self.now_s
        except TokenError:
            return False

    def grants_of_key(self, application: str) -> Grants:
        """Return the grants of an application's key, which are the most that a token of it may have."""
        return self._settings.clients.key.grants(scopes=self._keys[application].scopes)

    def owners_of_user(self, user: str, *, tenant: str | None = None) -> list[str]:
        """Return the owners of sessions that a user of this name may be, one for each application.

        Args:
            user: the application's name for its user.
            tenant: only of its applications; empty for those without a name; None: of all.
        """
        name = _user_name(user)
        return [
            f"{application}{USER_SEPARATOR}{name}"
            for application, of_tenant in self._tenants.items()
            if tenant in (None, of_tenant)
        ]

    def mint(
        self,
        application: str,
        *,
        user: str | None = None,
        grants: Grants | None = None,
        for_s: float | None = None,
        begin_s: float = CALL_TOKEN_S,
    ) -> str:
        """Return a token for one user of an application.

        Args:
            application: whose key requested it.
            user: the application's name for its user; None: a user without another token.
            grants: of the user; None: the deployment's default.
            for_s: time for which the user is served, at most that of the deployment; None: that of the
                deployment.
            begin_s: time in which the token begins a conversation, at most ``CALL_TOKEN_S``.

        Raises:
            TokenError: the grants are too long for a token.
        """
        now_s, renewed_s = self.now_s, CALL_TOKEN_RENEWED_S
        until_s = now_s + (renewed_s if for_s is None else min(for_s, renewed_s))
        begin_until_s = now_s + min(begin_s, CALL_TOKEN_S)
        if for_s is not None:
            begin_until_s = min(begin_until_s, now_s + for_s)
        granted = narrowed(grants or self._settings.clients.user.grants(), self.grants_of_key(application))
        if for_s is not None:
            granted = replace(granted, expires_s=now_s + for_s)
        if granted.max_requests is not None:
            # Tokens that renew this one carry the same id.
            granted = replace(granted, budget=secrets.token_urlsafe(12))
        name = secrets.token_hex(16) if user is None else _user_name(user)
        # The token reads for at least as long as it can begin a conversation.
        return self._signed(
            ClientToken(
                secrets.token_urlsafe(12),
                application,
                name,
                begin_until_s,
                max(until_s, begin_until_s),
                granted,
            )
        )

    def next_of(self, token: ClientToken) -> str | None:
        """Return the token for the next conversation of the same user; None when renewal has ended."""
        now_s = self.now_s
        if token.until_s <= now_s:
            return None
        begin_until_s = now_s + CALL_TOKEN_S
        if token.grants.expires_s is not None:
            begin_until_s = min(begin_until_s, token.grants.expires_s)
        return self._signed(replace(token, token_id=secrets.token_urlsafe(12), begin_until_s=begin_until_s))

    def read(self, shown: str) -> ClientToken:
        """Return the content of a token, even if it has expired.

        Raises:
            TokenError: it was not made with one of these keys.
        """
        version, _, rest = shown.removeprefix(EPHEMERAL).partition(".")
        body, _, signature = rest.partition(".")
        try:
            facts = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            application = str(facts["app"])
            secret = self._keys[application].secret
            good = version == VERSION and hmac.compare_digest(
                _signature(secret, body).encode(), signature.encode("utf-8", "surrogateescape")
            )
            if not good:
                raise TokenError("the token was not issued by this server")
            begin_until_s, until_s = float(facts["begin"]), float(facts["until"])
            if not (math.isfinite(begin_until_s) and math.isfinite(until_s)):
                raise TokenError("the token was not issued by this server")
            return ClientToken(
                str(facts["id"]),
                application,
                str(facts["user"]),
                begin_until_s,
                until_s,
                # The deployment may have become stricter since.
                narrowed(_grants_of(facts["may"]), self.grants_of_key(application)),
            )
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, binascii.Error) as error:
            raise TokenError("the token was not issued by this server") from error

    def _add(self, name: str, key: KeyEntry) -> None:
        application = key.application
        if self._tenants.get(application, name) not in ("", name):
            raise ConfigError(f"server.tenants.named.{name}: one of its keys is that of another tenant")
        if self._keys.get(application, key) != key:
            raise ConfigError("a key is listed twice, with other scopes or as its hash: remove one entry")
        self._keys[application], self._tenants[application] = key, name

    def _signed(self, token: ClientToken) -> str:
        facts = {
            "id": token.token_id,
            "app": token.application,
            "user": token.user,
            "begin": token.begin_until_s,
            "until": token.until_s,
            "may": _facts_of(token.grants),
        }
        text = json.dumps(facts, separators=(",", ":")).encode()
        body = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        signed = f"{VERSION}.{body}.{_signature(self._keys[token.application].secret, body)}"
        if len(signed) > MOST_TOKEN_CHARS:
            raise TokenError("the grants do not fit into a token: name fewer sessions, tools or surfaces")
        return signed


def narrowed(wanted: Grants, most: Grants) -> Grants:
    """Return the requested grants, as far as the others allow them."""
    return Grants(
        scopes=_common(wanted.scopes, most.scopes),
        surfaces=_common(wanted.surfaces, most.surfaces),
        instructions=wanted.instructions and most.instructions,
        client_tools=wanted.client_tools and most.client_tools,
        client_mcp=wanted.client_mcp and most.client_mcp,
        deployment_tools=_common(wanted.deployment_tools, most.deployment_tools),
        sessions=wanted.sessions,
        turns_per_minute=_least(wanted.turns_per_minute, most.turns_per_minute),
        max_calls=_least(wanted.max_calls, most.max_calls),
        max_requests=_least(wanted.max_requests, most.max_requests),
        budget=wanted.budget,
        expires_s=wanted.expires_s,
    )


def _common(wanted: frozenset[str] | None, most: frozenset[str] | None) -> frozenset[str] | None:
    if wanted is None or most is None:
        return most if wanted is None else wanted
    return wanted & most


def _least(wanted: int | None, most: int | None) -> int | None:
    return min((limit for limit in (wanted, most) if limit is not None), default=None)


def _user_name(user: str) -> str:
    """Return the name of a user in tokens and owners."""
    return _digest(b"user", user.encode("utf-8", "replace"))


def _digest(label: bytes, text: bytes) -> str:
    return hashlib.sha256(b"parley client " + label + b"\0" + text).hexdigest()[:_DIGEST_CHARS]


def _signature(secret: bytes, body: str) -> str:
    return hmac.new(secret, body.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _facts_of(grants: Grants) -> dict[str, Any]:
    """Return grants as JSON, without those that equal the defaults of ``Grants()``."""
    facts = {name: getattr(grants, name) for name in Grants.__dataclass_fields__}
    default = Grants()
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in facts.items()
        if value != getattr(default, name)
    }


def _grants_of(facts: dict[str, Any]) -> Grants:
    given: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in facts.items()
    }
    return Grants(**given)
