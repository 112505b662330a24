"""SIGTERM in the middle of calls: every caller is notified of the reason, on every surface."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from parley.evals.harness.phone_speech import quiet
from tests.peers.minicpm_page import page
from tests.peers.phone_caller import RATE_HZ, heard, likeness, place
from tests.peers.server import RunningServer, running_server
from tests.peers.test_phone import LOUD, SAID, telephone
from tests.peers.test_sessions import call, new_session

CLAUSE = "This server is being restarted."
FAREWELL = f"{CLAUSE} Please call again. Goodbye."
# A busy machine makes speech late.
SOON = "server: {open: true, drain_s: 0.5, goodbye_s: 30}\n"


def farewells(file: Path) -> set[str]:
    """Return the transports of the calls in which the whole farewell was heard."""
    with closing(sqlite3.connect(file)) as store:
        turns = [json.loads(payload) for (payload,) in store.execute("SELECT payload FROM event")]
    return {
        turn["transport"]
        for turn in turns
        if str(turn.get("text", "")).endswith(FAREWELL) and turn.get("truncated") is False
    }


async def ended(server: RunningServer, *, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while server.process.is_running() and server.process.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.05)


async def closed_with(socket) -> tuple[str, int, str]:
    """Return the farewell to a client of the OpenAI protocol, and how its socket was closed."""
    said = ""
    try:
        while True:
            message = json.loads(await socket.recv())
            if message["type"] == "response.output_audio_transcript.delta":
                said += message["delta"]
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return said, closed.rcvd.code, closed.rcvd.reason


# Three calls are compared with the expected audio.
@pytest.mark.paired
@pytest.mark.parametrize("mode", ["cascade", "duplex"])
async def test_every_caller_hears_that_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    async with telephone(tmp_path, monkeypatch, "--mode", mode, more=SOON, keys="") as (server, front):
        url = server.url.replace("http", "ws")
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as http,
            connect(f"{url}/v1/realtime?model=parley") as socket,
            page(server.url, "/ws/streaming/one") as waiting,
        ):
            async with call(http, await new_session(http)) as browser:
                telling = asyncio.create_task(closed_with(socket))
                calling = asyncio.create_task(place(front.url, quiet(30), max_drain_s=0.5))
                async with asyncio.timeout(60):
                    while not front.from_server:
                        await asyncio.sleep(0.05)
                server.process.terminate()
                # No reply is under way there.
                assert (await waiting.until_closed())[0] == 1012
                await browser.until(
                    lambda: "Goodbye." in "".join(m["data"]["text"] for m in browser.of_type("bot-tts-text"))
                )
                received = [m["data"]["kind"] for m in browser.of_type("server-message")]
                assert "server_shutdown" in received
                # A caller who leaves while the last word is on its way has not heard the end of it.
                await browser.until(
                    lambda: (
                        len(browser.of_type("bot-stopped-speaking"))
                        >= len(browser.of_type("bot-started-speaking"))
                    )
                )
                said, *close = await asyncio.wait_for(telling, 30)
                assert FAREWELL in " ".join(said.split())
                assert close == [1012, "the server is stopping"]
            at_phone = heard(await calling)
            # In full duplex the voice is made in other pieces than the reference that it is compared with.
            assert mode == "duplex" or likeness(at_phone, FAREWELL) > SAID
            assert (abs(at_phone[-RATE_HZ * 3 :]) > LOUD).any()
        await ended(server)
    # It was heard to its end: by a browser, over a socket, by phone.
    assert farewells(tmp_path / "sessions.db") == {"webrtc", "openai", "phone"}


async def test_a_server_without_calls_stops_at_once():
    async with running_server() as server:
        server.process.terminate()
        await ended(server)


async def test_new_calls_are_refused_while_those_that_run_go_on_and_a_second_signal_ends_them(tmp_path: Path):
    config = tmp_path / "own.yaml"
    config.write_text("server: {drain_s: 600}\n")
    async with (
        running_server("--config", str(config)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as http,
        call(http, await new_session(http)) as browser,
    ):
        server.process.terminate()
        async with asyncio.timeout(60):
            while (await http.post("/start", json={})).status_code != 503:
                await asyncio.sleep(0.05)
        assert (await http.get("/health")).json()["calls"] == 1
        assert browser.connection.connectionState == "connected"
        server.process.terminate()
        await ended(server)
