"""The camera of a WebRTC call, watched by a specialist: what it sees, behind the words of its moment."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.session_store.replay import replay_session
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader
from tests.drawn_hand import LEFT, RIGHT, empty, pointing
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.server import running_server
from tests.peers.test_annotations import last_question
from tests.peers.test_command import speech
from tests.peers.webrtc_caller import Caller, Camera, greeted
from tests.vision_weights import require_weights

QUESTION = "What do I have to pay for this one?"
COMPARISON = "Is this one cheaper than that one over there?"
GREY, RED, BLUE = (
    np.full((120, 160, 3), colour, np.uint8) for colour in ((90,) * 3, (200, 9, 9), (9, 9, 200))
)


class Watched:
    """Call with a camera, on a server with one specialist for it.

    Attributes:
        session: of the call.
        log: of the server.
    """

    def __init__(self, caller: Caller, camera: Camera, llm: OpenAiServer, client: httpx.AsyncClient) -> None:
        self.caller, self.camera, self.llm, self.client = caller, camera, llm, client
        (noted,) = [
            each["data"]["id"]
            for each in caller.of_type("server-message")
            if each["data"]["kind"] == "session"
        ]
        self.session: str = noted

    async def ask(self, text: str, *shown: np.ndarray) -> str:
        """Say something while pictures are shown in turn; return the question as the model reads it."""
        pcm = speech(text)
        answered = len(self.caller.of_type("bot-stopped-speaking"))
        self.caller.microphone.say(pcm)
        for picture in shown:
            self.camera.picture = picture
            await asyncio.sleep(len(pcm) / 32_000 / len(shown))
        # The last request: one before may have been a guess, which knows less.
        await self.caller.until(lambda: len(self.caller.of_type("bot-stopped-speaking")) > answered)
        return last_question(self.llm.requests[-1]["messages"])

    async def seen(self) -> list[dict[str, Any]]:
        """Return the reports of the camera in the timeline."""
        path = f"/api/sessions/{self.session}/timeline?kind=annotation&limit=1000"
        page = (await self.client.get(path)).json()
        return [event for event in page["events"] if event["source"] == "vision"]


@asynccontextmanager
async def watched(folder: Path, specialist: str, picture: np.ndarray) -> AsyncIterator[Watched]:
    async with OpenAiServer([Turn(["It is twelve euros."])]) as llm:
        config = folder / "own.yaml"
        settings = f'{{base_url: "{llm.url}/v1", model: m}}'
        config.write_text(
            f"thinking: {{llm: {{name: openai_compatible, settings: {settings}}}}}\n"
            f"hearing: {{specialists: [{{name: prosody}}, {specialist}]}}\n"
        )
        async with (
            running_server("--config", str(config), log=folder / "log.txt") as server,
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
        ):
            camera = Camera(picture)
            async with greeted(client, camera=camera) as caller:
                yield Watched(caller, camera, llm, client)


def strange(**settings: str) -> str:
    return f"{{name: 'tests.fakes.specialists:StrangeWatcher', settings: {json.dumps(settings)}}}"


@pytest.mark.paired
async def test_what_is_pointed_at_stands_behind_the_words_of_its_moment_and_replays(tmp_path: Path):
    async with watched(tmp_path, strange(), GREY) as call:
        status = (await call.client.get("/status")).json()
        assert status["cascade_sees"], "the page offers the camera"
        first = await call.ask(COMPARISON, RED, BLUE, BLUE)
        call.camera.picture = GREY
        # Two frames without the hand, which are half a second apart while the caller is silent.
        await asyncio.sleep(1.5)
        up, down = first.index("[pointing up]"), first.index("[pointing down]")
        assert first.index("this") < up < first.index("that") < down, first
        second = await call.ask(QUESTION, GREY)
        assert "[" not in second, second
        reports = await call.seen()
        assert {each["payload"]["body"]["gesture"] for each in reports} == {
            "pointing up",
            "pointing down",
            None,
        }
        assert not any(each["payload"]["late"] for each in reports)
        # The event is the capture of the frame: the report comes after it, and soon.
        delays_ms = [(each["arrival_us"] - each["event_us"]) / 1000 for each in reports]
        assert all(0 < each for each in delays_ms) and sorted(delays_ms)[len(delays_ms) // 2] < 200
    reader = await SessionReader.open(StoreSettings(url=os.environ["PARLEY_STORE_URL"]))
    try:
        (replayed,) = await replay_session(reader, call.session)
    finally:
        await reader.close()
    assert replayed.difference is None and replayed.annotations > 5


@pytest.mark.parametrize(
    "fault",
    [pytest.param("hang", marks=pytest.mark.slow), "fail", pytest.param("slow", marks=pytest.mark.slow)],
)
async def test_a_strange_specialist_costs_the_call_nothing_but_its_findings(fault: str, tmp_path: Path):
    async with watched(tmp_path, strange(fault=fault), RED) as call:
        for _ in range(2):
            said = await call.ask(QUESTION, RED)
            assert "this one" in said.lower()
            if fault != "slow":
                assert "[" not in said


@pytest.mark.paired
async def test_a_frozen_camera_says_nothing_about_the_present(tmp_path: Path):
    async with watched(tmp_path, strange(), RED) as call:
        assert "[pointing up]" in await call.ask(QUESTION, RED)
        call.camera.is_frozen = True
        # Repeated pictures become sharper for up to three seconds, by the way that video is encoded.
        await asyncio.sleep(5.0)
        assert "[" not in await call.ask(QUESTION)


@pytest.mark.paired
async def test_the_networks_see_a_hand_in_a_call(tmp_path: Path):
    require_weights()
    async with watched(tmp_path, "{name: vision}", empty()) as call:
        said = await call.ask(COMPARISON, pointing(LEFT), *[pointing(RIGHT)] * 2)
        left, right = said.index("[pointing to the left"), said.index("[pointing to the right")
        assert said.index("this") < left < said.index("that") < right, said
