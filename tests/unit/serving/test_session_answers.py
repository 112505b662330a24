"""Answers of the sessions API, over the application alone."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from parley.core.provenance import Provenance, digest_of
from parley.serving.gateway.session_api import SESSION_ID, TurnEvent
from parley.session_store import conversations, rows
from parley.session_store.events import Draft, Kind
from parley.session_store.evidence import EvidenceChain, EvidenceSigner, EvidenceSource
from parley.session_store.store import SessionStore
from tests.peers.session_gateway import Turns, application, client_of

ROOT = Path(__file__).parents[3]
KINDS = [Kind.JOINED, Kind.USER_TURN, Kind.HEARD, Kind.BOT_TURN, Kind.USER_TURN, Kind.BOT_TURN, Kind.LEFT]


async def with_events(store: SessionStore, kinds: list[Kind], *, text: str = "hello") -> str:
    """Create a session with an event of each of these kinds, in this order of time."""
    session = (await store.create()).id
    writer = await store.claim(session)
    for at_us, kind in enumerate(kinds, start=1):
        await writer.append(Draft(kind, {"text": text}, at_us, at_us, "user"))
    return session


async def pages(client: httpx.AsyncClient, session: str, **query: Any) -> list[dict[str, Any]]:
    """Read a whole timeline in pages of two."""
    events: list[dict[str, Any]] = []
    after = None
    while True:
        asked = {"limit": 2, **query, **({"after": after} if after else {})}
        answer = await client.get(f"/api/sessions/{session}/timeline", params=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["events"]) <= 2
        events += page["events"]
        after = page["after"]
        if after is None:
            return events


async def test_the_timeline_is_read_in_both_directions(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, KINDS)
        oldest = await pages(client, session)
        assert [event["kind"] for event in oldest] == [kind.value for kind in KINDS]
        assert await pages(client, session, order="oldest") == oldest
        assert await pages(client, session, order="newest") == oldest[::-1]


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_the_timeline_of_some_kinds_is_whole(tmp_path: Path, order: str):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, KINDS)
        wanted = ["user_turn", "bot_turn"]
        found = await pages(client, session, kind=wanted, order=order)
        seqs = [2, 4, 5, 6]
        assert [event["seq"] for event in found] == (seqs if order == "oldest" else seqs[::-1])
        assert [event["seq"] for event in await pages(client, session, kind="heard", order=order)] == [3]
        assert await pages(client, session, kind="tool_call", order=order) == []


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("kind=nonsense", "'user_turn'"),
        ("kind=user_turn&kind=", "'bot_turn'"),
        ("kind=USER_TURN", "'journal'"),
        ("order=backwards", "'newest'"),
    ],
)
async def test_an_unknown_kind_or_order_is_refused_with_the_known_ones(
    tmp_path: Path, query: str, known: str
):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, KINDS)
        answer = await client.get(f"/api/sessions/{session}/timeline?{query}")
        assert answer.status_code == 422
        assert known in answer.json()["error"]


async def exported(client: httpx.AsyncClient, session: str) -> bytes:
    return (await client.get(f"/api/sessions/{session}/export")).content


async def test_a_session_far_over_the_limit_of_other_bodies_is_imported(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_body_bytes=1_000) as (app, store),
        client_of(app, operator=True) as client,
    ):
        session = await with_events(store, [Kind.USER_TURN] * 40, text="x" * 20_000)
        before = await pages(client, session)
        lines = await exported(client, session)
        assert len(lines) > 800_000
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 200

        async def in_pieces() -> AsyncIterator[bytes]:
            for begin in range(0, len(lines), 7_001):
                yield lines[begin : begin + 7_001]

        answer = await client.post("/api/sessions/import", content=in_pieces())
        assert answer.status_code == 201, answer.text
        assert answer.json()["id"] == session
        assert await pages(client, session) == before
        # The larger limit holds for the import only: other bodies have their own.
        assert (await client.post("/api/sessions/import/", content=lines)).status_code == 413
        assert (await client.post(f"/api/sessions/{session}", content=lines)).status_code == 413


async def test_a_session_that_is_there_is_not_written_over(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, KINDS)
        lines = await exported(client, session)
        answer = await client.post("/api/sessions/import", content=lines)
        assert answer.status_code == 409
        assert "exists already" in answer.json()["error"]
        assert await exported(client, session) == lines


async def test_an_import_that_is_too_large_is_refused_while_it_comes_in(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_import_bytes=50_000) as (app, store),
        client_of(app, operator=True) as client,
    ):
        session = await with_events(store, [Kind.USER_TURN] * 100, text="x" * 1_000)
        lines = await exported(client, session)
        await client.delete(f"/api/sessions/{session}")
        sent = 0

        async def in_pieces() -> AsyncIterator[bytes]:
            nonlocal sent
            for begin in range(0, len(lines), 10_000):
                sent += 10_000
                yield lines[begin : begin + 10_000]

        answer = await client.post("/api/sessions/import", content=in_pieces())
        assert answer.status_code == 413
        assert answer.json() == {"error": "body over 50000 bytes"}
        assert answer.headers["connection"] == "close"
        assert sent == 60_000
        assert (await client.post("/api/sessions/import", content=lines)).status_code == 413
        assert (await client.get(f"/api/sessions/{session}")).status_code == 404


async def test_an_import_with_a_line_too_long_is_refused(tmp_path: Path):
    async with (
        application(tmp_path, Turns(), max_import_line_bytes=2_000) as (app, store),
        client_of(app, operator=True) as client,
    ):
        session = await with_events(store, [Kind.USER_TURN, Kind.USER_TURN], text="x" * 3_000)
        lines = await exported(client, session)
        await client.delete(f"/api/sessions/{session}")
        answer = await client.post("/api/sessions/import", content=lines)
        assert answer.status_code == 400
        assert "line 2 is over 2000 bytes" in answer.json()["error"]
        assert (await client.get(f"/api/sessions/{session}")).status_code == 404


async def test_the_longest_payload_of_the_store_is_exported_and_imported(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = (await store.create()).id
        writer = await store.claim(session)
        # 1,000,000 bytes with its name, version and punctuation; every other column as long as it may be.
        payload = {"text": "x" * (1_000_000 - len('{"v":1,"text":""}'))}
        name = "\U0001f600" * 500
        await writer.append(Draft(Kind.USER_TURN, payload, 2**62, 2**62, name, speaker=name, key=name))
        lines = await exported(client, session)
        await client.delete(f"/api/sessions/{session}")
        assert (await client.post("/api/sessions/import", content=lines)).status_code == 201
        assert await exported(client, session) == lines


async def test_who_is_not_the_operator_is_refused_before_the_body_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_ADMIN_TOKEN", "secret")
    sent = 0

    async def in_pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 1_000

    async with application(tmp_path, Turns()) as (app, _), client_of(app, operator=True) as client:
        answer = await client.post("/api/sessions/import", content=in_pieces())
        assert answer.status_code == 403
        # The bytes after it would be taken for the next request.
        assert answer.headers["connection"] == "close"
        assert sent == 0


async def failing(session_id: str, text: str, *, key: str | None, **_: object) -> AsyncIterator[TurnEvent]:
    if text != "works":
        raise RuntimeError("broken")
    yield TurnEvent("done", {"text": "yes"})


async def test_no_answer_about_sessions_is_kept_anywhere(tmp_path: Path):
    settings = {"max_body_bytes": 1_000, "allowed_origins": ("https://shop.example",)}
    async with (
        application(tmp_path, failing, **settings) as (app, store),
        client_of(app, operator=True) as client,
    ):
        session = await with_events(store, KINDS)
        path = f"/api/sessions/{session}"
        foreign = {"origin": "https://elsewhere.example"}
        asking = {"origin": "https://shop.example", "access-control-request-method": "POST"}
        answers = [
            (201, await client.post("/api/sessions")),
            (200, await client.get("/api/sessions")),
            (422, await client.get("/api/sessions?limit=0")),
            (403, await client.post("/api/sessions", headers=foreign)),
            (400, await client.post("/api/sessions/import", content=b"nonsense")),
            (200, await client.get(path)),
            (404, await client.get("/api/sessions/nonsense")),
            (404, await client.get(f"{path}/nonsense")),
            (200, await client.get(f"{path}/timeline")),
            (422, await client.get(f"{path}/timeline?kind=nonsense")),
            (200, await client.get(f"{path}/prompt")),
            (200, await client.get(f"{path}/export")),
            (200, await client.post(f"{path}/messages", json={"text": "works"})),
            (500, await client.post(f"{path}/messages", json={"text": "fails"})),
            (413, await client.post(f"{path}/messages", content=b"x" * 4_000_001)),
            (405, await client.put(path)),
            (200, await client.options(path, headers=asking)),
            (403, await client.get(path, headers={"host": "rebound.example"})),
            (200, await client.delete(path)),
            (404, await client.get(path)),
        ]
        for status, answer in answers:
            received = f"{answer.request.method} {answer.request.url.path}: {answer.status_code}"
            assert answer.status_code == status, received
            assert answer.headers.get_list("cache-control") == ["no-store"], received
        # A page may be cached, but must be revalidated.
        assert (await client.get("/")).headers.get_list("cache-control") == ["no-cache"]


async def test_a_failure_of_the_server_is_told_in_the_form_of_every_refusal(tmp_path: Path):
    async with application(tmp_path, failing) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, [])
        answer = await client.post(f"/api/sessions/{session}/messages", json={"text": "fails"})
        assert answer.json() == {"error": "the server failed at this request"}
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_export_that_no_one_reads_is_ended(tmp_path: Path):
    async with application(tmp_path, Turns(), reader_stall_s=0.05) as (app, store):
        session = await with_events(store, KINDS)
        sent: list[Message] = []
        asked = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            return asked.pop() if asked else await asyncio.Event().wait()

        async def send(message: Message) -> None:
            if len(sent) == 1:
                await asyncio.Event().wait()
            sent.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": f"/api/sessions/{session}/export", "query_string": b"",
            "root_path": "", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }  # fmt: skip
        async with asyncio.timeout(10):
            await app(scope, receive, send)
        headers = dict(sent[0]["headers"])
        assert headers[b"content-type"].startswith(b"application/x-ndjson")
        assert headers[b"content-disposition"] == f'attachment; filename="{session}.jsonl"'.encode()
        assert len(sent) == 1


# Half of the surrogate pair that JSON writes 😀 with: a truncated text may end so. UTF-8 has no bytes for it.
HALF = "\ud83d"


async def with_half_a_character(store: SessionStore) -> str:
    """Create a session that has it everywhere that a payload can."""
    session = (await store.create()).id
    writer = await store.claim(session)
    payloads = [
        (Kind.USER_TURN, {"text": f"hello {HALF}", HALF: [HALF, {HALF: HALF}], "transport": "text"}),
        (Kind.TOOL_CALL, {"call_id": "c", "name": "look_up", "arguments": {"item": f'{HALF} "x" 😀'}}),
        (Kind.TOOL_RESULT, {"call_id": "c", "outcome": "done", "result": {"found": HALF}}),
        (Kind.BOT_TURN, {"reply_id": "r", "text": f"\\{HALF}", "truncated": False, "unheard": ""}),
        (Kind.STATE, {"slots": {"note": HALF}}),
    ]
    for at_us, (kind, payload) in enumerate(payloads, start=1):
        await writer.append(Draft(kind, payload, at_us, at_us, "test"))
    return session


async def test_the_evidence_of_a_session_is_verified_also_after_an_import(tmp_path: Path):
    source = EvidenceSource(EvidenceSigner(bytes(32)), Provenance("0.2.0", digest_of("{}")))
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_events(store, KINDS)
        writer = await store.claim(session)
        chain = EvidenceChain(session, source, None)
        entries = await writer.append(*chain.entries(await store.events(session, limit=10)))
        signers = [source.signer.public_key]
        holds = {"entries": 2, "signers": signers, "problems": []}
        assert (await client.get(f"/api/sessions/{session}/evidence")).json() == holds
        lines = await exported(client, session)
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 200
        assert (await client.post("/api/sessions/import", content=lines)).status_code == 201
        assert (await client.get(f"/api/sessions/{session}/evidence")).json() == holds
        writer = await store.claim(session)
        await writer.append(Draft(Kind.EVIDENCE, entries[-1].payload, 9, 9, "system"))
        found = (await client.get(f"/api/sessions/{session}/evidence")).json()
        assert found["problems"] == [
            "entry 3: its number is 2",
            "entry 3: the entry before it is another one",
            "entry 3: its signature does not hold",
        ]
        unknown = await client.get("/api/sessions/00000000-0000-4000-8000-000000000000/evidence")
        assert unknown.status_code == 404


async def test_a_payload_that_utf_8_cannot_hold_is_given_as_it_was_stored(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), client_of(app, operator=True) as client:
        session = await with_half_a_character(store)
        stored = [dict(event.payload) for event in await store.events(session, limit=10)]
        answer = await client.get(f"/api/sessions/{session}/timeline")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert [event["payload"] for event in answer.json()["events"]] == stored
        # The store keeps these bytes.
        assert answer.text.isascii()
        lines = await exported(client, session)
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 200
        assert (await client.post("/api/sessions/import", content=lines)).status_code == 201
        assert [event["payload"] for event in await pages(client, session)] == stored
        prompt = await client.get(f"/api/sessions/{session}/prompt")
        assert prompt.status_code == 200
        assert HALF not in str(prompt.json())


async def test_a_turn_with_half_a_character_is_streamed_to_its_end(tmp_path: Path):
    async def typed(session_id: str, text: str, *, key: str | None, **_: object) -> AsyncIterator[TurnEvent]:
        yield TurnEvent("turn", {"text": text})
        # A model's server may cut its answer this way.
        for piece in (HALF, "\ude00", HALF):
            yield TurnEvent("delta", {"text": piece})
        yield TurnEvent("done", {"text": f"😀{HALF}"})

    async with application(tmp_path, typed) as (app, store), client_of(app, operator=True) as client:
        session = (await store.create()).id
        answer = await client.post(f"/api/sessions/{session}/messages", json={"text": "hello"})
        assert answer.status_code == 200
        data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        expected = ["hello", HALF, "\ude00", HALF, f"😀{HALF}"]
        assert [json.loads(line)["text"] for line in data] == expected
        # Sent to the server it is refused, and nothing is broken.
        refused = await client.post(f"/api/sessions/{session}/messages", content=b'{"text": "\\ud83d"}')
        assert refused.status_code == 422


async def test_a_page_of_long_events_is_bounded_in_bytes_and_none_is_left_out(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, store), client_of(app) as client:
        session = (await store.create()).id
        writer = await store.claim(session)
        for number in range(30):
            payload = {"text": f"{number} " + "x" * 100_000, "transport": "text"}
            await writer.append(Draft(Kind.USER_TURN, payload, number, number, "user"))
        for order, expected in (("oldest", list(range(30))), ("newest", list(range(29, -1, -1)))):
            found: list[int] = []
            after: str | None = ""
            while after is not None:
                where = f"order={order}&limit=1000" + (f"&after={after}" if after else "")
                answer = await client.get(f"/api/sessions/{session}/timeline?{where}")
                assert len(answer.content) < 1_200_000
                page = answer.json()
                found += [int(event["payload"]["text"].split()[0]) for event in page["events"]]
                after = page["after"]
            assert found == expected
        assert len((await exported(client, session)).splitlines()) == 32


async def test_a_client_that_reads_too_much_at_a_time_is_refused_and_others_are_served(tmp_path: Path):
    async with application(tmp_path, Turns(), max_client_reads=1, read_bytes_per_s=10_000) as (app, store):
        session = (await store.create()).id
        writer = await store.claim(session)
        payload = {"text": "x" * 60_000, "transport": "text"}
        await writer.append(Draft(Kind.USER_TURN, payload, 1, 1, "user"))
        path = f"/api/sessions/{session}/timeline"
        async with client_of(app) as client:
            # Over its share by 20 kB: one of the two waits for its page.
            reads = {asyncio.create_task(client.get(path)) for _ in range(2)}
            done, waiting = await asyncio.wait(reads, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert [read.result().status_code for read in done] == [429]
            assert (await client.get(f"/api/sessions/{session}")).status_code == 200
            for read in waiting:
                read.cancel()


async def test_prompts_are_made_alongside_the_loop_and_no_faster_than_a_client_may_read(tmp_path: Path):
    async with application(tmp_path, Turns(), max_client_reads=2, read_bytes_per_s=100_000) as (app, store):
        session = (await store.create()).id
        writer = await store.claim(session)
        # Short enough to be all in the view: its time is that of its many turns.
        for number in range(600):
            payload = {"text": f"so {number}", "transport": "text"}
            await writer.append(Draft(Kind.USER_TURN, payload, number, number, "user"))
        path = f"/api/sessions/{session}/prompt"
        async with client_of(app) as client:
            reads = {asyncio.create_task(client.get(path)) for _ in range(10)}
            async with asyncio.timeout(10):
                while len([read for read in reads if read.done()]) < 8:
                    await asyncio.sleep(0.01)
            assert [read.result().status_code for read in reads if read.done()] == [429] * 8
            # The other two have used up the share of seconds and wait, whatever else is requested.
            assert (await client.get(f"/api/sessions/{session}")).status_code == 200
            for read in reads:
                read.cancel()


async def test_a_prompt_is_made_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    threads: list[str] = []
    made = conversations.prompt_view

    def seen(*arguments: object, **named: object) -> object:
        threads.append(threading.current_thread().name)
        return made(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(conversations, "prompt_view", seen)
    async with application(tmp_path, Turns()) as (app, store), client_of(app) as client:
        session = (await store.create()).id
        answer = await client.get(f"/api/sessions/{session}/prompt")
        assert answer.json() == {"messages": [], "tokens": 0}
    assert threads and threading.main_thread().name not in threads


def test_page_and_server_mean_the_same_by_the_id_of_a_session():
    assert SESSION_ID is rows.SESSION_ID
    page = (ROOT / "web" / "shared" / "session_api.js").read_text()
    [pattern] = re.findall(r"const SESSION_ID = /\^(.*)\$/;", page)
    assert pattern.replace("(", "(?:") == SESSION_ID.pattern
