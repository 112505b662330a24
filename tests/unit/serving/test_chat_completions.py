"""Chat completions at the gateway: failures before the first piece, and repeated requests."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parley.core.errors import EngineError
from parley.protocols.openai_chat import Completion, CompletionAnswer
from parley.protocols.openai_http import OpenAiHttpError
from parley.serving.gateway.openai_http.chat import PATH, SESSION_HEADER, TOKEN_HEADER
from parley.serving.gateway.openai_http.repeats import FinishedCompletion, RepeatedRequests
from parley.serving.gateway.session_api import TurnEvent
from parley.session_store.store import SessionStore
from tests.peers.session_gateway import application, client_of

KEY = "an-application-key-of-32-letters"


class Turns:
    """Typed turns whose next outcome is set by the test.

    Attributes:
        asked: session and key of each.
        fails: "before" or "after" the commit; empty: it is answered.
        goes_on: set when the answer may be made.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.fails = ""
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def fail(self, when: str) -> None:
        self.fails = when

    async def __call__(
        self, session_id: str, text: str, *, key: str | None, **_: Any
    ) -> AsyncGenerator[TurnEvent, None]:
        self.asked.append((session_id, key))
        if self.fails == "before":
            raise EngineError("no model", engine="m")
        yield TurnEvent("turn", {"text": text})
        await self.goes_on.wait()
        if self.fails == "after":
            raise EngineError("no model answered", engine="m")
        yield TurnEvent("delta", {"text": f"answer {len(self.asked)}"})
        yield TurnEvent("done", {})


@pytest.fixture
async def gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FastAPI, SessionStore, Turns]]:
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    turns = Turns()
    async with application(tmp_path, turns, modes=("cascade",), sessions_per_minute=1_000) as (app, store):
        yield app, store, turns


async def token_of(client: httpx.AsyncClient) -> str:
    minted = await client.post("/api/token", json={}, headers={"Authorization": f"Bearer {KEY}"})
    return str(minted.json()["token"])


def body(text: str = "Hi", **more: object) -> dict[str, object]:
    return {"model": "parley", "messages": [{"role": "user", "content": text}], **more}


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


async def ids(store: SessionStore) -> set[str]:
    return {info.id for info in await store.sessions(limit=100)}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_turn_is_durable_keeps_the_next_token_and_leaves_no_session(
    gateway: tuple[FastAPI, SessionStore, Turns], stream: bool
):
    app, store, turns = gateway
    async with client_of(app) as client:
        token = await token_of(client)
        turns.fail("before")
        failed = await client.post(PATH, json=body(stream=stream), headers=bearer(token))
        assert failed.status_code == 500 and failed.json()["error"]["message"] == "no model"
        assert SESSION_HEADER not in failed.headers and await ids(store) == set()
        # The token was used up; the client goes on with the next one.
        turns.fail("")
        again = await client.post(PATH, json=body(), headers=bearer(failed.headers[TOKEN_HEADER]))
        assert again.status_code == 200 and await ids(store) == {again.headers[SESSION_HEADER]}


async def test_a_failure_of_a_durable_turn_names_the_session_to_go_on_with(
    gateway: tuple[FastAPI, SessionStore, Turns],
):
    app, store, turns = gateway
    async with client_of(app) as client:
        turns.fail("after")
        failed = await client.post(PATH, json=body(), headers=bearer(await token_of(client)))
    assert failed.status_code == 500 and failed.headers[TOKEN_HEADER]
    assert await ids(store) == {failed.headers[SESSION_HEADER]}


async def test_a_failure_in_a_named_session_deletes_nothing(
    gateway: tuple[FastAPI, SessionStore, Turns],
):
    app, store, turns = gateway
    made = await store.create(owner=None)
    turns.fail("before")
    async with client_of(app) as client:
        named = bearer(KEY, **{SESSION_HEADER: made.id})
        assert (await client.post(PATH, json=body(), headers=named)).status_code in (403, 500)
    assert await ids(store) == {made.id}


