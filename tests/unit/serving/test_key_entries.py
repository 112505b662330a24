"""Keys of applications in a variable of the environment: hashed ones, and scopes."""

import asyncio
from pathlib import Path

import httpx
import pytest

from parley.core.errors import ConfigError
from parley.core.grants import Scope
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


def test_a_key_may_begin_like_an_entry_with_scopes(environment: pytest.MonkeyPatch):
    environment.setenv(CALL_KEYS_ENV, f"write:{KEY}, talk+read:{OTHER}")
    whole, scoped = read_entries(CALL_KEYS_ENV)
    assert whole.scopes is None and whole.matches(hash_of(f"write:{KEY}"))
    assert scoped.scopes == {Scope.TALK, Scope.READ} and scoped.matches(hash_of(OTHER))


def test_a_token_has_at_most_the_scopes_of_its_key(environment: pytest.MonkeyPatch):
    keys = keys_of(environment, f"read+operate:{KEY}")
    application = keys.application_of(KEY)
    assert application is not None
    assert keys.read(keys.mint(application)).grants.scopes == {Scope.READ, Scope.OPERATE}
    # Also those of tokens that were made before the key lost a scope.
    token = keys.mint(application)
    assert keys_of(environment, f"read:{KEY}").read(token).grants.scopes == {Scope.READ}


# What each scope opens, and what the others refuse.
REQUESTS = {
    Scope.TALK: [("POST", "/api/sessions", {}), ("POST", "/api/sessions/{id}/messages", {"text": "Hello"})],
    Scope.READ: [("GET", "/api/sessions/{id}", None), ("GET", "/api/sessions/{id}/export", None)],
    Scope.OPERATE: [
        ("POST", "/api/sessions/{id}/shares", {}),
        ("POST", "/api/sessions/{id}/comments", {"text": "Well said."}),
        ("DELETE", "/api/sessions/{id}", None),
    ],
}


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("scope", Scope)
async def test_a_scope_opens_what_it_is_for(
    environment: pytest.MonkeyPatch, tmp_path: Path, scope: Scope, by_token: bool
):
    # The same key, of one server with the scope and of one with all of them.
    turns = Turns()
    turns.answer.set()

    async def status(client: httpx.AsyncClient, shown: str, request: tuple[str, str, object], session: str):
        method, path, body = request
        headers = {"authorization": f"Bearer {shown}"}
        url = path.format(id=session)
        return (await client.request(method, url, json=body, headers=headers)).status_code

    environment.setenv(CALL_KEYS_ENV, KEY)
    async with application(tmp_path, turns) as (app, _), client_of(app) as client:
        headers = {"authorization": f"Bearer {KEY}"}
        session = (await client.post("/api/sessions", headers=headers)).json()["id"]
    environment.setenv(CALL_KEYS_ENV, f"{scope}:{KEY}")
    async with application(tmp_path, turns) as (app, _), client_of(app) as client:

        async def shown() -> str:
            if not by_token:
                return KEY
            body = {"sessions": [session]} if scope is not Scope.OPERATE else {}
            made = await client.post("/api/token", json=body, headers={"authorization": f"Bearer {KEY}"})
            return str(made.json()["token"])

        found = {
            request[:2]: await asyncio.wait_for(status(client, await shown(), request, session), 10)
            for requests in REQUESTS.values()
            for request in requests
        }
    own = {request[:2] for request in REQUESTS[scope]}
    refused = {request for request, code in found.items() if code == 403}
    if by_token:
        # A token for sessions begins none, and one without sessions uses none of other users.
        refused -= own
    assert refused == found.keys() - own
