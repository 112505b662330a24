"""Programs outside of Parley report about a live call, against the server as a user starts it."""

import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import websockets
from playwright.async_api import async_playwright, expect

from parley.serving.gateway.annotations_api import BURST, REPORTS_PER_S, TOO_FAST
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.realtime_caller import RealtimeCaller, calling
from tests.peers.server import ROOT, RunningServer
from tests.peers.test_browser import OFFLINE
from tests.peers.test_openai_realtime import PIPELINES, serving
from tests.system import missing

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Two seconds of speech.
QUESTION = "What do I have to pay for this?"
DOCUMENT = ROOT / "docs" / "how-to" / "outside_specialists.md"
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[OpenAiServer]:
    async with OpenAiServer([Turn(["It is twelve euros."])]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(llm: OpenAiServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with serving(llm, tmp_path_factory.mktemp("annotations")) as server:
        yield server


@asynccontextmanager
async def in_call(
    server: RunningServer, *, model: str = PIPELINES[0]
) -> AsyncIterator[tuple[RealtimeCaller, httpx.AsyncClient]]:
    """Hold a call; the client's paths begin at its session."""
    async with calling(server.url, model=model) as caller:
        session_id = caller.of("session.created")[0].session.id
        async with httpx.AsyncClient(base_url=f"{server.url}/api/sessions/{session_id}") as client:
            async with asyncio.timeout(60):
                # The session is there before its call is.
                while (await client.post("/annotations", json={"annotations": []})).status_code == 409:
                    await asyncio.sleep(0.1)
            yield caller, client


def pointing(ref: str, **more: Any) -> dict[str, Any]:
    return {"stream": "vision", "payload": {"gesture": "pointing", "ref": ref}, **more}


def last_question(messages: list[dict[str, Any]]) -> str:
    """Return the last line of the caller's last message: their words."""
    return str([each for each in messages if each["role"] == "user"][-1]["content"]).splitlines()[-1]


async def events_of(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return the reports of outside programs in the session."""
    found: list[dict[str, Any]] = []
    after = ""
    while after is not None:
        query = {"kind": "annotation", "limit": "1000", **({"after": after} if after else {})}
        page = (await client.get("/timeline", params=query)).json()
        found += [event for event in page["events"] if event["source"].endswith(".outside")]
        after = page["after"]
    return found


async def test_the_documented_program_reports_a_gesture_that_the_model_reads(
    server: RunningServer, llm: OpenAiServer, tmp_path: Path
):
    program = tmp_path / "keyboard_specialist.py"
    [text] = PROGRAM.findall(DOCUMENT.read_text(encoding="utf-8"))
    program.write_text(text)
    async with in_call(server) as (caller, client):
        session_id = str(client.base_url).rstrip("/").rpartition("/")[2]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, str(program), server.url, session_id),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdin is not None and child.stdout is not None
        async with asyncio.timeout(60):
            assert json.loads(await child.stdout.readline())["read_by_model"]
        caller.say(QUESTION)
        await caller.until("input_audio_buffer.speech_started")
        # The program reports the second before the last one: the first words.
        await asyncio.sleep(1.2)
        child.stdin.write(b"the fee\n")
        await child.stdin.drain()
        await caller.until("response.done")
        assert "[pointing at the fee]" in last_question(llm.requests[-1]["messages"])
        prompt = (await client.get("/prompt")).json()["messages"]
        assert "[pointing at the fee]" in last_question(prompt)
    # The program ends with the call, by itself.
    async with asyncio.timeout(60):
        child.stdin.close()
        answers = [json.loads(line) for line in (await child.stdout.read()).splitlines()]
        assert await child.wait() == 0
    assert answers and all(each.get("accepted") == 1 for each in answers)


@pytest.mark.parametrize("pipeline", PIPELINES)
async def test_reports_stand_behind_the_words_of_their_moment_in_whatever_order_they_come(
    server: RunningServer, llm: OpenAiServer, pipeline: str
):
    async with in_call(server, model=pipeline) as (caller, client):
        caller.say(QUESTION)
        await caller.until("input_audio_buffer.speech_started")
        # It is detected in the first word.
        began_us = (await client.post("/annotations", json={"annotations": []})).json()["now_us"]
        await asyncio.sleep(1.3)
        reports = [
            pointing("the fee", event_us=began_us + 1_200_000, duration_ms=300),
            pointing("the card", event_us=began_us + 200_000, duration_ms=300),
        ]
        answer = await client.post("/annotations", json={"annotations": reports})
        assert (answer.json()["accepted"], answer.json()["read_by_model"]) == (2, True)
        await caller.until("response.done")
        question = last_question(llm.requests[-1]["messages"])
    assert 0 < question.find("[pointing at the card]") < question.find("[pointing at the fee]"), question


async def test_the_page_of_the_session_shows_the_lanes_during_the_call(server: RunningServer):
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("chromium")
    async with in_call(server) as (caller, client), async_playwright() as playwright:
        session_id = str(client.base_url).rstrip("/").rpartition("/")[2]
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(OFFLINE))
        try:
            page = await browser.new_page()
            await page.goto(f"{server.url.replace('127.0.0.1', 'localhost')}/s/{session_id}")
            await page.get_by_text("Perception", exact=True).click()
            await expect(page.get_by_text("Nothing was perceived in a call yet.")).to_be_visible()
            caller.say(QUESTION)
            await caller.until("input_audio_buffer.speech_started")
            seen = pointing("the fee", age_ms=200, duration_ms=300)
            assert (await client.post("/annotations", json={"annotations": [seen]})).status_code == 200
            lanes = page.locator(".lane")
            await expect(lanes.get_by_text("pointing · the fee")).to_be_visible()
            await expect(page.locator('[data-lane="words"]')).to_contain_text("pay")
        finally:
            await browser.close()


async def test_a_flood_costs_its_sender_the_socket_and_the_call_goes_on(
    server: RunningServer, llm: OpenAiServer
):
    async with in_call(server) as (caller, client):
        url = str(client.base_url).replace("http", "ws", 1).rstrip("/") + "/annotations/socket"
        closed: list[tuple[int | None, str | None]] = []
        message = json.dumps({"annotations": [pointing("the fee", age_ms=100)]})

        async def send(socket: websockets.ClientConnection) -> None:
            # Some 1,000 a second.
            while True:
                await socket.send(message)
                await asyncio.sleep(0.001)

        async def flood() -> None:
            while True:
                # As soon as it is thrown out it is back.
                async with websockets.connect(url) as socket:
                    sending = asyncio.create_task(send(socket))
                    with suppress(websockets.ConnectionClosed):
                        async for _answer in socket:
                            pass
                    await asyncio.gather(sending, return_exceptions=True)
                closed.append((socket.close_code, socket.close_reason))

        began_s = time.monotonic()
        flooding = asyncio.create_task(flood())
        caller.say(QUESTION)
        await caller.until("response.done")
        caller.say(QUESTION)
        await caller.until("response.done", count=2)
        flooding.cancel()
        took_s = time.monotonic() - began_s
        with suppress(asyncio.CancelledError):
            await flooding
        stored = len(await events_of(client))
    assert len(caller.understood()) == 2 and "pay" in caller.understood()[-1]
    assert closed and set(closed) <= {(1008, TOO_FAST[:100])}
    assert stored <= BURST + 1 + REPORTS_PER_S * took_s
