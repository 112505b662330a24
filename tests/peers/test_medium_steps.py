"""A person who writes, calls, shows a camera and a screen, and writes again, in Chromium: one session."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from parley.core.pictures import OF_SCREEN
from parley.turn_taking.tier_settings import PHRASES
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_browser import (
    BEARER,
    Visit,
    chromium,
    lines_are_free,
    pictures_in,
    serving,
    transports,
    visit,
)
from tests.peers.test_stream_pool import until

__all__ = ["chromium"]
# Reasons of an offer that is taken.
TAKEN = ("step_offered", "accepted", "reached")
pytestmark = pytest.mark.browser
RULES = """
bot: {greeting: ''}
tiers:
  offers:
    - {to: video, cause: eyes, on: [the label]}
    - {to: screen, cause: eyes, on: [on my screen]}
"""


@pytest.mark.paired
async def test_a_session_goes_on_by_every_medium_and_back(chromium: str, tmp_path: Path):
    flags = ("--use-fake-ui-for-media-stream",)
    async with OpenAiServer([Turn(["I see."])]) as model:
        row = f"{{name: openai_compatible, settings: {{base_url: '{model.url}/v1', model: m, sees: true}}}}"
        with serving(tmp_path, f"llm: {row}", more=RULES) as served:
            async with visit(chromium, f"{served.address}/s/new", *flags) as person:
                await call_from_writing(person)
                await show(person, "Can you read the label?", PHRASES["offer_video"], PHRASES["go_video"])
                await expect(person.part("preview")).to_be_visible()
                await ask_until(person, model, lambda request: bool(shown(request)))
                await person.part("camera").click()
                await expect(person.part("preview")).to_be_hidden()
                # The server notices the end of a picture when none has come for a while.
                await recorded(served.address, ("left", "camera"))

                await show(person, "It is on my screen.", PHRASES["offer_screen"], PHRASES["go_screen"])
                await ask_until(person, model, lambda request: OF_SCREEN in shown(request))
                assert pictures_in(model.requests[-1])

                await person.state("listening")
                await person.type("Can we go on in writing?")
                await person.page.wait_for_url("**/s/*", timeout=60_000)
                await expect(person.part("bot-turn").filter(has_text=PHRASES["go_text"])).to_be_visible()
                await expect(person.part("step")).to_be_hidden()
            assert person.complaints == []
            await lines_are_free(served.address)
            assert await transports(served.address) == [
                ("joined", "webrtc"),
                *[(kind, source) for source in ("camera", "screen") for kind in ("joined", "left")],
                ("left", "webrtc"),
            ]
            assert await steps(served.address) == [
                ("step_requested", "voice"),
                ("reached", "voice"),
                *[
                    (each, to)
                    for to in ("video", "screen")
                    for each in ("step_offered", "accepted", "reached")
                ],
                ("step_requested", "text"),
                ("reached", "text"),
            ]


async def recorded(address: str, step: tuple[str, str]) -> None:
    """Wait until the session has the coming or going of a transport."""
    async with asyncio.timeout(60):
        while step not in await transports(address):
            await asyncio.sleep(0.05)


async def call_from_writing(person: Visit) -> None:
    """Ask for a call in writing, and begin it by the button of the page."""
    await person.state("ready")
    await person.type("Can I talk to you?")
    await person.answered(PHRASES["go_voice"])
    await expect(person.part("step")).to_contain_text("Parley suggests a call.")
    await person.part("step-call").click()
    # Loaded, with its script: an earlier click would have no effect.
    await person.page.wait_for_url("**/?session=*")
    await person.part("talk").click()
    await person.state("listening", "speaking")


async def show(person: Visit, text: str, offer: str, taken: str) -> None:
    """Say something for which Parley has to see, and take its offer by the button."""
    await person.state("listening")
    await person.type(text)
    await person.answered(offer)
    await person.part("step-accept").click()
    await person.answered(taken)
    await person.answered(PHRASES["seen"])
    await expect(person.part("step")).to_be_hidden()


async def ask_until(person: Visit, model: OpenAiServer, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Ask again until the model gets a question as expected: a picture may come after the first one."""
    async with asyncio.timeout(60):
        while True:
            await person.state("listening")
            asked = len(model.requests)
            await person.type("And now?")
            await until(lambda before=asked: len(model.requests) > before)
            if holds(model.requests[-1]):
                return


def shown(request: dict[str, Any]) -> list[str]:
    """Return what precedes the words of the last message: the names of pictures, empty for one without."""
    content = request["messages"][-1]["content"]
    parts = content if isinstance(content, list) else []
    named = [part.get("text", "") for part in parts]
    return named[:-1]


async def steps(address: str) -> list[tuple[str, str]]:
    """Return reason and medium of the changes of the tier in the newest session."""
    async with httpx.AsyncClient(base_url=address, headers=BEARER) as client:
        session = (await client.get("/api/sessions")).json()["sessions"][0]["id"]
        query = {"kind": "tier"}
        events = (await client.get(f"/api/sessions/{session}/timeline", params=query)).json()["events"]
    return [(each["payload"]["reason"], each["payload"]["to"]) for each in events]
