import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import httpx
import pytest
from pipecat.runner.types import RunnerArguments

from parley.protocols.client_protocol import QueueUpdate
from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.admission import Admitted
from parley.transports.webrtc.signaling import Signaling
from tests.peers.webrtc_caller import Caller, until_state
from tests.virtual_time import run

# Every test calls from one address.
UNSHARED = {"anonymous": {"max_calls": 100}}
MOST_QUEUED = 20


class Calls:
    """Conversations that last until the test ends them.

    Args:
        error: exception that they raise instead, at once.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.arguments: list[RunnerArguments] = []
        self.end = asyncio.Event()
        self.ended = 0
        self._error = error
        self._news = asyncio.Condition()

    async def run(self, arguments: RunnerArguments) -> None:
        async with self._news:
            self.arguments.append(arguments)
            self._news.notify_all()
        try:
            if self._error is not None:
                raise self._error
            await self.end.wait()
        finally:
            self.ended += 1

    async def until_begun(self, count: int = 1) -> None:
        async with asyncio.timeout(5), self._news:
            await self._news.wait_for(lambda: len(self.arguments) >= count)


@pytest.fixture
async def calls() -> Calls:
    return Calls()


async def until_connected(calls: Calls, *callers: Caller) -> None:
    """Wait for both ends: a peer that closes before its own handshake is complete cannot notify the other."""
    await calls.until_begun(len(callers))
    ends = [caller.connection for caller in callers]
    ends += [arguments.webrtc_connection.pc for arguments in calls.arguments]
    for end in ends:
        await until_state(end, "connected")


async def until_over(app: Any, pc_id: str) -> None:
    """Wait until the conversation of a call has ended, and its line is free."""
    conversation = app.state.calls.get(pc_id)
    if conversation is not None:
        await asyncio.wait_for(conversation, 5)


def make(calls: Calls, *, admitted: Callable[[bool], Admitted] | None = None, **settings: Any) -> Any:
    bounds = ServerTuning(**{"drain_s": 0.05, "hang_up_s": 0.2, **settings})
    return create_app(
        bounds,
        run_call=calls.run,
        describe=lambda: {"name": "test"},
        admitted=admitted,
        open_door=lambda on_call: Signaling(
            on_call, max_calls=bounds.max_calls + MOST_QUEUED, hang_up_s=bounds.hang_up_s
        ),
    )


@pytest.fixture
async def client(calls: Calls) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(make(calls, max_calls=2)) as client:
        yield client


def serve(app: Any) -> Any:
    return _Served(app)


class _Served:
    def __init__(self, app: Any) -> None:
        self._lifespan = app.router.lifespan_context(app)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    async def __aenter__(self) -> httpx.AsyncClient:
        await self._lifespan.__aenter__()
        return self._client

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()
        await self._lifespan.__aexit__(None, None, None)


async def test_the_page_is_served_at_the_root(client: httpx.AsyncClient):
    page = await client.get("/")
    assert page.status_code == 200
    assert "<title>Parley</title>" in page.text


async def test_everything_the_page_names_is_served_here(client: httpx.AsyncClient):
    pages = ("/", "/chat", "/omni", "/sessions", "/desk", "/admin", "/docs", "/openapi.json")
    waiting, seen = list(pages), set[str]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await client.get(path, follow_redirects=True)
        assert answer.status_code == 200, path
        named = re.findall(r'(?:src|href)="([^"]+)"|from "\.(/[^"]+)"', answer.text)
        for address in (link or f"/shared{module}" for link, module in named):
            assert address.startswith(("/shared/", "/s/")) or address in pages, f"{path} names {address}"
            waiting.append(address)
    assert {
        "/shared/talk.js",
        "/shared/call.js",
        "/shared/talk.css",
        "/shared/favicon.svg",
        "/shared/session.js",
    } <= seen


@pytest.mark.parametrize("path", ["/", "/shared/talk.js", "/status", "/nowhere"])
async def test_every_answer_forbids_what_this_server_does_not_serve(client: httpx.AsyncClient, path: str):
    headers = (await client.get(path)).headers
    rules = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == rules["script-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/shared/../pages/index.html", "/shared/%2e%2e/%2e%2e/bot.py", "/pages/index.html"]
)
async def test_nothing_alongside_the_page_is_served(client: httpx.AsyncClient, path: str):
    assert (await client.get(path)).status_code == 404


async def test_health_counts_calls(client: httpx.AsyncClient, calls: Calls):
    caller = Caller()
    await client.post("/api/offer", json=await caller.offer())
    began_s = int(time.time())
    health = (await client.get("/health")).json()
    said_s = datetime.fromisoformat(health.pop("timestamp")).timestamp()
    assert health == {"status": "ok", "calls": 1, "max_calls": 2}
    assert began_s <= said_s <= time.time()
    await caller.hang_up()


async def test_an_offer_is_answered_and_starts_a_conversation(client: httpx.AsyncClient, calls: Calls):
    caller = Caller()
    answer = await client.post("/api/offer", json={**await caller.offer(), "requestData": {"topic": "cards"}})
    assert answer.status_code == 200
    assert answer.json()["type"] == "answer"
    await calls.until_begun()
    assert calls.arguments[0].body == {"topic": "cards"}
    await caller.hang_up()


async def test_the_page_opens_a_session_first(client: httpx.AsyncClient, calls: Calls):
    started = (await client.post("/start", json={"transport": "webrtc", "body": {"a": 1}})).json()
    caller = Caller()
    path = f"/sessions/{started['sessionId']}/api/offer"
    assert (await client.post(path, json=await caller.offer())).status_code == 200
    await calls.until_begun()
    assert calls.arguments[0].body == {"a": 1}
    assert (await client.post("/sessions/unknown/api/offer", json=await caller.offer())).status_code == 404
    await caller.hang_up()


@pytest.mark.parametrize("received", [True, False, None])
async def test_what_a_browser_says_of_its_echo_canceller_reaches_the_call(
    client: httpx.AsyncClient, calls: Calls, received: bool | None
):
    body = {"echo_cancellation": received}
    started = (await client.post("/start", json={"transport": "webrtc", "body": body})).json()
    caller = Caller()
    path = f"/sessions/{started['sessionId']}/api/offer"
    assert (await client.post(path, json=await caller.offer())).status_code == 200
    await calls.until_begun()
    assert calls.arguments[0].body == body
    await caller.hang_up()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"reconnect": "yes", "session": "s"}, "reconnect: expected true, false or nothing"),
        ({"reconnect": 1}, "reconnect: expected true, false or nothing"),
        ({"reconnect": True}, "reconnect: expected with the session that goes on"),
    ],
)
async def test_a_call_that_goes_on_names_its_session(
    client: httpx.AsyncClient, calls: Calls, body: dict[str, object], says: str
):
    answer = await client.post("/start", json={"body": body})
    assert (answer.status_code, answer.json()["error"]) == (400, says)
    assert calls.arguments == []


@pytest.mark.parametrize("received", ["yes", 1, [True], {}])
async def test_what_is_said_of_it_is_true_or_false(client: httpx.AsyncClient, calls: Calls, received: object):
    caller = Caller()
    offer = {**await caller.offer(), "requestData": {"echo_cancellation": received}}
    for path, body in (("/start", {"body": {"echo_cancellation": received}}), ("/api/offer", offer)):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]) == (
            400,
            "echo_cancellation: expected true, false or nothing",
        )
    assert calls.arguments == []
    await caller.hang_up()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"not json", 400, "not JSON"),
        (b"[1, 2]", 400, "must be a JSON object"),
        (b"{}", 422, "sdp"),
        (b'{"sdp": 5, "type": "offer"}', 422, "sdp"),
        (b'{"sdp": "v=0", "type": "answer"}', 422, "type"),
        (b'{"sdp": "hello", "type": "offer"}', 400, "SDP"),
        (b'{"sdp": "v=0\\r\\n", "type": "offer"}', 400, "audio"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
    ],
)
async def test_a_malformed_offer_is_refused_with_the_reason(
    client: httpx.AsyncClient, calls: Calls, body: bytes, status: int, says: str
):
    answer = await client.post("/api/offer", content=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert (await client.get("/health")).json()["calls"] == 0
    assert calls.arguments == []


async def test_an_sdp_that_parses_and_cannot_be_negotiated_is_refused(
    client: httpx.AsyncClient, calls: Calls
):
    caller = Caller()
    offer = await caller.offer()
    broken = "\r\n".join(line for line in offer["sdp"].splitlines() if not line.startswith("a=fingerprint"))
    answer = await client.post("/api/offer", json={"sdp": broken + "\r\n", "type": "offer"})
    assert answer.status_code == 400
    assert calls.arguments == []
    await caller.hang_up()


async def test_an_oversized_body_is_refused_before_it_is_parsed(client: httpx.AsyncClient):
    answer = await client.post("/api/offer", content=b"x" * 300_000)
    assert answer.status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 10_000

    assert (await client.post("/api/offer", content=chunks())).status_code == 413


async def test_an_oversized_sdp_is_refused(client: httpx.AsyncClient):
    answer = await client.post("/api/offer", content=json.dumps({"sdp": "v" * 100_000, "type": "offer"}))
    assert answer.status_code == 422


@pytest.mark.parametrize("queue", [None, {"most": 1}])
async def test_one_call_too_many_gets_503(calls: Calls, queue: dict[str, Any] | None):
    """A call beyond the limit gets 503.

    Without a queue that is the third of two, and with one place in it the fourth.
    """
    app = make(calls, max_calls=2, clients=UNSHARED, queue=queue)
    in_all = 2 if queue is None else 3
    async with serve(app) as client:
        callers = [Caller() for _ in range(in_all + 1)]
        answers = [await client.post("/api/offer", json=await caller.offer()) for caller in callers]
        assert [answer.status_code for answer in answers] == [200] * in_all + [503]
        assert "all 2 lines are in use" in answers[-1].json()["error"]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (app.state.calls.active, app.state.calls.waiting) == (2, in_all - 2)
        for caller in callers:
            await caller.hang_up()


async def test_calls_without_media_hold_a_quarter_of_the_lines_and_keep_no_one_waiting(calls: Calls):
    app = make(calls, max_calls=8, clients=UNSHARED, queue={"most": 1})
    async with serve(app) as client:
        callers = [Caller() for _ in range(3)]
        for caller in callers:
            answer = await client.post("/api/offer", json=await caller.offer())
            assert answer.status_code == 200
        assert (app.state.calls.active, app.state.calls.waiting) == (2, 1)
        assert app.state.calls.has_room()
        await calls.until_begun(3)
        # Its media have come: another one may be silent.
        calls.arguments[0].on_first_word()

        async def tell(_place: QueueUpdate) -> None: ...

        async with asyncio.timeout(5):
            await calls.arguments[2].line.granted(tell)
        assert (app.state.calls.active, app.state.calls.waiting) == (3, 0)
        for caller in callers:
            await caller.hang_up()


async def test_candidates_for_an_unknown_call_or_of_nonsense_are_refused(client: httpx.AsyncClient):
    unknown = {"pc_id": "nobody", "candidates": []}
    assert (await client.patch("/api/offer", json=unknown)).status_code == 400
    caller = Caller()
    pc_id = (await client.post("/api/offer", json=await caller.offer())).json()["pc_id"]
    nonsense = {"candidate": "candidate:nonsense", "sdp_mid": "0", "sdp_mline_index": 0}
    refused = await client.patch("/api/offer", json={"pc_id": pc_id, "candidates": [nonsense]})
    assert refused.status_code == 400
    end = {"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}
    assert (await client.patch("/api/offer", json={"pc_id": pc_id, "candidates": [end]})).status_code == 200
    await caller.hang_up()


async def test_a_page_of_another_origin_may_not_call(calls: Calls):
    caller = Caller()
    offer = await caller.offer()
    async with serve(make(calls, allowed_origins=("https://shop.example",))) as client:

        async def status(origin: str) -> int:
            return (await client.post("/api/offer", json=offer, headers={"origin": origin})).status_code

        assert await status("https://evil.example") == 403
        assert await status("https://shop.example") == 200
        assert await status("http://localhost") == 200
    await caller.hang_up()


async def test_an_address_that_has_its_share_gets_no_place_in_the_queue(client: httpx.AsyncClient):
    callers = [Caller() for _ in range(3)]
    answers = [await client.post("/api/offer", json=await caller.offer()) for caller in callers]
    assert [answer.status_code for answer in answers] == [200, 200, 503]
    assert "all 2 lines are in use" in answers[-1].json()["error"]
    for caller in callers:
        await caller.hang_up()


async def test_a_caller_whom_the_machine_cannot_answer_is_refused_with_the_reason_where_there_is_no_queue(
    calls: Calls,
):
    admitted = [Admitted(1, "this machine hears 1 at once")]
    app = make(calls, admitted=lambda _uses_recogniser: admitted[0], max_calls=8, queue=None)
    async with serve(app) as client:
        caller, other = Caller(), Caller()
        await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
        await until_connected(calls, caller)
        offer = await other.offer()
        for path, body in (("/start", {}), ("/api/offer", offer)):
            refused = await client.post(path, json=body)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert "this machine hears 1 at once; try again later" in refused.text
        assert app.state.calls.active == 1
        admitted[0] = Admitted(2, "this machine hears 2 at once")
        assert (await client.post("/start", json={})).status_code == 200
        await caller.hang_up()
        await other.hang_up()


async def test_a_conversation_that_fails_ends_alone_and_hangs_up():
    calls = Calls(error=RuntimeError("broken conversation"))
    app = make(calls, max_calls=2)
    async with serve(app) as client:
        # More calls than lines: each returns its line.
        for count in range(1, 4):
            caller = Caller()
            answer = await client.post("/api/offer", json=await caller.offer())
            assert answer.status_code == 200
            await calls.until_begun(count)
            connection = calls.arguments[-1].webrtc_connection
            await until_over(app, answer.json()["pc_id"])
            assert app.state.calls.active == 0
            assert (await client.get("/health")).json()["calls"] == 0
            assert app.state.door.open_calls == 0
            assert connection.pc.connectionState == "closed"
            await caller.hang_up()


async def test_the_peer_of_a_conversation_that_ends_is_hung_up(client: httpx.AsyncClient, calls: Calls):
    caller = Caller()
    await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
    await until_connected(calls, caller)
    calls.end.set()
    await until_state(caller.connection, "closed")
    await caller.hang_up()


async def test_a_stopping_server_lets_calls_finish_and_takes_no_new_ones(calls: Calls):
    caller = Caller()
    app = make(calls, drain_s=30)
    lifespan = app.router.lifespan_context(app)
    await lifespan.__aenter__()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
        await until_connected(calls, caller)
        stopping = asyncio.create_task(lifespan.__aexit__(None, None, None))
        # One turn of the loop: stopping refuses calls before it waits for running ones.
        await asyncio.sleep(0)
        late = await client.post("/api/offer", json=await Caller().offer())
        assert late.status_code == (await client.post("/start", json={})).status_code == 503
        assert "stopping" in late.json()["error"]
        assert calls.ended == 0
        assert caller.connection.connectionState == "connected"
        calls.end.set()
        await asyncio.wait_for(stopping, 5)
    assert calls.ended == 1
    await caller.hang_up()


async def test_closing_the_server_ends_conversations_that_do_not_end_themselves(calls: Calls):
    callers = [Caller() for _ in range(3)]
    app = make(calls)
    async with serve(app) as client:
        for caller in callers:
            await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
        await until_connected(calls, *callers)
    assert calls.ended == 3
    assert app.state.door.open_calls == 0
    for caller in callers:
        await until_state(caller.connection, "closed")
        await caller.hang_up()


async def test_a_body_for_the_offer_is_kept_up_to_a_few_kilobytes(client: httpx.AsyncClient):
    assert (await client.post("/start", json={"body": {"a": "x" * 4_000}})).status_code == 200
    refused = await client.post("/start", json={"body": {"a": [{}] * 50_000}})
    assert refused.status_code == 413
    assert "4096 bytes" in refused.json()["error"]


@pytest.mark.parametrize(
    "body",
    [b'{"body": {"a": "\\ud800"}}', b'{"body": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}"],
    ids=["lone surrogate", "deep"],
)
async def test_a_strange_body_is_kept_or_refused(client: httpx.AsyncClient, calls: Calls, body: bytes):
    started = await client.post("/start", content=body)
    assert started.status_code == 200
    caller = Caller()
    path = f"/sessions/{started.json()['sessionId']}/api/offer"
    assert (await client.post(path, json=await caller.offer())).status_code == 200
    await calls.until_begun()
    assert calls.arguments[0].body == json.loads(body)["body"]
    await caller.hang_up()


async def test_a_number_too_long_for_python_is_refused(client: httpx.AsyncClient):
    answer = await client.post("/start", content=b'{"body": ' + b"9" * 10_000 + b"}")
    assert answer.status_code == 400


def test_an_unused_session_expires():
    async def scenario() -> None:
        async with serve(make(Calls(), start_expire_s=60)) as client:
            path = f"/sessions/{(await client.post('/start', json={})).json()['sessionId']}/api/offer"
            await asyncio.sleep(59)
            # The session exists, but the offer is none.
            assert (await client.post(path, json={})).status_code == 422
            await asyncio.sleep(1)
            assert (await client.post(path, json={})).status_code == 404

    run(scenario())


async def test_a_session_holds_one_call_at_a_time(client: httpx.AsyncClient, calls: Calls):
    path = f"/sessions/{(await client.post('/start', json={})).json()['sessionId']}/api/offer"
    first, second = Caller(), Caller()
    answer = (await client.post(path, json=await first.offer())).json()
    await first.accept(answer)
    assert (await client.post(path, json=await second.offer())).status_code == 409
    # Not a second call: the same one over a new peer connection.
    again = {**await second.offer(), "pc_id": answer["pc_id"], "restart_pc": True}
    restarted = (await client.post(path, json=again)).json()
    await second.accept(restarted)
    end = {"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}
    trickle = {"pc_id": restarted["pc_id"], "candidates": [end]}
    assert (await client.patch(path, json=trickle)).status_code == 200
    assert (await client.get("/health")).json()["calls"] == len(calls.arguments) == 1
    # The connection of the arguments uses its new peer connection now.
    await until_connected(calls, second)
    # After its end the session may call again.
    calls.end.set()
    await until_state(second.connection, "closed")
    third = Caller()
    assert (await client.post(path, json=await third.offer())).status_code == 200
    for caller in (first, second, third):
        await caller.hang_up()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:7860", "[::1]:7860", "LOCALHOST:1", "[::1]"])
async def test_a_loopback_server_is_called_by_loopback_names(client: httpx.AsyncClient, name: str):
    assert (await client.get("/health", headers={"host": name})).status_code == 200
    answer = await client.post("/start", json={}, headers={"host": name, "origin": f"http://{name}"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "rebound.example",
        "rebound.example:7860",
        "localhost.evil.example",
        "evil@localhost",
        "",
        "[::2]",
        "a b",
    ],
)
async def test_a_rebound_name_does_not_reach_a_loopback_server(client: httpx.AsyncClient, name: str):
    for path in ("/", "/status", "/shared/talk.js"):
        assert (await client.get(path, headers={"host": name})).status_code == 403
    answer = await client.post("/start", json={}, headers={"host": name, "origin": f"http://{name}"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("settings", "name", "status"),
    [
        ({"host": "0.0.0.0"}, "any.example", 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("talk.example",)}, "talk.example:443", 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("talk.example",)}, "localhost", 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("talk.example",)}, "any.example", 403),
        ({"allowed_hosts": ("Talk.Example",)}, "talk.example", 200),
        ({"host": "::1"}, "any.example", 403),
        ({"host": "localhost"}, "any.example", 403),
        ({"host": "127.0.0.2"}, "any.example", 403),
    ],
)
async def test_the_settings_say_by_which_names_a_server_is_called(
    calls: Calls, settings: dict[str, Any], name: str, status: int
):
    async with serve(make(calls, **settings)) as client:
        assert (await client.get("/health", headers={"host": name})).status_code == status


@pytest.mark.parametrize("origin", ["null", "http://localhost:9999", "http://[", "file://"])
async def test_an_origin_that_is_not_this_server_is_refused(client: httpx.AsyncClient, origin: str):
    assert (await client.post("/start", json={}, headers={"origin": origin})).status_code == 403


async def test_the_status_counts_threads_by_the_pools_they_are_of(client: httpx.AsyncClient):
    with ThreadPoolExecutor(3, thread_name_prefix="a-pool.of_ours") as pool:
        barrier = threading.Barrier(3)
        list(pool.map(lambda _: barrier.wait(5), range(3)))
        threads = (await client.get("/status")).json()["threads"]
    assert threads["a-pool.of_ours"] == 3
    assert threads["MainThread"] == 1
