"""A page whose call goes on over a new connection: what its caller hears again, and what its tenant uses."""

import asyncio
from pathlib import Path

import httpx
import pytest
import yaml

from parley.session_store.events import Kind
from tests.peers.operations_gateway import BEARER
from tests.peers.server import briefly_greeting, running_server
from tests.peers.test_desk_voice import begin
from tests.peers.webrtc_caller import Caller

ANNOUNCED = "This call is recorded."


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{tmp_path}/sessions.db")


def deployment(folder: Path) -> Path:
    """Return a deployment that records, and whose callers may begin one call a day."""
    path = briefly_greeting(folder)
    settings = yaml.safe_load(path.read_text())
    settings["recording"] = {
        "enabled": True,
        "folder": str(folder / "data"),
        "min_free_gb": 0,
        "announcement": ANNOUNCED,
    }
    settings["server"] = {"tenants": {"others": {"calls_per_day": 1}}}
    path.write_text(yaml.safe_dump(settings))
    return path


async def recorded(client: httpx.AsyncClient, session: str) -> list[str]:
    """Return the states of the recordings of a session, in their order."""
    answer = await client.get(
        f"/api/sessions/{session}/timeline", params={"kind": Kind.RECORDING.value}, headers=BEARER
    )
    return [each["payload"]["state"] for each in answer.json()["events"]]


async def until_started(client: httpx.AsyncClient, session: str, count: int) -> None:
    async with asyncio.timeout(60):
        while (await recorded(client, session)).count("started") < count:
            await asyncio.sleep(0.1)


async def said(client: httpx.AsyncClient, session: str) -> list[str]:
    answer = await client.get(
        f"/api/sessions/{session}/timeline", params={"kind": Kind.BOT_TURN.value}, headers=BEARER
    )
    return [each["payload"]["text"] for each in answer.json()["events"]]


@pytest.mark.parametrize("ends", ["vanishes", pytest.param("hangs up", marks=pytest.mark.slow)])
async def test_a_call_that_goes_on_is_not_announced_again_and_is_still_one_call(tmp_path: Path, ends: str):
    async with (
        running_server("--config", str(deployment(tmp_path))) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        first, again, other = Caller(), Caller(), Caller()
        try:
            assert (await begin(client, first)).status_code == 200
            await first.until(lambda: len(first.of_type("bot-stopped-speaking")) >= 2)
            [listed] = (await client.get("/api/sessions", headers=BEARER)).json()["sessions"]
            session = listed["id"]
            # Before the server has noticed that the connection is gone, or after it.
            if ends == "vanishes":
                first.vanish()
            else:
                await first.hang_up()
            refused = await begin(client, other, session=session)
            assert refused.status_code == 429 and "calls_per_day" in refused.text
            answer = await begin(client, again, session=session, reconnect=True)
            assert answer.status_code == 200, answer.text
            await until_started(client, session, 2)
            assert (await recorded(client, session)).count("announced") == 1
            assert await said(client, session) == [ANNOUNCED, "Hello there."]
        finally:
            for each in (first, again, other):
                await each.hang_up()


async def test_a_client_that_goes_on_with_a_session_without_a_lost_call_begins_one(tmp_path: Path):
    async with (
        running_server("--config", str(deployment(tmp_path))) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        session = (await client.post("/api/sessions", json={})).json()["id"]
        for is_first in (True, False):
            caller = Caller()
            try:
                answer = await begin(client, caller, session=session, reconnect=is_first)
                assert answer.status_code == (200 if is_first else 429), answer.text
                if is_first:
                    await until_started(client, session, 1)
            finally:
                await caller.hang_up()
        assert (await recorded(client, session))[:2] == ["announced", "started"]
