"""A user who lets a page use the microphone and denies it the camera, in Chromium."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.peers.llm_script import Turn
from tests.peers.minicpm_server import minicpm_server
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_browser import (
    Visit,
    chromium,
    lines_are_free,
    serving,
    transports,
    units_are_heard,
    visit,
)

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

BLOCKED = "The camera is blocked for this page."


@asynccontextmanager
async def without_camera(chromium: str, address: str) -> AsyncIterator[Visit]:
    async with visit(chromium, address, "--deny-permission-prompts") as person:
        await person.context.grant_permissions(["microphone"])
        yield person


async def test_a_call_goes_on_without_the_camera_that_the_caller_denies(chromium: str, tmp_path: Path):
    async with OpenAiServer([Turn(["I hear you."])]) as model:
        row = f"{{name: openai_compatible, settings: {{base_url: '{model.url}/v1', model: m, sees: true}}}}"
        with serving(tmp_path, f"llm: {row}", more="bot: {greeting: ''}\n") as served:
            async with without_camera(chromium, f"{served.address}/?raw=1") as person:
                await person.part("talk").click()
                await person.state("listening")
                await expect(person.part("notice")).to_be_hidden()
                # Twice: a browser may ask again.
                for _ in range(2):
                    await person.part("camera").click()
                    await expect(person.part("notice")).to_have_text(BLOCKED)
                    await expect(person.part("camera")).to_have_attribute("aria-pressed", "false")
                    await expect(person.part("preview")).to_be_hidden()
                await expect(person.part("microphone")).to_have_attribute("aria-pressed", "false")
                await person.type("Do you hear me?")
                await person.answered("I hear you.")
                await person.part("talk").click()
                await person.state("ready")
                assert person.complaints == []
            await lines_are_free(served.address)
            # No camera has joined the conversation.
            assert await transports(served.address) == [("joined", "webrtc"), ("left", "webrtc")]


async def test_a_full_duplex_conversation_goes_on_without_the_camera_that_is_denied(
    chromium: str, tmp_path: Path
):
    with minicpm_server() as model:
        seeing = (
            f"duplex: {{engine: {{name: minicpm_worker, settings: {{url: '{model.url}', sees: true}}}}}}\n"
        )
        with serving(tmp_path, "llm: {name: documents}", more=seeing) as served:
            async with without_camera(chromium, f"{served.address}/omni?raw") as person:
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Listening")
                await person.part("camera").click()
                await expect(person.part("notice")).to_have_text(BLOCKED)
                await expect(person.part("camera")).to_have_attribute("aria-pressed", "false")
                await expect(person.part("picture")).to_be_hidden()
                await units_are_heard(model, 3)
                assert not any(chunk["frames"] for chunk in model.chunks)
                await expect(person.part("state")).to_have_text("Listening")
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Ready")
                assert person.complaints == []
