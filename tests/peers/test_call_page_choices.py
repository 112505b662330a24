"""A caller who chooses a voice, a role and instructions on the page of a call, and pauses it, in Chromium."""

import wave
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from parley.core.client_rules import CLIENT_HEADING
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_browser import BEARER, chromium, lines_are_free, serving, visit
from tests.voices import RATE_HZ, silence

__all__ = ["chromium"]
pytestmark = pytest.mark.browser

SENTENCES = [
    "A card that is lost is blocked within a minute of your call. ",
    "The number on the back stays the same as it was before.",
]
VOICES = "speaking: {tts: {name: flite}, voices: {rms: {name: flite, settings: {voice: rms}}}}\n"


@pytest.mark.paired
async def test_a_caller_chooses_how_the_bot_speaks_and_pauses_the_call(chromium: str, tmp_path: Path):
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(silence(120_000))
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")
    async with OpenAiServer([Turn(SENTENCES)]) as model:
        row = f"{{name: openai_compatible, settings: {{base_url: '{model.url}/v1', model: m}}}}"
        more = f"bot: {{greeting: ''}}\n{VOICES}"
        with serving(tmp_path, f"llm: {row}", more=more, takes_instructions=True) as served:
            async with visit(chromium, served.address, *flags) as person:
                page = person.page
                await person.part("choose").click()
                await expect(person.part("choice-reference")).to_be_hidden()
                await page.get_by_label("Voice", exact=True).select_option("rms")
                await page.get_by_label("Role").select_option("bank_helper")
                await page.get_by_label("Instructions").fill("Name no numbers.")
                await expect(person.part("hear")).to_be_visible()
                await page.get_by_role("button", name="Done").click()

                await person.part("talk").click()
                await person.state("listening")
                await expect(page.get_by_label("Role")).to_be_disabled()
                await person.type("I lost my card.")
                await person.state("speaking")
                await person.answered("A card")
                await person.part("hold-switch").click()
                await expect(person.part("state")).to_have_text("On hold")
                await expect(person.part("hold-switch")).to_have_text("Go on")
                await expect(person.part("bot-turn").locator(".unheard").first).to_be_visible()

                await person.part("hold-switch").click()
                await expect(person.part("hold-switch")).to_have_text("Pause")
                await person.answered("as it was before.")
                await person.state("listening")
                await person.part("talk").click()
                await person.state("ready")
                await lines_are_free(served.address)

                await page.reload()
                await expect(page.locator("#choice-voice")).to_have_value("rms")
                await expect(page.locator("#choice-instructions")).to_have_value("")
            assert person.complaints == []
            events = await timeline(served.address)
        [request] = model.requests
        [prompt] = [each["content"] for each in request["messages"] if each["role"] == "system"]
        assert "You are on the telephone for Northwind Bank." in prompt
        assert prompt.endswith(f"{CLIENT_HEADING}\n\nName no numbers.")
    [joined] = [each for each in events if each["kind"] == "joined"]
    assert joined["payload"]["choices"] == {"voice": "rms", "preset": "bank_helper", "instructions": True}
    assert [each["payload"]["state"] for each in events if each["kind"] == "hold"] == ["began", "ended"]
    heard = " ".join(each["payload"]["text"] for each in events if each["kind"] == "bot_turn")
    assert heard.split() == "".join(SENTENCES).split()


async def timeline(address: str) -> list[dict[str, Any]]:
    """Return the events of the newest session."""
    async with httpx.AsyncClient(base_url=address, headers=BEARER) as client:
        session = (await client.get("/api/sessions")).json()["sessions"][0]["id"]
        found: list[dict[str, Any]] = (await client.get(f"/api/sessions/{session}/timeline")).json()["events"]
    return found
