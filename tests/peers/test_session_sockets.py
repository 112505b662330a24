"""The sessions API in uvicorn: readers that vanish, bodies that are refused in the middle, and logging."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import httpx
import pytest
from loguru import logger

from parley.core.errors import EngineError
from parley.serving.gateway.session_api import IMPORT_PATH, TurnEvent
from parley.session_store.events import Draft, Kind
from tests.peers.operations_gateway import BEARER
from tests.peers.session_gateway import Reader, Server, Turns, application, served

# The line of a vanished reader is free within this.
FREED_S = 2.0
OPERATOR = f"Authorization: {BEARER['authorization']}"
CHUNKED = "Transfer-Encoding: chunked"


async def follow(server: Server, session: str) -> Reader:
    return await server.read("GET", f"/api/sessions/{session}/events")


async def until_followed(server: Server, session: str) -> None:
    """Wait until the session is followed.

    Every attempt waits for its answer: there is nothing else to wait for.
    """
    async with asyncio.timeout(FREED_S):
        while (again := await follow(server, session)).status != 200:
            again.vanish()
    again.vanish()


async def test_a_follower_that_vanishes_gives_its_place_back(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_session_followers=2) as (app, store),
        served(app) as server,
    ):
        session = (await store.create()).id
        followers = [await follow(server, session) for _ in range(2)]
        assert [follower.status for follower in followers] == [200, 200]
        third = await follow(server, session)
        assert third.status == 429
        assert "\r\nretry-after: 5\r\n" in third.head
        await third.until("2 readers follow this session")
        # Other sessions are followed.
        assert (await follow(server, (await store.create()).id)).status == 200
        followers[0].vanish()
        await until_followed(server, session)


async def test_a_follower_whose_session_ends_gives_its_place_back(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_followers=1) as (app, store),
        served(app) as server,
    ):
        session, other = [(await store.create()).id for _ in range(2)]
        first = await follow(server, session)
        assert first.status == 200
        full = await follow(server, other)
        assert full.status == 503
        assert "\r\nretry-after: 5\r\n" in full.head
        await store.delete(session)
        # The last chunk: its answer ends.
        await first.until("\r\n0\r\n\r\n")
        await until_followed(server, other)


async def test_a_follower_is_told_at_once_that_it_follows_and_then_of_every_commit(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), served(app) as server:
        session = (await store.create()).id
        follower = await follow(server, session)
        assert "\r\ncache-control: no-store\r\n" in follower.head
        await follower.until(": here\n\n")
        writer = await store.claim(session)
        await writer.append(Draft(Kind.USER_TURN, {"text": "hello"}, 1, 1, "user"))
        await follower.until('"text": "hello"')
        follower.vanish()


async def test_a_follower_is_given_what_utf_8_cannot_hold_and_what_comes_after_it(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), served(app) as server:
        session = (await store.create()).id
        writer = await store.claim(session)
        for text in ("half a character: \ud83d", "behind it"):
            await writer.append(Draft(Kind.USER_TURN, {"text": text}, 1, 1, "user"))
        follower = await follow(server, session)
        await follower.until("half a character: \\ud83d")
        await follower.until("behind it")


async def test_a_typist_who_vanishes_while_waiting_gives_the_place_to_the_next(tmp_path: Path):
    turns = Turns()
    async with (
        application(tmp_path, turns, max_waiting_turns=1) as (app, store),
        served(app) as server,
    ):
        path = f"/api/sessions/{(await store.create()).id}/messages"

        def body(text: str) -> tuple[bytes, str]:
            return json.dumps({"text": text}).encode(), "Content-Type: application/json"

        answered = await server.read("POST", path, *body("first"))
        waiting = await server.send("POST", path, *body("second"))
        await turns.until(lambda: len(turns.asked) == 2)
        assert (await server.read("POST", path, *body("third"))).status == 429
        waiting.transport.abort()
        await turns.until(lambda: turns.ended == 1, within_s=FREED_S)
        after = await server.send("POST", path, *body("fourth"))
        await turns.until(lambda: turns.asked == ["first", "second", "fourth"])
        # The turn that is being answered was not disturbed.
        turns.answer.set()
        await answered.until("event: done")
        after.transport.abort()


async def test_what_a_client_says_of_its_own_address_is_not_believed(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), sessions_per_minute=1) as (app, _),
        served(app) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        received = [{"x-forwarded-for": f"198.51.100.{number}"} for number in range(3)]
        answers = [await client.post("/api/sessions", headers=headers) for headers in received]
        assert [answer.status_code for answer in answers] == [201, 429, 429]


async def test_an_import_that_is_too_large_is_refused_before_its_end(tmp_path: Path):
    async with application(tmp_path, Turns(), max_import_bytes=10_000) as (app, _), served(app) as server:
        piece = b"2711\r\n" + b"\n" * 10_001 + b"\r\n"
        # More would follow.
        answer = await server.read("POST", IMPORT_PATH, piece, CHUNKED, OPERATOR)
        assert answer.status == 413
        assert "\r\nconnection: close\r\n" in answer.head
        assert b"body over 10000 bytes" in await asyncio.wait_for(answer.reader.read(), 5)


async def test_an_import_that_stops_coming_is_refused(tmp_path: Path):
    async with application(tmp_path, Turns(), body_s=0.05) as (app, _), served(app) as server:
        answer = await server.read("POST", IMPORT_PATH, b"2\r\n\n\n\r\n", CHUNKED, OPERATOR)
        assert answer.status == 408
        assert b"within 0.05 s" in await asyncio.wait_for(answer.reader.read(), 5)


async def test_half_an_import_whose_sender_vanishes_leaves_nothing(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), served(app) as server:
        session = (await store.create()).id
        lines = [line async for line in store.export(session)]
        await store.delete(session)
        first = f"{lines[0]}\n".encode()
        piece = b"%x\r\n%b\r\n" % (len(first), first)
        sender = await server.send("POST", IMPORT_PATH, piece, CHUNKED, OPERATOR)
        sender.transport.abort()
        async with httpx.AsyncClient(base_url=server.url) as client:
            assert (await client.get(f"/api/sessions/{session}")).status_code == 404
            whole = "".join(f"{line}\n" for line in lines)
            taken_in = await client.post("/api/sessions/import", content=whole, headers=BEARER)
            assert taken_in.status_code == 201


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Collect everything that is logged, with sinks that show as much as they can."""
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level=0, diagnose=True, backtrace=True)
    yield lines
    logger.remove(sink)


