"""Limits of concurrent requests to an open server, over the application alone; sockets are in ``peers``."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from parley.serving.gateway.session_api import TurnEvent
from parley.session_store.store import SessionStore
from tests.peers.session_gateway import Turns, application, client_of
from tests.peers.webrtc_caller import Caller

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def refused(answer: httpx.Response, status: int, says: str) -> bool:
    """Assert that an answer is a refusal in the common form, with the time of a retry; return True."""
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]
    assert int(answer.headers["retry-after"]) >= 1
    return True


async def count(store: SessionStore) -> int:
    return len(await store.sessions(limit=1_000))


async def test_one_address_begins_so_many_sessions_a_minute(tmp_path: Path):
    async with application(tmp_path, Turns(), sessions_per_minute=2) as (app, store):
        async with client_of(app, address="203.0.113.7") as client:
            for _ in range(2):
                assert (await client.post("/api/sessions")).status_code == 201
            third = await client.post("/api/sessions")
            assert refused(third, 429, "2 new sessions a minute")
            assert 29 <= int(third.headers["retry-after"]) <= 30
        assert await count(store) == 2
        async with client_of(app, address="203.0.113.8") as other:
            assert (await other.post("/api/sessions")).status_code == 201


async def test_a_call_that_names_no_session_begins_one_too(tmp_path: Path):
    caller = Caller()
    offer = await caller.offer()
    await caller.hang_up()
    async with (
        # Twice as many requests of a call are accepted a minute: six.
        application(tmp_path, Turns(), sessions_per_minute=3) as (app, store),
        client_of(app) as client,
    ):
        for _ in range(3):
            session = (await client.post("/api/sessions")).json()["id"]
        begun = (await client.post("/start", json={})).json()["sessionId"]
        going_on = (await client.post("/start", json={"body": {"session": session}})).json()["sessionId"]
        assert refused(await client.post("/api/offer", json=offer), 429, "new sessions a minute")
        assert refused(await client.post(f"/sessions/{begun}/api/offer", json=offer), 429, "new sessions")
        # These get as far as their offer, which is invalid.
        assert (await client.post(f"/sessions/{going_on}/api/offer", json={})).status_code == 422
        assert (
            await client.post("/api/offer", json={"requestData": {"session": session}})
        ).status_code == 422
        assert await count(store) == 3


@pytest.mark.parametrize(("proxies", "statuses"), [((), [201, 429, 429]), (("127.0.0.1",), [201, 201, 429])])
async def test_what_a_proxy_says_of_its_clients_counts_where_it_is_trusted(
    tmp_path: Path, proxies: tuple[str, ...], statuses: list[int]
):
    async with (
        application(tmp_path, Turns(), sessions_per_minute=1, trusted_proxies=proxies) as (app, _),
        client_of(app) as client,
    ):
        seen = []
        for received in ("198.51.100.1", "198.51.100.2", "192.0.2.66, 198.51.100.1"):
            answer = await client.post("/api/sessions", headers={"x-forwarded-for": received})
            seen.append(answer.status_code)
        assert seen == statuses


async def test_after_a_trusted_proxy_no_one_is_the_operator_by_being_near(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), trusted_proxies=("127.0.0.1",)) as (app, _),
        client_of(app) as client,
    ):
        assert (await client.get("/api/sessions")).status_code == 403


def say(client: httpx.AsyncClient, session: str, text: str) -> "asyncio.Task[httpx.Response]":
    async def answer() -> httpx.Response:
        async with asyncio.timeout(10):
            return await client.post(f"/api/sessions/{session}/messages", json={"text": text})

    return asyncio.create_task(answer())


async def test_so_many_turns_of_one_session_wait_and_others_are_not_in_their_way(tmp_path: Path):
    turns = Turns()
    async with application(tmp_path, turns, max_waiting_turns=1) as (app, _), client_of(app) as client:
        one, other = [(await client.post("/api/sessions")).json()["id"] for _ in range(2)]
        answered = say(client, one, "first")
        waiting = say(client, one, "second")
        await turns.until(lambda: len(turns.asked) == 2)
        assert refused(await say(client, one, "third"), 429, "1 turns of this session wait")
        elsewhere = say(client, other, "fourth")
        await turns.until(lambda: len(turns.asked) == 3)
        # The refused turn never reached the model.
        assert "third" not in turns.asked
        turns.answer.set()
        for turn in (answered, waiting, elsewhere):
            assert (await turn).status_code == 200
        assert "done" in (await say(client, one, "third")).text


async def test_so_many_turns_are_under_way_in_all(tmp_path: Path):
    turns = Turns()
    async with application(tmp_path, turns, max_typed_turns=2) as (app, _), client_of(app) as client:
        sessions = [(await client.post("/api/sessions")).json()["id"] for _ in range(3)]
        running = [say(client, session, "hello") for session in sessions[:2]]
        await turns.until(lambda: len(turns.asked) == 2)
        assert refused(await say(client, sessions[2], "late"), 503, "2 typed turns are under way")
        turns.answer.set()
        await asyncio.gather(*running)
        assert (await say(client, sessions[2], "late")).status_code == 200


async def test_a_turn_that_fails_gives_its_place_back(tmp_path: Path):
    async def failing(
        session_id: str, text: str, *, key: str | None, **_: object
    ) -> AsyncGenerator[TurnEvent, None]:
        if text == "before":
            raise RuntimeError("before its commit")
        yield TurnEvent("turn", {"text": text})
        raise RuntimeError("behind its commit")

    async with (
        application(tmp_path, failing, max_typed_turns=1, max_waiting_turns=0) as (app, _),
        client_of(app) as client,
    ):
        session = (await client.post("/api/sessions")).json()["id"]
        for _ in range(3):
            before = await say(client, session, "before")
            assert before.status_code == 500
            assert before.json() == {"error": "the server failed at this request"}
            behind = await say(client, session, "behind")
            assert behind.status_code == 200
            assert "event: error" in behind.text
            assert "its commit" not in behind.text


async def test_a_request_that_is_cut_off_while_its_turn_waits_gives_its_place_back(tmp_path: Path):
    turns = Turns()
    async with application(tmp_path, turns, max_waiting_turns=1) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        answered, waiting = say(client, session, "first"), say(client, session, "second")
        await turns.until(lambda: len(turns.asked) == 2)
        waiting.cancel()
        await turns.until(lambda: turns.ended == 1, within_s=2)
        again = say(client, session, "third")
        await turns.until(lambda: len(turns.asked) == 3)
        turns.answer.set()
        assert [(await turn).status_code for turn in (answered, again)] == [200, 200]


async def test_a_session_that_is_not_there_takes_no_place(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_followers=1, max_session_followers=1) as (app, _),
        client_of(app) as client,
    ):
        for _ in range(3):
            assert (await client.get(f"/api/sessions/{UNKNOWN}/events")).status_code == 404
