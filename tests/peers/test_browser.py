"""A person at the page: Chromium with a fake microphone against a server in its own process."""

import asyncio
import os
import select
import shutil
import subprocess
import sys
import time
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from playwright.async_api import BrowserContext, Locator, Page, async_playwright, expect

from tests.voices import RATE_HZ, say, silence

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
START_S = 40
# The greeting takes about 5 s, the silence after it is measured.
QUESTION_AT_MS = 9_000
# As loud as quiet speech; the silence between the bot's sentences is digital.
AUDIBLE_RMS = 0.01
# What the page shows and what it plays differ by the network and the jitter buffer.
SETTLED_MS = 700

# Chromium must not look for anything outside, and could not find it.
OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
)

LISTEN = """() => {
  const sound = document.querySelector('[data-role="remote-audio"]');
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  analyser.fftSize = 2048;
  context.createMediaStreamSource(sound.srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  let state = "", since = 0;
  window.heard = [];
  setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    const power = samples.reduce((sum, value) => sum + value * value, 0) / samples.length;
    const rms = sound.muted || sound.paused ? 0 : sound.volume * Math.sqrt(power);
    const shown = document.body.dataset.state;
    if (shown !== state) [state, since] = [shown, performance.now()];
    const settled_ms = performance.now() - since;
    window.heard.push({ rms, state, settled_ms, played_s: sound.currentTime });
  }, 40);
}"""


@pytest.fixture(scope="module")
def chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that takes one call at a time."""
    folder = tmp_path_factory.mktemp("server")
    deployment = folder / "one.yaml"
    deployment.write_text(
        "name: one\nthinking:\n  llm: {name: documents}\nserver: {max_calls: 1, drain_s: 0}\n"
    )
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "bot.py", "--config", str(deployment), "--port", "0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield _address(process, folder / "log.txt")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=5)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    assert process.stdout is not None
    deadline_s = time.monotonic() + START_S
    said = b""
    while b"\n" not in said:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
            raise AssertionError(f"not ready within {START_S} s:\n{log.read_text()}")
        piece = os.read(process.stdout.fileno(), 4_096)
        if not piece:
            raise AssertionError(f"the server ended:\n{log.read_text()}")
        said += piece
    return said.split(b"\n")[0].split()[-1].decode("ascii")


@dataclass
class Visit:
    """A page, and what it asked for and complained about."""

    context: BrowserContext
    page: Page
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def part(self, role: str) -> Locator:
        return self.page.locator(f'[data-role="{role}"]')

    async def state(self, *names: str, within_s: float) -> None:
        states = ", ".join(f'body[data-state="{name}"]' for name in names)
        await expect(self.page.locator(states)).to_have_count(1, timeout=within_s * 1_000)

    async def type(self, text: str) -> None:
        await self.part("typed").fill(text)
        await self.part("typed").press("Enter")

    async def answered(self, text: str, *, within_s: float) -> None:
        answer = self.part("bot-turn").filter(has_text=text)
        await expect(answer.first).to_be_visible(timeout=within_s * 1_000)


@asynccontextmanager
async def visit(chromium: str, address: str, *flags: str) -> AsyncIterator[Visit]:
    await lines_are_free(address, within_s=10)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium,
            args=[
                *OFFLINE,
                "--use-fake-device-for-media-stream",
                "--autoplay-policy=no-user-gesture-required",
                *flags,
            ],
        )
        try:
            context = await browser.new_context()
            yield await open_page(context, address)
        finally:
            await browser.close()


async def open_page(context: BrowserContext, address: str) -> Visit:
    page = await context.new_page()
    visited = Visit(context, page)
    page.on("request", lambda request: visited.hosts.add(urlsplit(request.url).netloc))
    page.on("websocket", lambda socket: visited.hosts.add(urlsplit(socket.url).netloc))
    page.on("pageerror", lambda error: visited.complaints.append(str(error)))
    page.on(
        "console",
        lambda line: visited.complaints.append(line.text) if line.type in ("error", "warning") else None,
    )
    await page.goto(address)
    return visited


async def lines_are_free(address: str, *, within_s: float) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(within_s):
        while (await client.get(urljoin(address, "/health"))).json()["calls"]:
            await asyncio.sleep(0.05)


async def test_a_person_speaks_and_types_and_hears_the_answers(chromium: str, server: str, tmp_path: Path):
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        question = say("What are your opening hours on Saturday?")
        file.writeframes(silence(QUESTION_AT_MS) + question + silence(60_000))
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")

    async with visit(chromium, f"{server}/?raw=1", *flags) as person:
        await expect(person.part("engines")).to_contain_text("pocketsphinx")
        await expect(person.part("floor")).to_contain_text("clear, simple English only")
        await person.part("talk").click()
        await person.state("listening", "speaking", within_s=15)
        await person.page.evaluate(LISTEN)

        said = person.page.locator('[data-role="user-turn"][data-final="true"]')
        await expect(said).to_contain_text("opening hours on saturday", timeout=20_000)
        await person.answered("ten until two", within_s=5)
        await expect(person.part("answered-in")).to_contain_text("answered in", timeout=10_000)

        await person.type("what about sunday")
        await person.answered("closed", within_s=5)
        await person.state("speaking", within_s=5)
        heard = await person.page.evaluate("window.heard")

        await person.part("talk").click()
        await person.state("ready", within_s=1)
        await lines_are_free(server, within_s=5)

    settled = [sample for sample in heard if sample["settled_ms"] > SETTLED_MS]
    speaking = [sample["rms"] for sample in settled if sample["state"] == "speaking"]
    silent = [sample["rms"] for sample in settled if sample["state"] == "listening"]
    # The pauses between words are silent: the upper half of the samples is speech.
    assert quantiles(speaking, n=4)[1] > AUDIBLE_RMS
    assert len(silent) > 20 and max(silent) < AUDIBLE_RMS
    assert heard[-1]["played_s"] > heard[0]["played_s"] + 5
    assert person.hosts == {urlsplit(server).netloc}
    assert person.complaints == []


async def test_without_a_microphone_one_can_type_and_a_second_person_is_told_that_the_line_is_taken(
    chromium: str, server: str
):
    async with visit(chromium, server, "--deny-permission-prompts") as person:
        await person.part("talk").click()
        await person.state("listening", "speaking", within_s=15)
        await expect(person.part("notice")).to_contain_text("blocked for this page. You can type below.")
        await person.type("How do I report a lost card?")
        await person.answered("hotline", within_s=5)

        other = await open_page(person.context, server)
        await other.type("hello")
        await other.state("error", within_s=5)
        await expect(other.part("notice")).to_contain_text("The server is busy")
        await expect(other.part("typed")).to_have_value("hello")

        await person.page.close()
        await lines_are_free(server, within_s=5)