class Taking(logging.Handler):
    """Handler that collects the records of uvicorn and of asyncio, with their tracebacks."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


async def test_no_line_of_the_log_holds_the_id_of_a_session(tmp_path: Path, log: list[str]):
    async def typed(
        session_id: str, text: str, *, key: str | None, **_: object
    ) -> AsyncGenerator[TurnEvent, None]:
        where = f"/api/sessions/{session_id}"
        if text == "breaks before":
            raise RuntimeError(f"{where} is broken")
        yield TurnEvent("turn", {"session": session_id})
        if text == "breaks behind":
            raise RuntimeError(f"{where} broke")
        if text == "is refused behind":
            raise EngineError(f"nothing answers in {where}", engine="language model")
        yield TurnEvent("done", {"text": "yes"})

    async with (
        application(tmp_path, typed) as (app, store),
        served(app) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        session = (await store.create()).id
        names = ("uvicorn", "uvicorn.error", "asyncio", "fastapi")
        handler, named = Taking(log), [logging.getLogger(name) for name in names]
        before = [name.level for name in named]
        for name in named:
            name.addHandler(handler)
            name.setLevel(logging.DEBUG)
        try:
            said = {}
            for text in ("works", "breaks before", "breaks behind", "is refused behind"):
                answer = await client.post(f"/api/sessions/{session}/messages", json={"text": text})
                said[text] = (answer.status_code, answer.text.count("event: error"))
            follower = await follow(server, session)
            follower.vanish()
            await client.get(f"/api/sessions/{session}/nothing")
        finally:
            for name, level in zip(named, before, strict=True):
                name.removeHandler(handler)
                name.setLevel(level)
    assert said == {
        "works": (200, 0), "breaks before": (500, 0), "breaks behind": (200, 1), "is refused behind": (200, 1)
    }  # fmt: skip
    whole = "\n".join(log)
    assert "a request failed" in whole
    assert "a typed turn failed" in whole
    assert whole.count(f"{session[:8]}... ") == 2
    assert session not in whole
    # Paths of requests would go there; uvicorn writes them when a handler is installed.
    assert not logging.getLogger("uvicorn.access").hasHandlers()
