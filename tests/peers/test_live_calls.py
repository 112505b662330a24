"""Operators listen to a live call and end it, with a program and on the operator's page."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import yaml
from playwright.async_api import async_playwright, expect

from parley.configs.load import read_yaml
from parley.evals.abuse.likeness import SAID, at_8_khz, likeness, spoken
from tests.peers.minicpm_page import page
from tests.peers.operations_gateway import BEARER, TOKEN
from tests.peers.server import briefly_greeting, running_server
from tests.peers.test_browser import OFFLINE, Visit, chromium, open_page
from tests.peers.test_command import speech
from tests.peers.test_metrics import scrape
from tests.peers.test_webrtc_call import call, turns_of
from tests.peers.webrtc_caller import Caller

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired, pytest.mark.asyncio(loop_scope="module")]

QUESTION = "What are your opening hours on Saturday?"
ANSWER = "On Saturdays they are open from ten until two."
HEADER_BYTES, RATE_HZ = 44, 16_000
# The page makes its player out of reach of its document.
KEEP_PLAYERS = """
  const Made = window.Audio;
  window.players = [];
  window.Audio = function (...given) {
    const player = new Made(...given);
    window.players.push(player);
    return player;
  };
"""
# The loudest sample of the player in the next seconds.
LOUDEST = """async () => {
  const [player] = window.players;
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaElementSource(player).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  let most = 0;
  for (let look = 0; look < 200 && most < 0.05; look += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    analyser.getFloatTimeDomainData(samples);
    most = Math.max(most, ...samples.map(Math.abs));
  }
  return most;
}"""


@dataclass
class Monitored:
    """A server whose operators may listen, with a client of the operator and the folder of its data."""

    url: str
    operator: httpx.AsyncClient
    data: Path

    async def until(self, *listeners: int) -> list[dict[str, Any]]:
        """Return the live calls when there is one for each of these numbers of listeners."""
        async with asyncio.timeout(60):
            while True:
                calls = (await self.operator.get("/api/admin/calls")).json()["calls"]
                if [each["listeners"] for each in calls] == list(listeners):
                    return calls
                # No event reports a change.
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Monitored]:
    folder = tmp_path_factory.mktemp("monitored")
    config = briefly_greeting(folder)
    settings = read_yaml(config) | {"operations": {"listen_in": True, "data_dir": str(folder / "data")}}
    config.write_text(yaml.safe_dump(settings))
    async with (
        running_server("--config", str(config)) as running,
        httpx.AsyncClient(base_url=running.url, headers=BEARER, timeout=60) as operator,
    ):
        yield Monitored(running.url, operator, folder / "data")


async def heard_until_the_end(server: Monitored, call_id: str, into: BytesIO) -> None:
    async with server.operator.stream("GET", f"/api/admin/calls/{call_id}/audio.wav") as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        assert answer.headers["cache-control"] == "no-store"
        async for chunk in answer.aiter_bytes():
            into.write(chunk)


async def test_a_program_hears_both_sides_until_it_ends_the_call(server: Monitored):
    recording = BytesIO()
    async with call(server.url) as caller:
        [live] = await server.until(0)
        listening = asyncio.create_task(heard_until_the_end(server, live["call_id"], recording))
        await server.until(1)
        question = speech(QUESTION)
        caller.microphone.say(question + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 2)
        assert (await server.operator.delete(f"/api/admin/calls/{live['call_id']}")).status_code == 204
        await caller.until(lambda: ended_by_operator(caller))
        # The answer ends with the call.
        async with asyncio.timeout(60):
            await listening
    await server.until()
    both = np.frombuffer(recording.getvalue()[HEADER_BYTES:], "<i2").reshape(-1, 2)
    left, right = (at_8_khz(both[:, side], RATE_HZ) for side in (0, 1))
    assert likeness(left, at_8_khz(np.frombuffer(question, "<i2"), RATE_HZ)) > SAID
    assert likeness(right, spoken(ANSWER)) > SAID
    assert likeness(left, spoken(ANSWER)) < SAID
    timeline = (await server.operator.get(f"/api/sessions/{live['session_id']}/timeline")).json()["events"]
    states = [each["payload"]["state"] for each in timeline if each["kind"] == "listened"]
    assert states == ["began", "ended"]
    [left_] = [each["payload"] for each in timeline if each["kind"] == "left"]
    assert left_["reason"] == "ended_by_operator"
    acts = [json.loads(line) for line in (server.data / "audit.jsonl").read_text().splitlines()]
    [listened] = [each for each in acts if each["act"] == "call.listened"]
    assert live["session_id"].startswith(listened["session"])
    metrics = await scrape(server.url)
    assert metrics.value("parley_call_ends_total", reason="ended_by_operator") == 1


def ended_by_operator(caller: Caller) -> bool:
    kinds = [message["data"].get("kind") for message in caller.of_type("server-message")]
    return "ended_by_operator" in kinds


async def test_an_operator_at_the_page_listens_stops_and_ends_the_call(chromium: str, server: Monitored):
    async with operator_page(chromium, server) as person, call(server.url) as caller:
        await person.state("live")
        row = person.part("live").locator("tr")
        await expect(row).to_have_count(1)
        session = (await server.until(0))[0]["session_id"]
        await expect(row.get_by_role("link")).to_have_attribute("href", f"/s/{session}")
        await row.get_by_role("button", name="Listen").click()
        await expect(row.locator("td").nth(3)).to_have_text("1")
        loudest = asyncio.create_task(person.page.evaluate(LOUDEST))
        caller.type(QUESTION)
        assert await loudest >= 0.05
        await row.get_by_role("button", name="Stop listening").click()
        await expect(row.locator("td").nth(3)).to_have_text("0")
        await row.get_by_role("button", name="End").click()
        await person.page.locator("dialog").get_by_role("button", name="End").click()
        await caller.until(lambda: ended_by_operator(caller))
        await expect(person.part("no-live")).to_be_visible()
        assert person.complaints == []


async def test_a_chat_is_on_the_page_without_a_button_to_listen_and_its_end_is_the_operators(
    chromium: str, server: Monitored
):
    async with operator_page(chromium, server) as person, page(server.url, "/ws/streaming/live") as client:
        session = (await client.until("queue_done"))["session_id"]
        row = person.part("live").locator("tr")
        await expect(row).to_have_count(1)
        await expect(row.get_by_role("link")).to_have_attribute("href", f"/s/{session}")
        assert [await row.locator("td").nth(place).text_content() for place in (0, 1)] == ["chat", "text"]
        await expect(row.get_by_role("button")).to_have_text(["End"])
        await expect(person.part("listen-what")).to_be_hidden()
        await row.get_by_role("button", name="End").click()
        await person.page.locator("dialog").get_by_role("button", name="End").click()
        assert await client.until_closed() == (1008, "ended_by_operator")
        await expect(person.part("no-live")).to_be_visible()
        assert person.complaints == []


@asynccontextmanager
async def operator_page(chromium: str, server: Monitored) -> AsyncIterator[Visit]:
    async with async_playwright() as playwright:
        flags = [*OFFLINE, "--autoplay-policy=no-user-gesture-required"]
        browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
        try:
            context = await browser.new_context()
            await context.add_init_script(KEEP_PLAYERS)
            address = server.url.replace("127.0.0.1", "localhost")
            yield await open_page(context, f"{address}/admin#token={TOKEN}")
        finally:
            await browser.close()


async def test_a_login_that_ends_ends_listening_and_not_the_call(server: Monitored):
    async with call(server.url), httpx.AsyncClient(base_url=server.url, timeout=60) as browser:
        answer = await browser.post("/api/admin/session", json={"token": TOKEN})
        assert answer.status_code == 200, answer.text
        [live] = await server.until(0)
        path = f"/api/admin/calls/{live['call_id']}/audio.wav"
        async with browser.stream("GET", path) as heard:
            chunks = heard.aiter_bytes()
            await anext(chunks)
            # With another connection: the first one is busy with the answer.
            assert (await browser.delete("/api/admin/session")).is_success
            async with asyncio.timeout(60):
                async for _ in chunks:
                    pass
        assert (await browser.get(path)).status_code == 403
        await server.until(0)
    await server.until()


async def test_a_fifth_listener_of_a_call_is_refused(server: Monitored):
    async with call(server.url):
        [live] = await server.until(0)
        path = f"/api/admin/calls/{live['call_id']}/audio.wav"
        held = [
            asyncio.create_task(heard_until_the_end(server, live["call_id"], BytesIO())) for _ in range(4)
        ]
        await server.until(4)
        assert (await server.operator.get(path)).status_code == 429
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await server.until(0)
    await server.until()
    assert (await server.operator.get(path)).status_code == 404
