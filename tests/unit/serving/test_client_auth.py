"""Credentials of clients: keys, tokens and what they grant."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from starlette.requests import HTTPConnection

from parley.core.errors import ConfigError, StoreUnavailableError
from parley.core.grants import ClientIdentity, Grants, KeyScope
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.auth_failures import FREE, LONGEST_S
from parley.serving.gateway.auth.client_auth import COOKIE, Access, TokenRequest
from parley.serving.gateway.auth.client_keys import MOST_TOKEN_CHARS, ClientKeys, TokenError
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.session_store.used_tokens import UsedTokens
from parley.transports.webrtc.signaling import Signaling
from tests import virtual_time
from tests.peers.operations_gateway import TOKEN

KEY, OTHER = "k" * 32, "o" * 32
SESSION = "00000000-0000-4000-8000-000000000000"


def connection(
    bearer: str = "", subprotocols: tuple[str, ...] = (), cookie: str = "", address: str = "10.0.0.1"
) -> HTTPConnection:
    headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    if cookie:
        headers.append((b"cookie", f"{COOKIE}={cookie}".encode()))
    return HTTPConnection(
        {
            "type": "http",
            "path": "/start",
            "headers": headers,
            "subprotocols": list(subprotocols),
            "client": (address, 1),
        }
    )


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> ClientKeys:
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY}, {OTHER}")
    return ClientKeys(ServerTuning(), wall_s=clock)


@pytest.fixture
def access(keys: ClientKeys) -> Access:
    return Access(ServerTuning(), keys=keys)


def mint(keys: ClientKeys, key: str = KEY, **wanted: Any) -> str:
    application = keys.application_of(key)
    assert application is not None
    return keys.mint(application, **wanted)


async def refused(admit: Awaitable[object], status: int = 401) -> str:
    with pytest.raises(HTTPException) as error:
        await admit
    assert error.value.status_code == status
    return str(error.value.detail)


async def begun(access: Access, *shown: str) -> str | None:
    return (await access.admit(connection(*shown))).next_token


async def test_without_keys_everybody_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    access = Access(ServerTuning())
    assert access.is_open
    admitted = await access.admit(connection("a key of another server"))
    assert admitted.next_token is None and admitted.identity.owner == ""
    assert admitted.identity.address == "10.0.0.1"
    # Additions of a client to a call are off until the deployment permits them.
    grants = admitted.identity.grants
    assert not grants.instructions and not grants.client_tools and not grants.client_mcp


async def test_a_key_is_good_for_any_number_of_calls(access: Access):
    for _ in range(3):
        assert await begun(access, KEY) is None
        assert await begun(access, OTHER) is None
    assert "needed" in await refused(access.admit(connection()))
    assert "not issued by this" in await refused(access.admit(connection(KEY[:-1])))


async def test_a_token_is_good_once_and_brings_the_next(access: Access, keys: ClientKeys):
    token = mint(keys)
    following = await begun(access, token)
    assert "used" in await refused(access.admit(connection(token)))
    assert following is not None and await begun(access, following) is not None
    assert "used" in await refused(access.admit(connection(following)))


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SessionStore]:
    settings = StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db", turn_deadline_s=0.5)
    opened = await SessionStore.open(settings, now_us=lambda: round(clock() * 1e6))
    yield opened
    await opened.close()


async def test_a_token_that_began_something_on_one_server_begins_nothing_on_another(
    keys: ClientKeys, store: SessionStore
):
    here, there = (Access(ServerTuning(), tokens=UsedTokens(store), keys=keys) for _ in range(2))
    token = mint(keys)
    following = await begun(here, token)
    assert "used" in await refused(there.admit(connection(token)))
    # Another one is not.
    assert following is not None and await begun(there, following) is not None


async def test_nothing_begins_with_a_token_while_the_store_does_not_answer(
    keys: ClientKeys, store: SessionStore, tmp_path: Path
):
    access = Access(ServerTuning(), tokens=UsedTokens(store), keys=keys)
    token = mint(keys)
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            await begun(access, token)
        # A key needs no store.
        await begun(access, KEY)
        other.execute("ROLLBACK")
    await begun(access, token)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_of_two_beginnings_with_one_token_one_begins(
    keys: ClientKeys, store: SessionStore, is_shared: bool
):
    access = Access(ServerTuning(), tokens=UsedTokens(store) if is_shared else None, keys=keys)
    token = mint(keys)
    # Both were checked before either is admitted.
    for _ in range(2):
        await access.check(connection(token))
    both = await asyncio.gather(
        access.admit(connection(token)), access.admit(connection(token)), return_exceptions=True
    )
    assert sum(isinstance(each, HTTPException) for each in both) == 1


async def test_a_token_gets_too_old_and_is_renewed_for_so_long(
    access: Access, keys: ClientKeys, clock: Clock
):
    old = mint(keys)
    clock.now_s += 121
    assert "expired" in await refused(access.admit(connection(old)))
    began_s, token = clock.now_s, mint(keys)
    renewed: str | None = token
    while renewed is not None:
        renewed = await begun(access, renewed)
        clock.now_s += 100
    assert 28_700 <= clock.now_s - began_s <= 28_800 + 200


async def test_a_token_for_a_shorter_time_begins_no_call_after_it(
    access: Access, keys: ClientKeys, clock: Clock
):
    token, late = mint(keys, begin_s=30), mint(keys, begin_s=30)
    clock.now_s += 29
    admitted = await access.admit(connection(token))
    clock.now_s += 2
    assert "expired" in await refused(access.admit(connection(late)))
    # The call goes on.
    assert admitted.identity.grants.expires_s is None


async def test_a_browser_shows_its_token_as_a_subprotocol(access: Access, keys: ClientKeys):
    offered = ("realtime", f"parley.token.{mint(keys)}")
    assert (await access.admit(connection(subprotocols=offered))).next_token
    offered = ("realtime", f"openai-insecure-api-key.{KEY}")
    assert (await access.admit(connection(subprotocols=offered))).next_token is None


@pytest.mark.parametrize(
    "wrong", ["x.y", ".", "v2..", "é.é", "a" * 5_000, "v2.eyJ9.", "v2.!!!!.00", "v2.W10.00", "v2.MQ.é"]
)
async def test_what_is_no_token_is_refused(access: Access, wrong: str):
    await refused(access.admit(connection(wrong)))


async def test_a_changed_token_is_refused(access: Access, keys: ClientKeys):
    version, body, signature = mint(keys).split(".")
    other = mint(keys, user="ann").split(".")[1]
    for changed in (
        f"{version}.{body}.{'0' * 64}",
        f"{version}.{body[:-2]}AA.{signature}",
        f"{version}.{other}.{signature}",
        f"v1.{body}.{signature}",
    ):
        await refused(access.admit(connection(changed)))


async def test_another_servers_token_is_none_of_ours(
    access: Access, monkeypatch: pytest.MonkeyPatch, clock: Clock
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", "z" * 32)
    await refused(access.admit(connection(mint(ClientKeys(ServerTuning(), wall_s=clock), "z" * 32))))


async def test_a_key_that_is_taken_away_takes_its_tokens_with_it(
    keys: ClientKeys, monkeypatch: pytest.MonkeyPatch, clock: Clock
):
    of_key, of_other = mint(keys), mint(keys, OTHER)
    monkeypatch.setenv("PARLEY_CALL_KEYS", OTHER)
    after = Access(ServerTuning(), wall_s=clock)
    await refused(after.admit(connection(of_key)))
    assert await begun(after, of_other)


def test_a_short_key_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", "short")
    with pytest.raises(ConfigError, match="PARLEY_CALL_KEYS"):
        Access(ServerTuning())


async def test_looking_at_a_token_does_not_spend_it(access: Access, keys: ClientKeys):
    token = mint(keys)
    await access.check(connection(token))
    await access.check(connection(token))
    assert await begun(access, token)
    assert "used" in await refused(access.check(connection(token)))


def test_wrong_credentials_are_answered_late_and_refuse_no_right_one(access: Access, keys: ClientKeys):
    async def scenario() -> None:
        clock = asyncio.get_running_loop()
        for number in range(FREE + 12):
            began_s = clock.time()
            await refused(access.admit(connection(f"guess {number}")))
            assert (clock.time() == began_s) == (number < FREE)
            # Eleven wrong tokens of an address once blocked the right one for a minute.
            began_s = clock.time()
            assert await begun(access, KEY) is None
            assert await begun(access, mint(keys)) is not None
            assert clock.time() == began_s
        began_s = clock.time()
        await refused(access.admit(connection("guess")))
        assert clock.time() - began_s == LONGEST_S

    virtual_time.run(scenario())


def test_a_used_or_old_token_is_no_guess(access: Access, keys: ClientKeys):
    async def scenario() -> None:
        token, clock = mint(keys), asyncio.get_running_loop()
        await begun(access, token)
        began_s = clock.time()
        for _ in range(FREE + 10):
            await refused(access.admit(connection(token)))
        assert clock.time() == began_s

    virtual_time.run(scenario())


async def test_the_operator_needs_no_key(keys: ClientKeys):
    settings = ServerTuning()
    access = Access(settings, keys=keys, operators=AdminAuth(settings, token=TOKEN))
    identity = (await access.admit(connection(TOKEN))).identity
    assert identity.is_operator and access.may_use(identity, SESSION, None)


def test_without_keys_the_operator_is_the_operator_and_a_wrong_token_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    settings = ServerTuning()
    access = Access(settings, operators=AdminAuth(settings, token=TOKEN))

    async def scenario() -> None:
        assert (await access.admit(connection(TOKEN))).identity.is_operator
        assert (await access.identify(connection(TOKEN), KeyScope.READ)).is_operator
        clock = asyncio.get_running_loop()
        began_s = clock.time()
        for _ in range(FREE + 10):
            assert not (await access.admit(connection("a key of another server"))).identity.is_operator
        assert clock.time() == began_s

    virtual_time.run(scenario())


# Grants.


async def test_a_token_may_neither_instruct_nor_bring_tools_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    generous = {"clients": {"key": {"instructions": True, "client_tools": True, "client_mcp": True}}}
    settings = ServerTuning.model_validate(generous)
    keys = ClientKeys(settings)
    access = Access(settings, keys=keys)
    assert (await access.check(connection(KEY))).grants.instructions
    grants = (await access.check(connection(mint(keys)))).grants
    assert not grants.instructions and not grants.client_tools and not grants.client_mcp
    wanted = TokenRequest(instructions=True).grants(settings.clients.user.grants())
    grants = (await access.check(connection(mint(keys, grants=wanted)))).grants
    assert grants.instructions and not grants.client_tools and not grants.client_mcp
    wanted = TokenRequest(client_mcp=True).grants(settings.clients.user.grants())
    grants = (await access.check(connection(mint(keys, grants=wanted)))).grants
    assert grants.client_mcp and not grants.client_tools


async def test_a_token_never_has_more_than_its_key(keys: ClientKeys, access: Access):
    wanted = Grants(instructions=True, client_tools=True, client_mcp=True, turns_per_minute=1_000_000)
    grants = (await access.check(connection(mint(keys, grants=wanted)))).grants
    assert grants == Grants(turns_per_minute=2_400)


async def test_a_stricter_deployment_holds_for_tokens_of_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    generous = ServerTuning.model_validate({"clients": {"key": {"instructions": True}}})
    token = mint(ClientKeys(generous), grants=Grants(instructions=True))
    assert (await Access(generous).check(connection(token))).grants.instructions
    assert not (await Access(ServerTuning()).check(connection(token))).grants.instructions


async def test_a_token_names_what_its_user_may(keys: ClientKeys, access: Access, clock: Clock):
    wanted = TokenRequest(
        user="ann",
        surfaces=["browser"],
        deployment_tools=["lookup"],
        sessions=[SESSION],
        turns_per_minute=30,
        max_calls=1,
        expires_s=60,
    )
    grants = wanted.grants(ServerTuning().clients.user.grants())
    token = mint(keys, user=wanted.user, grants=grants, for_s=wanted.expires_s)
    identity = await access.check(connection(token), "browser")
    assert identity.grants == Grants(
        surfaces=frozenset({"browser"}),
        deployment_tools=frozenset({"lookup"}),
        sessions=frozenset({SESSION}),
        turns_per_minute=30,
        max_calls=1,
        expires_s=clock.now_s + 60,
    )
    assert "may not open omni" in await refused(access.check(connection(token), "omni"), 403)
    clock.now_s += 61
    assert "expired" in await refused(access.check(connection(token), "browser"))
    await refused(access.identify(connection(token), KeyScope.READ))


async def test_the_tokens_that_renew_one_share_its_total(keys: ClientKeys, access: Access):
    wanted = TokenRequest(user="ann", max_requests=7)
    grants = wanted.grants(ServerTuning().clients.user.grants())
    admission = await access.admit(connection(mint(keys, user="ann", grants=grants)))
    assert admission.identity.grants.max_requests == 7 and admission.identity.grants.budget
    assert admission.next_token is not None
    renewed = await access.admit(connection(admission.next_token))
    assert renewed.identity.grants == admission.identity.grants
    other = await access.admit(connection(mint(keys, user="ann", grants=grants)))
    assert other.identity.grants.budget != admission.identity.grants.budget


async def test_a_token_is_no_longer_than_a_handshake_carries(keys: ClientKeys):
    most = Grants(sessions=frozenset(f"{number:08x}{SESSION[8:]}" for number in range(20)))
    assert len(mint(keys, grants=most)) <= MOST_TOKEN_CHARS
    with pytest.raises(TokenError, match="do not fit"):
        mint(keys, grants=Grants(deployment_tools=frozenset("x" * 90 + str(n) for n in range(50))))


# Owners.


async def test_a_session_is_used_by_its_owner_the_application_and_the_operator(
    keys: ClientKeys, access: Access
):
    async def identity(shown: str) -> ClientIdentity:
        return await access.identify(connection(shown), KeyScope.READ)

    ann = await identity(mint(keys, user="ann"))
    owner = ann.session_owner
    assert owner is not None
    again = await identity(mint(keys, user="ann"))
    others = [mint(keys, user="bob"), mint(keys), OTHER, mint(keys, OTHER, user="ann")]
    for may in (ann, again, await identity(KEY), ClientIdentity(is_operator=True)):
        assert access.may_use(may, SESSION, owner)
    for shown in others:
        assert not access.may_use(await identity(shown), SESSION, owner)
    # A session without an owner is the operator's.
    for shown in [KEY, *others]:
        assert not access.may_use(await identity(shown), SESSION, None)


async def test_a_token_that_names_sessions_opens_those_of_its_application_alone(
    keys: ClientKeys, access: Access
):
    token = mint(keys, user="ann", grants=Grants(sessions=frozenset({SESSION})))
    ann = await access.identify(connection(token), KeyScope.READ)
    bob = await access.identify(connection(mint(keys, user="bob")), KeyScope.READ)
    theirs = await access.identify(connection(mint(keys, OTHER)), KeyScope.READ)
    assert access.may_use(ann, SESSION, bob.session_owner)
    assert not access.may_use(ann, SESSION, theirs.session_owner)
    assert not access.may_use(ann, SESSION, None)
    assert not access.may_use(ann, SESSION.replace("4", "5"), ann.session_owner)
    with pytest.raises(HTTPException):
        await access.check_deletion(connection(token), bob.session_owner)


async def test_a_used_token_and_its_cookie_read_until_it_is_renewed_no_more(
    keys: ClientKeys, access: Access, clock: Clock
):
    token = mint(keys, user="ann")
    await begun(access, token)
    clock.now_s += 28_000
    for shown in (connection(token), connection(cookie=token)):
        assert (await access.identify(shown, KeyScope.READ)).owner.endswith(keys.read(token).user)
    # A cookie begins nothing, because a browser sends it by itself.
    assert "needed" in await refused(access.admit(connection(cookie=mint(keys))))
    clock.now_s += 1_000
    await refused(access.identify(connection(token), KeyScope.READ))
    assert "needed" in await refused(access.identify(connection(cookie=token), KeyScope.READ))


async def test_without_keys_a_cookie_owns_what_it_begins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    access = Access(ServerTuning())
    cookie = "c" * 43
    owner = (await access.identify(connection(cookie=cookie), KeyScope.READ)).session_owner
    assert owner is not None and cookie not in owner
    assert access.may_use(await access.identify(connection(), KeyScope.READ), SESSION, owner)
    await access.check_deletion(connection(cookie=cookie), owner)
    for other in (connection(), connection(cookie="d" * 43), connection(cookie="guessable")):
        assert "owner" in await refused(access.check_deletion(other, owner), 403)
        assert "owner" in await refused(access.check_deletion(other, None), 403)


# Routes.


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)

    async def run_call(_arguments: object) -> None:
        return

    return create_app(
        ServerTuning(),
        run_call=run_call,
        describe=lambda: {"name": "test"},
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
    )


def test_the_routes_ask_for_it(app: FastAPI):
    with TestClient(app, base_url="http://localhost") as client:
        bearer = {"authorization": f"Bearer {KEY}"}
        assert client.get("/health").status_code == 200
        for path in ("/start", "/api/offer", "/api/token", "/api/client"):
            assert client.post(path, json={}).status_code == 401, path
        given = client.post("/api/token", headers=bearer).json()
        assert given["expires_s"] == 120
        user = {"authorization": f"Bearer {given['token']}"}
        assert client.post("/api/token", headers=user).status_code == 401
        # A request that cannot begin spends nothing.
        wrong: dict[str, object] = {"transport": "carrier pigeon"}
        assert client.post("/start", json=wrong, headers=user).status_code == 400
        wrong = {"body": {"mode": "opera"}}
        assert client.post("/start", json=wrong, headers=user).status_code == 400
        started = client.post("/start", json={}, headers=user).json()
        assert started["sessionId"] and started["next_token"] != given["token"]
        again = client.post("/start", json={}, headers=user)
        assert again.status_code == 401 and "used" in again.text
        assert client.post("/start", json={}, headers=bearer).status_code == 200


def test_a_token_is_narrowed_by_the_body_that_asks_for_it(app: FastAPI, keys: ClientKeys):
    with TestClient(app, base_url="http://localhost") as client:
        bearer = {"authorization": f"Bearer {KEY}"}
        body = {"user": "ann", "surfaces": ["omni"], "expires_s": 30}
        given = client.post("/api/token", json=body, headers=bearer).json()
        assert given["expires_s"] == 30
        refused = client.post("/start", json={}, headers={"authorization": f"Bearer {given['token']}"})
        assert refused.status_code == 403 and "may not open browser" in refused.text
        for wrong in ({"surfaces": ["telepathy"]}, {"admin": True}, {"sessions": ["x"]}):
            answer = client.post("/api/token", json=wrong, headers=bearer)
            assert answer.status_code == 422 and f"body.{next(iter(wrong))}" in answer.json()["error"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("expires_s", "number from 1 to 604800"), ("max_calls", "whole number from 1 to 10000")],
)
def test_a_number_out_of_range_is_refused_with_its_range(app: FastAPI, name: str, number: str):
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    with TestClient(app, base_url="http://localhost") as client:
        for given in ("0", "-5", "604801", "1e999", "NaN", '"60"', '"soon"', "true", "[]"):
            answer = client.post("/api/token", content=f'{{"{name}": {given}}}', headers=headers)
            assert answer.status_code == 422, given
            assert answer.json() == {"error": f"body.{name}: expected a {number}"}
        for given in ("1", "10000", "null"):
            answer = client.post("/api/token", content=f'{{"{name}": {given}}}', headers=headers)
            assert answer.status_code == 200, given


def test_a_page_makes_a_cookie_of_its_token(app: FastAPI):
    with TestClient(app, base_url="http://localhost") as client:
        bearer = {"authorization": f"Bearer {KEY}"}
        token = client.post("/api/token", headers=bearer).json()["token"]
        user = {"authorization": f"Bearer {token}"}
        evil = {**user, "origin": "https://evil.example"}
        assert client.post("/api/client", headers=evil).status_code == 403
        # A key is for back ends and is no cookie.
        assert client.post("/api/client", headers=bearer).status_code == 400
        answer = client.post("/api/client", headers=user)
        assert answer.status_code == 204 and client.cookies[COOKIE] == token
        facts = set(answer.headers["set-cookie"].split("; "))
        assert {"HttpOnly", "SameSite=strict"} <= facts and "Secure" not in facts
        # The token is still valid.
        assert client.post("/start", json={}, headers=user).status_code == 200
