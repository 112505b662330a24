"""Keys of applications in a variable of the environment: hashed ones, and scopes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.core.errors import ConfigError
from parley.core.grants import KeyScope
from parley.serving.gateway.auth.client_keys import ClientKeys, TokenError
from parley.serving.gateway.auth.key_entries import TOKEN_SECRET_ENV, hash_of, read_entries
from parley.serving.gateway.settings import CALL_KEYS_ENV, ServerTuning
from tests.peers.session_gateway import Turns, application, client_of

KEY, OTHER, SECRET = "k" * 32, "o" * 32, "s" * 32


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(TOKEN_SECRET_ENV, SECRET)
    return monkeypatch


def keys_of(environment: pytest.MonkeyPatch, *entries: str) -> ClientKeys:
    environment.setenv(CALL_KEYS_ENV, ", ".join(entries))
    return ClientKeys(ServerTuning())


def test_a_key_is_the_same_application_plain_and_hashed(environment: pytest.MonkeyPatch):
    plain, hashed = keys_of(environment, KEY), keys_of(environment, f"hash:{hash_of(KEY)}")
    assert plain.application_of(KEY) == hashed.application_of(KEY) is not None
    # Who reads the variable cannot present what it holds.
    assert hashed.application_of(hash_of(KEY)) is None
    assert hashed.application_of(f"hash:{hash_of(KEY)}") is None


def test_tokens_of_a_hashed_key_are_signed_with_the_secret_of_the_servers(environment: pytest.MonkeyPatch):
    entry = f"hash:{hash_of(KEY)}"
    keys = keys_of(environment, entry)
    token = keys.mint(hash_of(KEY)[:32], user="ann")
    assert keys_of(environment, entry).read(token).user == keys.read(token).user
    environment.setenv(TOKEN_SECRET_ENV, "another secret of the servers")
    with pytest.raises(TokenError):
        keys_of(environment, entry).read(token)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("hash:abc", "expected 64 digits"),
        (f"hash:{hash_of(KEY).upper()}", "expected 64 digits"),
        ("sha256:" + hash_of(KEY), "before a colon"),
        (f"Read:{KEY}", "before a colon"),
        (f"raed:hash:{hash_of(KEY)}", "before a colon"),
        ("read:short", "at least 16 characters"),
        ("read:", "at least 16 characters"),
    ],
)
def test_what_is_no_entry_is_refused(environment: pytest.MonkeyPatch, entry: str, why: str):
    with pytest.raises(ConfigError, match=f"{CALL_KEYS_ENV}: .*{why}"):
        keys_of(environment, entry)


@pytest.mark.parametrize("secret", [None, "", "short"])
def test_hashed_keys_need_a_secret(environment: pytest.MonkeyPatch, secret: str | None):
    if secret is None:
        environment.delenv(TOKEN_SECRET_ENV)
    else:
        environment.setenv(TOKEN_SECRET_ENV, secret)
    keys_of(environment, KEY)
    with pytest.raises(ConfigError, match=f"set {TOKEN_SECRET_ENV} to a secret"):
        keys_of(environment, f"hash:{hash_of(KEY)}")


def test_an_entry_has_scopes_before_its_key(environment: pytest.MonkeyPatch):
    environment.setenv(CALL_KEYS_ENV, f"{KEY}, talk+read: {OTHER}")
    whole, scoped = read_entries(CALL_KEYS_ENV)
    assert whole.scopes is None and whole.matches(hash_of(KEY))
    assert scoped.scopes == {KeyScope.TALK, KeyScope.READ} and scoped.matches(hash_of(OTHER))


@pytest.mark.parametrize(
    "entries",
    [
        (f"read:{KEY}", KEY),
        (f"hash:{hash_of(KEY)}", KEY),
        (f"read:hash:{hash_of(KEY)}", f"hash:{hash_of(KEY)}"),
    ],
)
def test_a_key_that_is_listed_twice_in_two_ways_is_refused(
    environment: pytest.MonkeyPatch, entries: tuple[str, str]
):
    with pytest.raises(ConfigError, match="listed twice"):
        keys_of(environment, *entries)
    assert keys_of(environment, entries[0], entries[0]).application_of(KEY)


def test_a_token_has_at_most_the_scopes_of_its_key(environment: pytest.MonkeyPatch):
    keys = keys_of(environment, f"read+operate:{KEY}")
    application = keys.application_of(KEY)
    assert application is not None
    assert keys.read(keys.mint(application)).grants.scopes == {KeyScope.READ, KeyScope.OPERATE}
    # Also those of tokens that were made before the key lost a scope.
    token = keys.mint(application)
    assert keys_of(environment, f"read:{KEY}").read(token).grants.scopes == {KeyScope.READ}


# What each scope opens, and what the others refuse; the deletion comes last.
REQUESTS: dict[KeyScope, list[tuple[str, str, object]]] = {
    KeyScope.TALK: [
        ("POST", "/start", {}),
        ("POST", "/api/sessions", {}),
        ("POST", "/api/sessions/{id}/messages", {"text": "Hello"}),
        ("POST", "/v1/realtime/client_secrets", {}),
    ],
    KeyScope.READ: [
        ("GET", "/api/sessions/{id}", None),
        ("GET", "/api/sessions/{id}/export", None),
        ("GET", "/api/sessions/{id}/comments", None),
        ("GET", "/api/sessions/{id}/shares", None),
    ],
    KeyScope.REVEAL: [("GET", "/api/sessions/{id}/redacted", None)],
    KeyScope.OPERATE: [
        ("POST", "/api/sessions/{id}/shares", {}),
        ("POST", "/api/sessions/{id}/comments", {"text": "Well said.", "at_us": 1}),
        ("DELETE", "/api/sessions/{id}", None),
    ],
}
# Only a key gets tokens of this kind, and reads the vault.
OF_KEYS = ("/v1/realtime/client_secrets", "/api/sessions/{id}/redacted")


# No token reads the vault (``test_vault_api``).
@pytest.mark.parametrize(
    ("scope", "by_token"),
    [(scope, by) for scope in KeyScope for by in (False, True) if not (by and scope is KeyScope.REVEAL)],
)
async def test_a_scope_opens_what_it_is_for(
    environment: pytest.MonkeyPatch, tmp_path: Path, scope: KeyScope, by_token: bool
):
    turns = Turns()
    turns.answer.set()

    async def asked(client: httpx.AsyncClient, method: str, path: str, body: object, shown: str = KEY) -> Any:
        headers = {"authorization": f"Bearer {shown}"}
        async with asyncio.timeout(10):
            return await client.request(method, path, json=body, headers=headers)

    async def token(client: httpx.AsyncClient) -> str:
        return str((await asked(client, "POST", "/api/token", {"user": "ann"})).json()["token"])

    # A session of a user, begun while the key had every scope.
    environment.setenv(CALL_KEYS_ENV, KEY)
    async with application(tmp_path, turns) as (app, _), client_of(app) as client:
        session = (await asked(client, "POST", "/api/sessions", {}, await token(client))).json()["id"]
    environment.setenv(CALL_KEYS_ENV, f"{scope}:{KEY}")
    opened, refused = set[str](), set[str]()
    async with application(tmp_path, turns) as (app, _), client_of(app) as client:
        for method, path, body in (request for requests in REQUESTS.values() for request in requests):
            if by_token and path in OF_KEYS:
                continue
            shown = await token(client) if by_token else KEY
            answer = await asked(client, method, path.format(id=session), body, shown)
            assert answer.is_success or f"the scope {_scope_of(method, path)}" in answer.text, answer.text
            (opened if answer.is_success else refused).add(f"{method} {path}")
        others = [each for each in KeyScope if each != scope]
        assert (await asked(client, "POST", "/api/token", {"scopes": others})).status_code == 403
    own = {f"{method} {path}" for method, path, _ in REQUESTS[scope] if not (by_token and path in OF_KEYS)}
    assert opened == own and refused


def _scope_of(method: str, path: str) -> KeyScope:
    return next(
        scope for scope, requests in REQUESTS.items() if (method, path) in [each[:2] for each in requests]
    )
