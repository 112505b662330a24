"""The full-duplex page over a WebSocket, in a real browser."""

import asyncio
import wave
from pathlib import Path

from playwright.async_api import expect

from parley.configs.deployment import DEFAULT_PROMPT
from parley.core.client_rules import prompt_of
from tests.peers.minicpm_server import minicpm_server
from tests.peers.test_browser import chromium, serving, visit
from tests.voices import RATE_HZ, say, silence

__all__ = ["chromium"]


async def test_a_person_talks_with_the_two_tier_engine(chromium: str, tmp_path: Path):
    speech = silence(3_000) + say("What are your opening hours on saturday?") + silence(20_000)
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(speech)
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")
    with serving(tmp_path, "llm: {name: documents}") as served:
        async with visit(chromium, f"{served.address}/omni?raw", *flags) as person:
            await person.part("talk").click()
            await expect(person.part("state")).to_have_text("Listening")
            await expect(person.part("said")).to_contain_text("ten until two")
            await expect(person.part("latency")).to_contain_text("ms")
            await person.part("talk").click()
            await expect(person.part("state")).to_have_text("Ready")
            await expect(person.part("notice")).to_be_hidden()
            assert not person.complaints and len(person.hosts) == 1


async def test_pictures_pauses_and_a_model_that_has_to_listen(chromium: str, tmp_path: Path):
    with minicpm_server() as model:
        engine = f"{{name: minicpm_worker, settings: {{url: '{model.url}', sees: true}}}}"
        seeing = f"duplex: {{engine: {engine}}}\n"
        with serving(tmp_path, "llm: {name: documents}", more=seeing, takes_instructions=True) as served:
            flags = ("--use-fake-ui-for-media-stream",)
            async with visit(chromium, f"{served.address}/omni?raw", *flags) as person:
                await person.page.locator("textarea").fill("Be a lighthouse keeper.")
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Listening")
                await person.part("camera").check()
                await expect(person.part("picture")).to_be_visible()
                async with asyncio.timeout(60):
                    while not any(chunk["frames"] for chunk in model.chunks):
                        await asyncio.sleep(0.1)
                assert model.prepared[0]["system_prompt"] == prompt_of(
                    DEFAULT_PROMPT, "Be a lighthouse keeper."
                )
                await person.part("pause").click()
                await expect(person.part("state")).to_have_text("Paused")
                heard = len(model.chunks)
                await asyncio.sleep(2.5)
                assert len(model.chunks) <= heard + 1
                await person.part("pause").click()
                await expect(person.part("state")).to_have_text("Listening")
                await person.part("listen").dispatch_event("pointerdown")
                async with asyncio.timeout(60):
                    while not any(chunk["force_listen"] for chunk in model.chunks):
                        await asyncio.sleep(0.1)
                served.process.kill()
                await expect(person.part("state")).to_have_text("Ended")
                await expect(person.part("notice")).to_contain_text("the connection was lost")
