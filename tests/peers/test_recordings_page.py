"""The recording of a call on the page of its session, in Chromium: played, read along and downloaded."""

import asyncio
import base64
import io
import json
import os
import wave
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.async_api import expect

from parley.recording.at_rest import KEYS_ENV
from parley.recording.folder import IMAGES, CallRecording, image_name, read_recording
from tests.peers.operations_gateway import TOKEN
from tests.peers.server import running_server
from tests.peers.test_accessibility import serious
from tests.peers.test_browser import Visit, chromium, lines_are_free, visit
from tests.peers.test_recording import hold_call, only_recording, recording_deployment
from tests.recorded_call import record_call

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

HOUR_S = 3_600
# Asked of the viewer for a session of an hour.
OPENED_MS = 2_000


async def test_a_call_is_played_read_along_and_downloaded_after_it_was_made(chromium: str, tmp_path: Path):
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        await hold_call(server.url, "How do I report a lost card?")
        recording = await only_recording(tmp_path)
        await asyncio.to_thread(add_picture, recording)
        await lines_are_free(server.url)
        address = server.url.replace("127.0.0.1", "localhost")
        async with visit(chromium, f"{address}/s/{recording.session_id}") as person:
            fold = person.part("recordings")
            await fold.locator("summary").click()
            await expect(person.part("recorded").locator("button")).to_have_attribute("aria-pressed", "true")
            lines = person.part("captions").locator("li")
            await expect(lines).to_have_count(5)
            await expect(lines.nth(2).locator("s")).not_to_be_empty()
            picture = lines.nth(1).locator(".images img")
            await expect(picture).to_be_visible()
            assert await picture.evaluate("node => node.decode().then(() => node.naturalWidth)") == 40
            # The transcript stays in view, and nothing is below the window.
            below_px, shown_px = await person.part("conversation").evaluate(
                "node => [document.documentElement.scrollHeight - innerHeight, node.clientHeight]"
            )
            assert (below_px <= 0, shown_px > 150) == (True, True), (below_px, shown_px)
            await expect(lines.nth(2).locator(".latency")).to_contain_text(" ms")
            # The second question is played from its beginning, and the page reads along.
            await lines.nth(3).locator("button").click()
            await expect(lines.nth(3)).to_have_attribute("aria-current", "true")
            await expect(lines.nth(4)).to_have_attribute("aria-current", "true")
            # Pixels of two rows that only a waveform reaches: between the middle of a lane and its edge.
            drawn = await person.part("waveform").evaluate(
                """node => {
                  const { data } = node.getContext("2d").getImageData(0, 0, node.width, node.height);
                  return [0.17, 0.67].map((share) => {
                    const row = Math.round(share * node.height) * node.width * 4;
                    const pixels = data.slice(row, row + node.width * 4);
                    return pixels.filter((value, at) => at % 4 === 3 && value).length;
                  });
                }"""
            )
            assert min(drawn) > 20, drawn
            await read_moments_and_latencies(person)
            async with person.page.expect_download() as awaited:
                await person.part("wav").click()
            saved = await (await awaited.value).path()
            assert saved.read_bytes() == (recording.path / "merged_replay.wav").read_bytes()
            async with person.page.expect_download() as awaited:
                await person.part("zip").click()
            packed = await (await awaited.value).path()
            assert zipfile.ZipFile(io.BytesIO(packed.read_bytes())).testzip() is None
            assert (person.complaints, person.hosts) == ([], {urlsplit(address).netloc})


def add_picture(recording: CallRecording) -> None:
    """Add a picture to the caller's first turn."""
    ended = next(
        each for each in recording.timeline()["events"] if each["event"] == "TurnEnded" and each["text"]
    )
    (recording.path / IMAGES).mkdir()
    Image.new("RGB", (40, 30)).save(recording.path / IMAGES / image_name(ended["at_ms"] + 1, 0, "image/png"))


async def read_moments_and_latencies(person: Visit) -> None:
    """Check the cut answer and the latencies of the call that is shown; each moves the playback."""
    audio = person.part("replay")
    await expect(person.part("wave-legend").locator('[data-mark="cut"]')).to_be_visible()
    moments = person.part("moments")
    await moments.locator(".legend").click()
    cut = moments.locator("li").filter(has_text="cut off").first
    await expect(cut.locator("q")).not_to_be_empty()
    await cut.locator("button").click()
    at_cut_s = await audio.evaluate("node => node.currentTime")
    latencies = person.part("latencies")
    await latencies.locator("summary").click()
    rows = latencies.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("ms")
    assert await rows.first.locator(".bar i").count() >= 4, "an answer has its stages"
    await rows.last.locator(".bar div").click()
    assert at_cut_s < await audio.evaluate("node => node.currentTime")
    # No operator: nothing of replays.
    await expect(person.part("replays")).to_be_hidden()
    found = await serious(person.page)
    assert not found, found


