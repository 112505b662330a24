"""Who may begin a conversation, where keys are set."""

import time
from collections.abc import Callable

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from starlette.requests import HTTPConnection

from core.errors import ConfigError
from serving.gateway.access import Access
from serving.gateway.app import create_app
from serving.gateway.limits import ShareError
from serving.gateway.settings import ServerSettings
from transports.webrtc.signaling import Signaling

KEY, OTHER = "k" * 32, "o" * 32


def connection(bearer: str = "", subprotocols: tuple[str, ...] = ()) -> HTTPConnection:
    headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    return HTTPConnection(
        {"type": "http", "headers": headers, "subprotocols": list(subprotocols), "client": ("10.0.0.1", 1)}
    )


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Access:
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY}, {OTHER}")
    return Access(ServerSettings(), wall_s=clock)


def refused(admit: Callable[[], object]) -> str:
    with pytest.raises(HTTPException) as error:
        admit()
    assert error.value.status_code == 401
    return str(error.value.detail)


async def test_without_keys_everybody_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    access = Access(ServerSettings())
    assert access.is_open and access.admit(connection()) is None


async def test_a_key_is_good_for_any_number_of_calls(access: Access):
    for _ in range(3):
        assert access.admit(connection(KEY)) is None
        assert access.admit(connection(OTHER)) is None
    assert "needed" in refused(lambda: access.admit(connection()))
    assert "none of this" in refused(lambda: access.admit(connection(KEY[:-1])))


async def test_a_token_is_good_once_and_brings_the_next(access: Access, clock: Clock):
    token = access.mint()
    following = access.admit(connection(token))
    assert "used" in refused(lambda: access.admit(connection(token)))
    assert following is not None and access.admit(connection(following)) is not None
    assert "used" in refused(lambda: access.admit(connection(following)))


async def test_a_token_gets_too_old_and_is_renewed_for_so_long(access: Access, clock: Clock):
    old = access.mint()
    clock.now_s += 121
    assert "too old" in refused(lambda: access.admit(connection(old)))
    began_s, token = clock.now_s, access.mint()
    while token is not None:
        token = access.admit(connection(token))
        clock.now_s += 100
    assert 28_800 <= clock.now_s - began_s <= 28_800 + 200


async def test_a_browser_shows_its_token_as_a_subprotocol(access: Access):
    assert access.admit(connection(subprotocols=("realtime", f"parley.token.{access.mint()}")))
    assert access.admit(connection(subprotocols=("realtime", f"openai-insecure-api-key.{KEY}"))) is None


@pytest.mark.parametrize("wrong", ["x.y", ".", "é.é", "a" * 5_000, "eyJ9.", "!!!!.00"])
async def test_what_is_no_token_is_refused(access: Access, wrong: str):
    refused(lambda: access.admit(connection(wrong)))


async def test_a_changed_token_is_refused(access: Access):
    body, _, signature = access.mint().partition(".")
    for changed in (f"{body}.{'0' * 64}", f"{body[:-2]}AA.{signature}"):
        refused(lambda changed=changed: access.admit(connection(changed)))  # type: ignore[misc]


async def test_guessing_is_slowed_down(access: Access):
    for _ in range(30):
        refused(lambda: access.admit(connection("guess")))
    with pytest.raises(ShareError):
        access.admit(connection("guess"))


async def test_another_servers_token_is_none_of_ours(access: Access, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", "z" * 32)
    refused(lambda: access.admit(connection(Access(ServerSettings()).mint())))


def test_a_short_key_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", "short")
    with pytest.raises(ConfigError, match="PARLEY_CALL_KEYS"):
        Access(ServerSettings())


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)

    async def run_call(_arguments: object) -> None:
        return

    return create_app(
        ServerSettings(),
        run_call=run_call,
        describe=lambda: {"name": "test"},
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
    )


def test_the_routes_ask_for_it(app: FastAPI):
    with TestClient(app, base_url="http://localhost") as client:
        bearer = {"authorization": f"Bearer {KEY}"}
        assert client.get("/health").status_code == 200
        for path in ("/start", "/api/offer", "/api/token"):
            assert client.post(path, json={}).status_code == 401, path
        given = client.post("/api/token", headers=bearer).json()
        assert given["expires_s"] == 120
        user = {"authorization": f"Bearer {given['token']}"}
        assert client.post("/api/token", headers=user).status_code == 401
        # What cannot begin spends nothing.
        wrong = {"transport": "carrier pigeon"}
        assert client.post("/start", json=wrong, headers=user).status_code == 400
        wrong = {"body": {"mode": "opera"}}
        assert client.post("/start", json=wrong, headers=user).status_code == 400
        started = client.post("/start", json={}, headers=user).json()
        assert started["sessionId"] and started["next_token"] != given["token"]
        again = client.post("/start", json={}, headers=user)
        assert again.status_code == 401 and "used" in again.text
        assert client.post("/start", json={}, headers=bearer).status_code == 200


async def test_the_wall_clock_is_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    access = Access(ServerSettings(call_token_s=1))
    token = access.mint()
    time.sleep(1.05)
    assert "too old" in refused(lambda: access.admit(connection(token)))


async def test_looking_at_a_token_does_not_spend_it(access: Access):
    token = access.mint()
    access.check(connection(token))
    access.check(connection(token))
    assert access.admit(connection(token))
    assert "used" in refused(lambda: access.check(connection(token)))


async def test_who_has_guessed_too_often_is_not_even_compared(access: Access):
    for _ in range(30):
        refused(lambda: access.admit(connection("guess")))
    # The right key neither: who guesses learns nothing.
    with pytest.raises(ShareError):
        access.admit(connection(KEY))
