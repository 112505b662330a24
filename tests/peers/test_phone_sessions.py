"""Sessions that continue by phone: by the caller's number, or by a code that is entered with keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from parley.protocols.twilio_media import RATE_HZ, SILENCE
from parley.transports.twilio.simulated_caller import CALLER, Caller, SimulatedCall, SimulatedCallResult
from tests.peers.operations_gateway import BEARER
from tests.peers.server import RunningServer, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

Line = tuple[RunningServer, httpx.AsyncClient]
OTHER = "+15550123"
AGAIN = "Welcome back."


@asynccontextmanager
async def line(folder: Path, monkeypatch: pytest.MonkeyPatch, *, phone: str = "") -> AsyncIterator[Line]:
    """Run a server that a simulated caller reaches."""
    monkeypatch.setenv("PARLEY_CALLER_KEY", "k" * 32)
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{folder}/sessions.db")
    config = folder / "phone.yaml"
    config.write_text(
        f"phone: {{signatures: false, number: '+15550199'{phone}}}\nbot: {{greeting: Hello there.}}\n"
    )
    async with (
        running_server("--config", str(config)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client,
    ):
        yield server, client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remembering(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """Run a server whose callers continue the session of their number."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        phone = ", remember_callers: {trust: any}"
        async with line(tmp_path_factory.mktemp("remembering"), monkeypatch, phone=phone) as at:
            yield at


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with line(tmp_path_factory.mktemp("plain"), monkeypatch) as at:
            yield at


async def call(
    server: RunningServer, *, number: str = CALLER, keys: str = "", quiet_s: float = 0.5
) -> SimulatedCallResult:
    """Place a call that waits for the greeting, presses keys, and is silent."""
    caller = Caller(number=number, keys=keys, tail_ms=1_500)
    return await SimulatedCall(server.url, SILENCE * round(quiet_s * RATE_HZ), caller=caller).hold()


async def sessions(client: httpx.AsyncClient) -> list[str]:
    """Return the sessions, newest first."""
    return [each["id"] for each in (await client.get("/api/sessions")).json()["sessions"]]


async def newer(client: httpx.AsyncClient, before: list[str]) -> list[str]:
    """Return the sessions that were not there before, newest first."""
    return [each for each in await sessions(client) if each not in before]


async def timeline(client: httpx.AsyncClient, session: str) -> list[dict[str, Any]]:
    return (await client.get(f"/api/sessions/{session}/timeline", params={"limit": 500})).json()["events"]


async def over(client: httpx.AsyncClient, session: str) -> list[dict[str, Any]]:
    """Return the timeline with the end of its call, which is written after the caller has left."""
    async with asyncio.timeout(60):
        while not of_kind(events := await timeline(client, session), "left"):
            await asyncio.sleep(0.05)
    return events


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


async def test_a_number_goes_on_with_its_session_and_a_withheld_one_belongs_to_no_caller(remembering: Line):
    server, client = remembering
    before = await sessions(client)
    first = await call(server)
    assert first.ended == "caller" and first.violations == []
    [session] = await newer(client, before)
    await asyncio.gather(call(server), call(server, number="+266696687"), call(server, number=OTHER))
    assert len(await newer(client, before)) == 3
    events = await timeline(client, session)
    assert [event["payload"]["text"] for event in of_kind(events, "bot_turn")][-1:] == [AGAIN]
    assert len(of_kind(events, "joined")) == 2


async def test_who_is_cut_off_and_calls_again_gets_on_with_the_session(remembering: Line):
    server, client = remembering
    before, number = await sessions(client), "+15550145"
    # The carrier has not noticed the end: the first caller's line still counts as good.
    first = asyncio.create_task(call(server, number=number, quiet_s=30))
    async with asyncio.timeout(60):
        while not (begun := await newer(client, before)) or not of_kind(
            await timeline(client, begun[0]), "bot_turn"
        ):
            await asyncio.sleep(0.1)
    second = await call(server, number=number)
    assert second.ended == "caller"
    assert (await first).ended == "server"
    assert len(await newer(client, before)) == 1


async def test_a_second_call_can_be_a_session_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    apart = ", remember_callers: {trust: any, second_call: apart}"
    async with line(tmp_path, monkeypatch, phone=apart) as (server, client):
        first = asyncio.create_task(call(server, quiet_s=8))
        async with asyncio.timeout(60):
            while not await sessions(client):
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        second = await call(server)
        assert second.ended == "caller" and (await first).ended == "caller"
        assert len(await sessions(client)) == 2


async def test_no_one_is_remembered_unless_the_deployment_says_so(plain: Line):
    server, client = plain
    before = await sessions(client)
    await call(server)
    await call(server)
    [session, _] = await newer(client, before)
    answer = await client.put(f"/api/sessions/{session}/caller", json={"number": CALLER})
    assert answer.status_code == 400 and "remember_callers" in answer.json()["error"]


async def test_a_linked_number_goes_on_with_the_session_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    linked = ", remember_callers: {trust: any, continues: linked}"
    async with line(tmp_path, monkeypatch, phone=linked) as (server, client):
        session = (await client.post("/api/sessions")).json()["id"]
        assert (await client.put(f"/api/sessions/{session}/caller", json={"number": "12"})).status_code == 400
        linking = await client.put(f"/api/sessions/{session}/caller", json={"number": "+1 555-0100"})
        assert linking.status_code == 204
        await asyncio.gather(call(server), call(server, number=OTHER))
        assert len(of_kind(await timeline(client, session), "joined")) == 1
        assert len(await sessions(client)) == 2
        # Not linked: the next call of this number is a new session again.
        await call(server, number=OTHER)
        assert len(await sessions(client)) == 3
        assert (await client.delete(f"/api/sessions/{session}/caller")).status_code == 204
        await call(server)
        assert len(await sessions(client)) == 4


async def test_a_code_moves_the_call_into_the_session_of_a_page_once(plain: Line):
    server, client = plain
    before = await sessions(client)
    session = (await client.post("/api/sessions")).json()["id"]
    typed = await client.post(f"/api/sessions/{session}/messages", json={"text": "My name is Ada."})
    assert typed.status_code == 200
    code = (await client.post(f"/api/sessions/{session}/call-code")).json()
    assert code["number"] == "+15550199" and len(code["code"]) == 6
    heard = await call(server, keys=code["code"], quiet_s=1)
    assert heard.ended == "caller" and heard.violations == []
    [own] = [each for each in await newer(client, before) if each != session]
    moved, left = await over(client, session), await over(client, own)
    assert [event["payload"]["text"] for event in of_kind(moved, "bot_turn")][-1] == AGAIN
    assert len(of_kind(moved, "left")) == len(of_kind(left, "left")) == 1
    assert of_kind(left, "left")[0]["event_us"] <= of_kind(moved, "joined")[0]["event_us"]
    # The code has been used.
    await call(server, keys=code["code"], quiet_s=1)
    assert len(of_kind(await timeline(client, session), "joined")) == 1
