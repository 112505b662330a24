"""Authentication of the operator."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from parley.serving.gateway.auth.admin_auth import COOKIE, LOGIN_S, MOST_LOGINS
from parley.serving.gateway.auth.auth_failures import FORGET_S, FREE, LONGEST_S, MOST_DELAYED
from tests import virtual_time
from tests.peers.operations_gateway import BEARER, TOKEN, TOKEN_ENV, asking, gateway

SESSION = "/api/admin/session"
OTHERS = ("GET", "/api/admin/apps"), ("GET", "/api/queue")
WRITES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("PUT", "/api/admin/apps/omni", {"enabled": False}),
    ("PUT", "/api/config/eta", {"eta_chat_s": 20}),
)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_ENV, TOKEN)


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_ENV, raising=False)


@pytest.mark.parametrize(("method", "path"), OTHERS)
async def test_what_is_others_is_for_a_caller_who_has_the_token(token: None, method: str, path: str):
    async with asking(gateway()) as client:
        assert (await client.request(method, path)).status_code == 403
        assert (await client.request(method, path, headers=BEARER)).status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", "Bearer \udcff"],
)
async def test_nothing_but_the_token_as_a_bearer_token_will_do(token: None, header: str):
    async with asking(gateway()) as client:
        headers = {"authorization": header.encode("utf-8", "surrogateescape")}
        assert (await client.get("/api/queue", headers=headers)).status_code == 403


async def test_the_scheme_may_be_written_in_any_case(token: None):
    async with asking(gateway()) as client:
        answer = await client.get("/api/queue", headers={"authorization": f"bearer {TOKEN}"})
        assert answer.status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_a_change_is_refused_before_it_is_looked_at(
    token: None, method: str, path: str, body: dict[str, object]
):
    async with asking(gateway()) as client:
        assert (await client.request(method, path, json=body)).status_code == 403
        assert (await client.request(method, path, json={"nonsense": 1})).status_code == 403


PROXIES: dict[str, dict[str, str]] = {
    "tcp tunnel, tls terminator": {},
    "nginx defaults": {"host": "127.0.0.1:7860", "connection": "close"},
    "node http-proxy": {"host": "localhost:7860"},
    "named": {"host": "talk.example.org"},
    "forwarding": {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"},
    "standard": {"forwarded": "for=203.0.113.7"},
}


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("token_is_set", [True, False])
async def test_being_on_this_machine_is_no_identity(
    monkeypatch: pytest.MonkeyPatch, proxy: str, token_is_set: bool
):
    if token_is_set:
        monkeypatch.setenv(TOKEN_ENV, TOKEN)
    else:
        monkeypatch.delenv(TOKEN_ENV, raising=False)
    headers = PROXIES[proxy]
    async with asking(gateway(allowed_hosts=("talk.example.org",))) as client:
        for method, path in OTHERS:
            assert (await client.request(method, path, headers=headers)).status_code == 403
        for method, path, body in WRITES:
            assert (await client.request(method, path, json=body, headers=headers)).status_code == 403
        state = (await client.get(SESSION, headers=headers)).json()
        assert state == {"is_operator": False, "token_env": TOKEN_ENV}
        # The token works through every one of them.
        assert (await client.get("/api/queue", headers={**headers, **BEARER})).status_code == 200


async def test_who_is_refused_is_told_where_the_token_is(no_token: None):
    async with asking(gateway()) as client:
        why = (await client.get("/api/queue")).json()["error"]
        assert "prints it when it starts" in why and TOKEN_ENV in why


async def test_a_login_is_a_cookie_that_no_script_reads_and_no_other_page_sends(token: None):
    async with asking(gateway()) as client:
        answer = await client.post(SESSION, json={"token": TOKEN})
        assert answer.json()["is_operator"] is True
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", f"Max-Age={LOGIN_S}"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        assert (await client.get("/api/queue")).status_code == 200


async def test_a_login_over_tls_is_never_sent_without(token: None):
    async with asking(gateway(allowed_hosts=("parley.example",))) as client:
        headers = {"origin": "https://parley.example", "host": "parley.example"}
        answer = await client.post(SESSION, json={"token": TOKEN}, headers=headers)
        assert "Secure" in answer.headers["set-cookie"]


async def test_who_logs_out_is_the_operator_no_more(token: None):
    async with asking(gateway()) as client:
        await client.post(SESSION, json={"token": TOKEN})
        stolen = client.cookies[COOKIE]
        assert (await client.delete(SESSION)).json()["is_operator"] is False
        assert COOKIE not in client.cookies
        answer = await client.get("/api/queue", headers={"cookie": f"{COOKIE}={stolen}"})
        assert answer.status_code == 403


async def test_a_cookie_that_no_one_was_given_is_nothing(token: None):
    async with asking(gateway(), cookies={COOKIE: "made up"}) as client:
        assert (await client.get("/api/queue")).status_code == 403


async def test_the_oldest_login_ends_when_there_are_too_many(token: None):
    app = gateway()
    async with asking(app) as first:
        await first.post(SESSION, json={"token": TOKEN})
        async with asking(app) as other:
            for _ in range(MOST_LOGINS):
                assert (await first.get("/api/queue")).status_code == 200
                other.cookies.clear()
                await other.post(SESSION, json={"token": TOKEN})
            assert (await other.get("/api/queue")).status_code == 200
        assert (await first.get("/api/queue")).status_code == 403


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_another_page_neither_logs_in_nor_out(token: None, method: str):
    async with asking(gateway()) as client:
        await client.post(SESSION, json={"token": TOKEN})
        headers = {"origin": "https://evil.example"}
        answer = await client.request(method, SESSION, json={"token": TOKEN}, headers=headers)
        assert answer.status_code == 403
        assert (await client.get("/api/queue")).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_another_page_changes_nothing_in_an_operators_browser(
    token: None, method: str, path: str, body: dict[str, object]
):
    async with asking(gateway()) as client:
        await client.post(SESSION, json={"token": TOKEN})
        headers = {"origin": "https://evil.example"}
        answer = await client.request(method, path, json=body, headers=headers)
        assert (answer.status_code, "origin" in answer.text) == (403, True)


def guess_by_login(client: httpx.AsyncClient, token: str) -> "asyncio.Future[httpx.Response]":
    return asyncio.ensure_future(client.post(SESSION, json={"token": token}))


def guess_by_header(client: httpx.AsyncClient, token: str) -> "asyncio.Future[httpx.Response]":
    return asyncio.ensure_future(client.get("/api/queue", headers={"authorization": f"Bearer {token}"}))


@pytest.mark.parametrize("guess", [guess_by_login, guess_by_header])
def test_wrong_tokens_are_answered_late_and_lock_no_one_out(
    token: None, guess: Callable[[httpx.AsyncClient, str], "asyncio.Future[httpx.Response]"]
):
    async def scenario() -> None:
        app, clock = gateway(), asyncio.get_running_loop()
        # Clients of one address: a NAT, or a proxy.
        async with asking(app) as guesser, asking(app) as operator:
            waits = []
            for number in range(12):
                began_s = clock.time()
                assert (await guess(guesser, f"guess {number}")).status_code == 403
                waits.append(clock.time() - began_s)
                assert (await guess(operator, TOKEN)).status_code == 200
                operator.cookies.clear()
            assert waits[:FREE] == [0] * FREE and waits == sorted(waits)
            assert waits[-1] == LONGEST_S
            began_s = clock.time()
            assert (await guess(operator, TOKEN)).status_code == 200
            assert clock.time() == began_s
            # A minute without a mistake.
            await asyncio.sleep(FORGET_S)
            began_s = clock.time()
            assert (await guess(guesser, "guess")).status_code == 403
            assert clock.time() == began_s

    virtual_time.run(scenario())


def test_so_many_answers_wait_and_the_right_token_never_does(token: None):
    async def scenario() -> None:
        app = gateway()
        async with asking(app) as guesser:
            guesses = [guess_by_header(guesser, f"guess {number}") for number in range(MOST_DELAYED + 20)]
            await asyncio.sleep(0.01)
            assert (await guess_by_header(guesser, TOKEN)).status_code == 200
            statuses = [(await each).status_code for each in guesses]
            assert statuses.count(429) == 20 - FREE
            assert statuses.count(403) == MOST_DELAYED + FREE

    virtual_time.run(scenario())


def test_a_credential_of_a_client_is_no_guess(token: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", "k" * 32)

    async def scenario() -> None:
        async with asking(gateway()) as client:
            began_s = asyncio.get_running_loop().time()
            for _ in range(20):
                assert (await guess_by_header(client, "k" * 32)).status_code == 403
            assert asyncio.get_running_loop().time() == began_s

    virtual_time.run(scenario())


def test_the_right_token_is_never_counted_and_a_login_ends(token: None):
    async def scenario() -> None:
        async with asking(gateway()) as client:
            for _ in range(20):
                assert (await client.get("/api/queue", headers=BEARER)).status_code == 200
            cookie = (await client.post(SESSION, json={"token": TOKEN})).cookies[COOKIE]
            # A browser that ignores how long it may keep the cookie.
            kept = {"cookie": f"{COOKIE}={cookie}"}
            client.cookies.clear()
            await asyncio.sleep(LOGIN_S - 1)
            assert (await client.get("/api/queue", headers=kept)).status_code == 200
            await asyncio.sleep(1)
            assert (await client.get("/api/queue", headers=kept)).status_code == 403

    virtual_time.run(scenario())


async def test_what_is_the_operators_is_kept_by_no_browser(token: None):
    async with asking(gateway()) as client:
        for path in ("/workers", "/api/queue", "/api/queue/x", "/api/admin/apps", SESSION):
            assert (await client.get(path, headers=BEARER)).headers["cache-control"] == "no-store", path
