"""Latency at the caller's ear: measured by the page in Chromium, against the recording of the same call."""

import asyncio
import os
import re
import wave
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from parley.audio.audible import audible_spans
from tests.peers.server import running_server
from tests.peers.test_browser import QUESTION_AT_MS, Visit, chromium, lines_are_free, visit
from tests.peers.test_recording import only_recording, recording_deployment, stereo_of
from tests.voices import RATE_HZ, say, silence

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.alone]

# Of both measurements at the server: packets of 20 ms at both ends, and a window of 10 ms.
SERVER_MS = 200
# The ear cannot be earlier than the server, but for the resolution of both.
EARLIER_MS = 40


def microphone_file(folder: Path) -> Path:
    """Return a file for Chromium's microphone: silence, a question, silence."""
    path = folder / "microphone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        question = say("What are your opening hours on Saturday?")
        file.writeframes(silence(QUESTION_AT_MS) + question + silence(120_000))
    return path


def gap_ms(path: Path, until_ms: int) -> float:
    """Return the time between the caller's last sound and the bot's next one in a stereo file.

    Args:
        path: of the stereo file.
        until_ms: time at which the answer has begun.
    """
    rate_hz = 16_000
    caller, bot = (side / 32_768 for side in stereo_of(path))
    before = [span.last for span in audible_spans(caller, rate_hz) if span.last < until_ms * rate_hz / 1_000]
    after = [span.first for span in audible_spans(bot, rate_hz) if span.first > before[-1]]
    return (after[0] - before[-1]) * 1_000 / rate_hz


async def look(person: Visit, name: str) -> None:
    if shots := os.environ.get("PARLEY_SCREENSHOTS"):
        await person.page.screenshot(path=f"{shots}/{name}.png")


async def hold(chromium: str, address: str, folder: Path) -> str:
    """Hold a call with one question; return the address of its session after its end."""
    flags = (
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone_file(folder)}%noloop",
    )
    async with visit(chromium, f"{address}/?raw=1", *flags) as person:
        await person.part("talk").click()
        await person.state("listening", "speaking")
        chip = person.part("answered-in").first
        await expect(chip).to_contain_text("answered in", timeout=120_000)
        await chip.locator("summary").click()
        await expect(chip.locator(".heard")).to_contain_text(re.compile(r"Heard \d+ ms .* ms apart"))
        await look(person, "latency_call")
        href = await person.part("as-text").get_attribute("href")
        await person.part("talk").click()
        await person.state("ready")
        assert person.complaints == []
    return f"{address}{href}"


async def test_the_page_measures_what_the_recording_holds(chromium: str, tmp_path: Path):
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        address = server.url.replace("127.0.0.1", "localhost")
        session = await hold(chromium, address, tmp_path)
        recording = await only_recording(tmp_path)
        await lines_are_free(address)
        async with visit(chromium, session) as person:
            await person.part("recordings").locator("summary").first.click()
            fold = person.part("heard").first
            await fold.locator("summary").click()
            await expect(fold).to_contain_text(
                re.compile(r"heard after \d+ ms.*ms apart.*endpoint wait \d+ ms")
            )
            await look(person, "latency_viewer")
            assert person.complaints == []
    events: list[dict[str, Any]] = recording.timeline()["events"]
    heard = next(each for each in events if each["event"] == "LatencyHeard")
    print({name: heard[name] for name in heard if name.endswith("_ms")})
    recorded_ms = await asyncio.to_thread(gap_ms, recording.path / "merged_replay.wav", heard["at_ms"])
    print(f"the recording has {recorded_ms:.0f} ms")
    assert abs(recorded_ms - heard["server_ms"]) <= SERVER_MS
    later_ms = heard["heard_ms"] - recorded_ms
    assert later_ms >= -EARLIER_MS
    # How much is left is a property of the machine, which may stall: it is printed and not judged.
    rest_ms = later_ms - heard["round_trip_ms"] - heard["jitter_buffer_ms"] - heard["output_ms"]
    print(f"{later_ms:.0f} ms later than in the recording, {rest_ms:.0f} ms without the known causes")