async def test_an_operator_keeps_the_recordings_of_a_session_by_a_switch(chromium: str, tmp_path: Path):
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        async with httpx.AsyncClient(base_url=server.url) as client:
            session = (await client.post("/api/sessions")).json()["id"]
        pin = (await record_call(tmp_path / "data", session)).with_name("pinned")
        address = server.url.replace("127.0.0.1", "localhost")
        async with visit(chromium, f"{address}/s/{session}") as person:
            await person.part("recordings").locator("summary").click()
            await expect(person.part("player")).to_be_visible()
            await expect(person.part("pin-row")).to_be_hidden()

            await person.page.goto(f"{address}/sessions#token={TOKEN}")
            await person.state("live")
            await person.page.goto(f"{address}/s/{session}")
            await person.part("recordings").locator("summary").click()
            switch = person.page.get_by_role("switch", name="Keep these recordings")
            await expect(switch).not_to_be_checked()
            async with person.page.expect_response(lambda answer: answer.url.endswith("/pin")) as answered:
                await switch.click()
            assert (await answered.value).status == 204 and pin.exists()
            assert not await serious(person.page)

            await person.page.reload()
            await person.part("recordings").locator("summary").click()
            await expect(switch).to_be_checked()
            async with person.page.expect_response(lambda answer: answer.url.endswith("/pin")) as answered:
                await switch.press(" ")
            assert (await answered.value).status == 204 and not pin.exists()
            assert person.complaints == []


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_call_of_an_hour_opens_and_plays_from_its_last_minute(
    chromium: str, tmp_path: Path, encrypted: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEYS_ENV, base64.b64encode(os.urandom(32)).decode())
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        async with httpx.AsyncClient(base_url=server.url) as client:
            session = (await client.post("/api/sessions")).json()["id"]
        path = await record_call(tmp_path / "data", session, encrypted=encrypted)
        await asyncio.to_thread(lengthen, read_recording(path))
        address = server.url.replace("127.0.0.1", "localhost")
        async with visit(chromium, f"{address}/s/{session}") as person:
            await person.state("ready")
            began_s = asyncio.get_running_loop().time()
            await person.part("recordings").locator("summary").click()
            await expect(person.part("player")).to_be_visible(timeout=OPENED_MS)
            audio = person.part("replay")
            await audio.evaluate(f"node => {{ node.currentTime = {HOUR_S - 60}; return node.play(); }}")
            async with asyncio.timeout(60):
                while await audio.evaluate("node => node.currentTime") < HOUR_S - 59.5:
                    await asyncio.sleep(0.05)
            print(f"an hour was opened and sought in {asyncio.get_running_loop().time() - began_s:.2f} s")
            assert person.complaints == []


def lengthen(recording: CallRecording) -> None:
    """Make a recording of one second an hour long: its stereo file, its peaks and its length."""
    quiet = np.random.default_rng(1).integers(-500, 500, (16_000, 2), "<i2").tobytes()
    path, files = recording.path, recording.files
    with files.replacing(path / "merged_replay.wav") as raw, wave.open(raw, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16_000)
        for _ in range(HOUR_S):
            file.writeframes(quiet)
    peaks = [value % 100 for value in range(HOUR_S * 10)]
    drawn = {"interval_ms": 100, "caller": peaks, "bot": peaks}
    files.write(path / "peaks.json", json.dumps(drawn).encode())
    timeline = recording.timeline()
    timeline["duration_ms"] = HOUR_S * 1_000
    timeline["events"] = [
        each
        for number in range(600)
        for each in (
            {"at_ms": number * 6_000, "event": "TurnStarted"},
            {"at_ms": number * 6_000 + 2_000, "event": "TurnEnded", "text": f"question {number}"},
            {"at_ms": number * 6_000 + 2_500, "event": "ReplyStarted", "reply_id": str(number)},
            {
                "at_ms": number * 6_000 + 5_000,
                "event": "ReplyFinished",
                "reply_id": str(number),
                "text": "Yes.",
            },
        )
    ]
    files.write(path / "recording.json", json.dumps(timeline).encode())