async def test_a_repeated_request_gets_the_first_answer(gateway: tuple[FastAPI, SessionStore, Turns]):
    app, _, turns = gateway
    keyed = bearer(KEY, **{"Idempotency-Key": "stainless-python-retry-1"})
    async with client_of(app) as client:
        first = await client.post(PATH, json=body(), headers=keyed)
        again = await client.post(PATH, json=body(), headers=keyed)
        assert first.json() == again.json() and first.json()["choices"][0]["message"]["content"] == "answer 1"
        assert again.headers[SESSION_HEADER] == first.headers[SESSION_HEADER]
        assert again.headers["idempotent-replayed"] == "true"
        assert len(turns.asked) == 1 and turns.asked[0][1] == "stainless-python-retry-1"
        other = await client.post(PATH, json=body("Something else"), headers=keyed)
        assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")
        # Without a key every request is a new one.
        await client.post(PATH, json=body(), headers=bearer(KEY))
        assert len(turns.asked) == 2
        assert (
            await client.post(PATH, json=body(), headers=bearer(KEY, **{"Idempotency-Key": "a b"}))
        ).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_a_repeated_request_gets_the_next_token_of_the_first_answer(
    gateway: tuple[FastAPI, SessionStore, Turns], stream: bool
):
    app, _, turns = gateway
    async with client_of(app) as client:
        keyed = bearer(await token_of(client), **{"Idempotency-Key": "k"})
        first = await client.post(PATH, json=body(stream=stream), headers=keyed)
        again = await client.post(PATH, json=body(stream=stream), headers=keyed)
    assert again.headers["idempotent-replayed"] == "true" and len(turns.asked) == 1
    assert again.headers[TOKEN_HEADER] == first.headers[TOKEN_HEADER]


async def test_a_repeated_request_gets_the_cookie_of_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    turns, keyed = Turns(), {"Idempotency-Key": "k"}
    async with application(tmp_path, turns, modes=("cascade",)) as (app, _), client_of(app) as client:
        first = await client.post(PATH, json=body(), headers=keyed)
        # The client has lost that answer.
        client.cookies.clear()
        again = await client.post(PATH, json=body(), headers=keyed)
    assert again.headers["idempotent-replayed"] == "true" and len(turns.asked) == 1
    assert again.headers["set-cookie"] == first.headers["set-cookie"]


async def test_a_request_that_is_repeated_while_it_runs_is_refused(
    gateway: tuple[FastAPI, SessionStore, Turns],
):
    app, _, turns = gateway
    turns.goes_on.clear()
    keyed = bearer(KEY, **{"Idempotency-Key": "k"})
    async with client_of(app) as client:
        first = asyncio.create_task(client.post(PATH, json=body(), headers=keyed))
        async with asyncio.timeout(30):
            while not turns.asked:
                await asyncio.sleep(0.01)
        refused = await client.post(PATH, json=body(), headers=keyed)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_in_progress")
        turns.goes_on.set()
        assert (await first).status_code == 200
    assert len(turns.asked) == 1


async def test_a_request_that_failed_runs_again_in_its_session(
    gateway: tuple[FastAPI, SessionStore, Turns],
):
    app, store, turns = gateway
    keyed = bearer(KEY, **{"Idempotency-Key": "k"})
    async with client_of(app) as client:
        turns.fail("after")
        assert (await client.post(PATH, json=body(), headers=keyed)).status_code == 500
        turns.fail("")
        again = await client.post(PATH, json=body(), headers=keyed)
        assert again.json()["choices"][0]["message"]["content"] == "answer 2"
        # As a stream too, with the id of the first answer.
        stream = await client.post(PATH, json=body(), headers=keyed)
        assert stream.json()["id"] == again.json()["id"]
    assert turns.asked[0] == turns.asked[1] and len(await ids(store)) == 1


async def test_no_answer_of_a_deleted_session_is_kept(gateway: tuple[FastAPI, SessionStore, Turns]):
    app, store, turns = gateway
    async with client_of(app) as client, client_of(app, operator=True) as operator:
        keyed = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "once"}
        first = await client.post(PATH, json=body(), headers=keyed)
        session = first.headers[SESSION_HEADER]
        in_it = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "next", SESSION_HEADER: session}
        await client.post(PATH, json=body("And?"), headers=in_it)
        other = await client.post(PATH, json=body(), headers={**keyed, "Idempotency-Key": "other"})
        deleted = await operator.delete(f"/api/sessions/{session}")
        assert deleted.json()["removed"]["cached"] == 2
        # The same request again is answered anew, in a session of its own.
        again = await client.post(PATH, json=body(), headers=keyed)
        assert again.json()["choices"][0]["message"]["content"] == "answer 4"
        assert await ids(store) == {again.headers[SESSION_HEADER], other.headers[SESSION_HEADER]}
        assert (await client.post(PATH, json=body("And?"), headers=in_it)).status_code == 404


def test_answers_are_forgotten_beyond_a_number_and_a_length():
    repeats = RepeatedRequests(most=3, most_chars=100)
    for number in range(4):
        request = repeats.take((number,), b"d")
        answer = CompletionAnswer("a" * 40, (), None, {})
        request.finish(FinishedCompletion("s", Completion("c", 0, "m", {}), answer))
        request.end()
    assert repeats.take((3,), b"d").finished is not None
    with pytest.raises(OpenAiHttpError):
        repeats.take((3,), b"other")
    # Evicted by their length: they run again.
    assert repeats.take((1,), b"d").finished is None
    with pytest.raises(OpenAiHttpError) as refused:
        repeats.take((1,), b"d")
    assert refused.value.status == 409
