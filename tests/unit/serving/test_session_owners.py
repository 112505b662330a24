"""Sessions of an application's users, and of browsers without a credential."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.core.grants import ClientIdentity
from parley.core.pictures import PictureFile
from parley.serving.gateway.auth.client_auth import COOKIE
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.session_api import TurnEvent
from parley.serving.gateway.settings import ServerTuning
from tests.peers.operations_gateway import BEARER
from tests.peers.session_gateway import application, client_of

KEY, OTHER = "k" * 32, "o" * 32
READS = ("", "/timeline", "/prompt", "/export")


class Typed:
    """Turns that are answered at once.

    Args:
        usage: counter of the turns; None: they are not counted.

    Attributes:
        identities: identities of the clients that typed.
    """

    def __init__(self, usage: UsageLimits | None = None) -> None:
        self.identities: list[ClientIdentity] = []
        self._usage = usage

    async def __call__(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None,
        identity: ClientIdentity,
        pictures: Sequence[PictureFile] = (),
    ) -> AsyncGenerator[TurnEvent, None]:
        if self._usage is not None:
            await self._usage.take(identity)
        self.identities.append(identity)
        yield TurnEvent("done", {"text": "yes"})


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")


async def token(client: httpx.AsyncClient, key: str = KEY, **body: Any) -> dict[str, str]:
    answer = await client.post("/api/token", json=body, headers=bearer(key))
    return bearer(answer.json()["token"])


async def statuses(client: httpx.AsyncClient, session: str, headers: dict[str, str]) -> set[int]:
    """Return the statuses of everything that a client may request of a session that it may use."""
    found = {
        (await client.get(f"/api/sessions/{session}{path}", headers=headers)).status_code for path in READS
    }
    typed = await client.post(f"/api/sessions/{session}/messages", json={"text": "hello"}, headers=headers)
    return {*found, typed.status_code}


async def test_with_keys_a_session_is_its_owners(tmp_path: Path, keys: None):
    typed = Typed()
    async with application(tmp_path, typed) as (app, _), client_of(app) as client:
        ann, bob, theirs = [
            await token(client, key, user=user) for key, user in ((KEY, "ann"), (KEY, "bob"), (OTHER, "ann"))
        ]
        made = (await client.post("/api/sessions", headers=ann)).json()
        session = made["id"]
        # A used token and an unused one can both read; a key reads for its users, and the operator for all.
        for may in (ann, bearer(made["next_token"]), bearer(KEY), BEARER):
            assert await statuses(client, session, may) == {200}
        assert [identity.is_operator for identity in typed.identities] == [False, False, False, True]
        for may_not in (bob, theirs, bearer(OTHER)):
            assert await statuses(client, session, may_not) == {403}
            assert (await client.delete(f"/api/sessions/{session}", headers=may_not)).status_code == 403
        assert await statuses(client, session, {}) == {401}
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 401
        assert (await client.delete(f"/api/sessions/{session}", headers=ann)).status_code == 200
        assert len(typed.identities) == 4


async def test_with_keys_a_session_without_an_owner_is_the_operators(tmp_path: Path, keys: None):
    async with application(tmp_path, Typed()) as (app, store), client_of(app) as client:
        session = (await store.create()).id
        assert await statuses(client, session, BEARER) == {200}
        assert await statuses(client, session, bearer(KEY)) == {403}
        assert await statuses(client, session, await token(client, user="ann")) == {403}


async def test_a_call_goes_on_with_a_session_of_its_client_alone(tmp_path: Path, keys: None):
    async with application(tmp_path, Typed()) as (app, _), client_of(app) as client:
        ann, bob = [await token(client, user=user) for user in ("ann", "bob")]
        session = (await client.post("/api/sessions", headers=bearer(KEY))).json()["id"]
        owned = (await client.post("/api/sessions", headers=ann)).json()
        body = {"body": {"session": owned["id"]}}
        assert (await client.post("/start", json=body, headers=bob)).status_code == 403
        assert (
            await client.post("/start", json=body, headers=bearer(owned["next_token"]))
        ).status_code == 200
        # A session of the application itself is not its users'.
        body = {"body": {"session": session}}
        assert (await client.post("/start", json=body, headers=bob)).status_code == 403
        assert (await client.post("/start", json=body, headers=bearer(KEY))).status_code == 200


async def test_without_keys_an_id_reads_and_types_and_its_browser_deletes(tmp_path: Path):
    async with application(tmp_path, Typed()) as (app, _), client_of(app) as page, client_of(app) as other:
        await page.get("/")
        assert len(page.cookies[COOKIE]) == 43
        session = (await page.post("/api/sessions")).json()["id"]
        assert await statuses(other, session, {}) == {200}
        for headers in ({}, bearer(KEY)):
            refused = await other.delete(f"/api/sessions/{session}", headers=headers)
            assert refused.status_code == 403 and "owner" in refused.text
        assert (await page.delete(f"/api/sessions/{session}")).status_code == 200


async def test_a_program_owns_what_it_begins_by_the_cookie_that_it_is_given(tmp_path: Path):
    async with application(tmp_path, Typed()) as (app, _), client_of(app) as program:
        made = await program.post("/api/sessions")
        facts = set(made.headers["set-cookie"].split("; "))
        assert {"HttpOnly", "SameSite=strict"} <= facts
        assert "owner" not in made.json()
        session = made.json()["id"]
        cookie = dict(program.cookies)
        program.cookies.clear()
        assert (await program.delete(f"/api/sessions/{session}")).status_code == 403
        program.cookies.update(cookie)
        assert (await program.delete(f"/api/sessions/{session}")).status_code == 200


async def test_typed_turns_have_a_rate_that_another_session_does_not_renew(tmp_path: Path):
    limits = {"clients": {"anonymous": {"turns_per_minute": 8}}}
    typed = Typed(UsageLimits(ServerTuning(**limits)))
    async with application(tmp_path, typed, **limits) as (app, _), client_of(app) as client:
        statuses = []
        for _ in range(4):
            session = (await client.post("/api/sessions")).json()["id"]
            answer = await client.post(f"/api/sessions/{session}/messages", json={"text": "hello"})
            statuses.append(answer.status_code)
        assert statuses == [200, 200, 429, 429]
        assert int(answer.headers["retry-after"]) >= 1
        async with client_of(app, address="203.0.113.8") as neighbour:
            answer = await neighbour.post(f"/api/sessions/{session}/messages", json={"text": "hello"})
            assert answer.status_code == 200
    assert len(typed.identities) == 3


async def test_a_back_end_with_a_key_begins_more_sessions_than_a_stranger(tmp_path: Path, keys: None):
    async with application(tmp_path, Typed(), sessions_per_minute=2) as (app, _), client_of(app) as client:
        for _ in range(20):
            assert (await client.post("/api/sessions", headers=bearer(KEY))).status_code == 201
        made = [await client.post("/api/sessions", headers=await token(client)) for _ in range(3)]
        assert [answer.status_code for answer in made] == [201, 201, 429]


async def test_a_token_types_into_sessions_where_it_may_open_the_surface_of_typed_turns(
    tmp_path: Path, keys: None
):
    async with application(tmp_path, Typed()) as (app, _), client_of(app) as client:
        typist = await token(client, user="ann", surfaces=["turnbased"])
        caller = await token(client, user="ann", surfaces=["browser"])
        assert (await client.post("/api/sessions", headers=caller)).status_code == 403
        session = (await client.post("/api/sessions", headers=typist)).json()["id"]
        assert await statuses(client, session, typist) == {200}
        typed = {"json": {"text": "hello"}, "headers": caller}
        assert (await client.post(f"/api/sessions/{session}/messages", **typed)).status_code == 403
        # Its own sessions can be read, whichever surface they began at.
        assert (await client.get(f"/api/sessions/{session}", headers=caller)).status_code == 200


async def test_a_token_that_names_sessions_begins_no_other(tmp_path: Path, keys: None):
    async with application(tmp_path, Typed()) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions", headers=bearer(KEY))).json()["id"]
        named = await token(client, user="ann", sessions=[session])
        assert (await client.post("/api/sessions", headers=named)).status_code == 403
        assert (await client.post("/start", json={}, headers=named)).status_code == 403
        # The token is still valid.
        body = {"body": {"session": session}}
        assert (await client.post("/start", json=body, headers=named)).status_code == 200


async def test_a_turn_over_the_total_of_a_token_is_refused_for_good(tmp_path: Path, keys: None):
    typed = Typed(UsageLimits(ServerTuning()))
    async with application(tmp_path, typed) as (app, _), client_of(app) as client:
        headers = await token(client, user="ann", max_requests=1)
        session = (await client.post("/api/sessions", headers=headers)).json()["id"]
        path = f"/api/sessions/{session}/messages"
        assert (await client.post(path, json={"text": "hello"}, headers=headers)).status_code == 200
        refused = await client.post(path, json={"text": "hello"}, headers=headers)
        assert refused.status_code == 403 and "retry-after" not in refused.headers
        assert "has used its 1 model requests" in refused.json()["error"]
