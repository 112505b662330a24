"""Sound and devices of the page of a call: Chromium with several fake microphones against a real server."""

import asyncio
import os
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.peers.test_accessibility import serious
from tests.peers.test_browser import Visit, chromium, serving, visit
from tests.voices import RATE_HZ, say, silence

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

# The connection of the page, which nothing else shows from outside.
WATCH = """() => {
  const Native = RTCPeerConnection;
  window.RTCPeerConnection = class extends Native {
    constructor(...options) {
      super(...options);
      window.peer = this;
    }
  };
}"""
SENT = """() => {
  const { track } = window.peer.getSenders()[0];
  return track && { id: track.id, device: track.getSettings().deviceId, enabled: track.enabled };
}"""
# A microphone that is pulled out ends its track.
PULL_OUT = """() => {
  const { track } = window.peer.getSenders()[0];
  track.stop();
  track.dispatchEvent(new Event("ended"));
}"""


def write_wav(path: Path, pcm: bytes) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm)
    return path


async def look(person: Visit, name: str) -> None:
    """Take pictures of the panel at the size of a desktop and of a phone, light and dark, where asked."""
    shots = os.environ.get("PARLEY_SCREENSHOTS")
    if not shots:
        return
    for size, viewport in {"desktop": (1_280, 800), "phone": (390, 844)}.items():
        await person.page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
        for scheme in ("light", "dark"):
            await person.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await person.page.screenshot(path=f"{shots}/{name}-{size}-{scheme}.png")


async def sent(person: Visit) -> dict[str, Any]:
    return await person.page.evaluate(SENT)


async def until_sent(person: Visit, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the track that is sent is as expected. The page forbids the eval of wait_for_function."""
    async with asyncio.timeout(60):
        while not condition(await sent(person)):
            await asyncio.sleep(0.05)


async def asked_aloud(person: Visit, times: int) -> None:
    """Wait until the question of the microphone was understood so many times."""
    said = person.page.locator('[data-role="user-turn"][data-final="true"]')
    await expect(said.filter(has_text="opening hours")).to_have_count(times)


async def change_the_microphone(person: Visit) -> None:
    before = await sent(person)
    await person.part("sound-open").click()
    names = person.part("choose-microphone").locator("option")
    # The browser's choice, and at least two that have names, now that there is a permission.
    assert await names.count() >= 3
    assert not await serious(person.page)
    await expect(person.part("loudness-bot")).to_contain_text("LUFS now")
    await look(person, "sound-panel")
    wanted = [value for each in await names.all() if (value := await each.get_attribute("value"))]
    other = next(value for value in wanted if value != before["device"])
    await person.part("choose-microphone").select_option(other)
    await until_sent(person, lambda now: now["device"] == other and now["id"] != before["id"])
    await person.page.keyboard.press("Escape")
    await expect(person.part("sound-panel")).to_be_hidden()


async def push_to_talk(person: Visit) -> None:
    keyboard = person.page.keyboard
    await person.part("sound-open").click()
    await person.part("push-to-talk").check()
    await keyboard.press("Escape")
    # The bot may still speak: its state comes first, until the key is held.
    await until_sent(person, lambda now: not now["enabled"])
    await keyboard.down(" ")
    await until_sent(person, lambda now: now["enabled"])
    await expect(person.part("state")).to_have_text("On air")
    await keyboard.up(" ")
    await until_sent(person, lambda now: not now["enabled"])
    await person.part("typed").focus()
    await keyboard.press(" ")
    await expect(person.part("typed")).to_have_value(" ")
    assert not (await sent(person))["enabled"]
    await person.part("sound-open").click()
    await person.part("push-to-talk").uncheck()
    await until_sent(person, lambda now: now["enabled"])


async def play_files(person: Visit, folder: Path) -> None:
    """Play a file in the open panel; the microphone comes back after it."""
    microphone = await sent(person)
    broken = folder / "broken.wav"
    broken.write_bytes(b"no sound" * 100)
    await person.part("file").set_input_files(broken)
    await expect(person.part("sound-notice")).to_have_text("broken.wav cannot be read as audio.")
    await expect(person.part("file-play")).to_be_disabled()
    spoken = silence(300) + say("How do I report a lost card?") + silence(200)
    await person.part("file").set_input_files(write_wav(folder / "question.wav", spoken))
    await expect(person.part("file-time")).to_contain_text("0:00 / 0:0")
    # What is said while the bot speaks may be taken for a backchannel.
    await person.state("listening")
    await person.part("file-play").click()
    await until_sent(person, lambda now: now["id"] != microphone["id"])
    await expect(person.part("file-play")).to_have_text("Stop")
    await person.answered("hotline")
    await until_sent(person, lambda now: now["id"] == microphone["id"])
    await expect(person.part("file-play")).to_have_text("Play")


async def gain(person: Visit) -> None:
    """Raise the gain, and take it back: at 0 dB the microphone's own track is sent."""
    microphone = await sent(person)
    await person.part("gain").fill("6")
    await until_sent(person, lambda now: now["id"] != microphone["id"])
    await person.part("gain").fill("0")
    await until_sent(person, lambda now: now["id"] == microphone["id"])


async def test_a_person_changes_the_microphone_pushes_to_talk_and_plays_a_file_in_one_call(
    chromium: str, tmp_path: Path
):
    question = silence(1_000) + say("What are your opening hours on Saturday?") + silence(120_000)
    microphone = write_wav(tmp_path / "microphone.wav", question)
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")
    with serving(tmp_path, "llm: {name: documents}", more="bot: {greeting: ''}\n") as served:
        async with visit(chromium, f"{served.address}/?raw=1", *flags) as person:
            await person.context.add_init_script(f"({WATCH})()")
            await person.page.reload()
            await person.part("talk").click()
            await asked_aloud(person, 1)
            # Each microphone begins with the same question.
            await change_the_microphone(person)
            await asked_aloud(person, 2)
            # The latency is measured against the microphone that is sent now.
            await expect(person.part("answered-in").nth(1).locator(".heard")).to_contain_text("Heard")
            await push_to_talk(person)
            await play_files(person, tmp_path)
            await gain(person)
            await person.page.evaluate(PULL_OUT)
            await expect(person.part("notice")).to_contain_text("The microphone was disconnected.")
            await expect(person.part("notice")).to_contain_text("is used now")
            await person.page.keyboard.press("Escape")
            await person.page.keyboard.press("m")
            await expect(person.part("microphone")).to_have_attribute("aria-pressed", "true")
            assert not (await sent(person))["enabled"]
            await person.page.keyboard.press("?")
            await expect(person.part("shortcuts")).to_be_visible()
            assert not await serious(person.page)
            await look(person, "shortcuts")
            await person.page.keyboard.press("Escape")
            await look(person, "call")
            await person.part("talk").click()
            await person.state("ready")
            assert person.complaints == []
