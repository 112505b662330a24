"""A user at the pages: Chromium with a fake microphone against a server in its own process."""

import asyncio
import base64
import io
import os
import re
import shutil
import time
import wave
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from PIL import Image
from playwright.async_api import BrowserContext, Locator, Page, async_playwright, expect

from parley.evals.first_load.__main__ import loads
from parley.evals.harness.forked_servers import ForkedServer
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, StoreTuning
from tests.peers.llm_script import Turn
from tests.peers.minicpm_server import minicpm_server
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import BEARER, TOKEN, TOKEN_ENV
from tests.peers.server import free_port
from tests.system import missing
from tests.voices import RATE_HZ, say, silence

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
START_S = 60
# What a page is to show appears at last on a busy machine, too.
expect.set_options(timeout=60_000)
# The greeting takes about 5 s, the silence after it is measured.
QUESTION_AT_MS = 9_000
# As loud as quiet speech; the silence between the bot's sentences is digital.
AUDIBLE_RMS = 0.01
# The page's display and its playback differ by the network and the jitter buffer.
SETTLED_MS = 700

# Chromium must not connect to other hosts, and could not reach them.
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
    window.heard.push({ rms, state, settled_ms, played_s: sound.currentTime, at_ms: performance.now() });
  }, 40);
}"""


@pytest.fixture(scope="module")
def chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        missing("chromium")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server that takes one call at a time."""
    with serving(tmp_path_factory.mktemp("server"), "llm: {name: documents}") as served:
        yield served.address


@dataclass(frozen=True)
class Served:
    """A server that accepts calls."""

    address: str
    process: ForkedServer


@contextmanager
def serving(
    folder: Path,
    thinking: str,
    *,
    port: int = 0,
    more: str = "",
    calls: int = 1,
    of_one_address: int | None = None,
    takes_instructions: bool = False,
) -> Iterator[Served]:
    """Run a server whose sessions are in this folder: when it is started again there, it has them again."""
    if "hearing:" not in more:
        # One that stands by would load while the first caller talks.
        more += "hearing: {spare_processes: false}\n"
    deployment = folder / "one.yaml"
    deployment.write_text(
        f"name: one\nthinking:\n  {thinking}\n"
        'remembering: {store: {url: "sqlite:///sessions.db"}}\n'
        f'server: {{max_calls: {calls}, drain_s: 0, goodbye_s: 0, admission: "off", '
        f"clients: {{anonymous: {{instructions: {str(takes_instructions).lower()}, "
        f"max_calls: {of_one_address or 'null'}}}}}}}\n{more}"
    )
    log = folder / "log.txt"
    port = port or free_port()
    process = ForkedServer(
        ["--config", str(deployment), "--port", str(port)], ROOT, {**os.environ, TOKEN_ENV: TOKEN}, log
    )
    try:
        yield Served(_address(process, port, log), process)
    finally:
        process.terminate()
        if process.join(10) is None:
            process.kill()
            process.join(5)


def _address(process: ForkedServer, port: int, log: Path) -> str:
    address = f"http://localhost:{port}"
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.returncode is None, f"the server ended:\n{log.read_text()}"
        try:
            if httpx.get(f"{address}/health").status_code == 200:
                return address
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"not ready within {START_S} s:\n{log.read_text()}")


@dataclass
class Visit:
    """A page, with its requests and its console errors."""

    context: BrowserContext
    page: Page
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def part(self, role: str) -> Locator:
        return self.page.locator(f'[data-role="{role}"]')

    async def state(self, *names: str, within_s: float = 60) -> None:
        states = ", ".join(f'body[data-state="{name}"]' for name in names)
        await expect(self.page.locator(states)).to_have_count(1, timeout=within_s * 1_000)

    async def type(self, text: str) -> None:
        await self.part("typed").fill(text)
        await self.part("typed").press("Enter")

    async def answered(self, text: str, *, within_s: float = 60) -> None:
        answer = self.part("bot-turn").filter(has_text=text)
        await expect(answer.first).to_be_visible(timeout=within_s * 1_000)


@asynccontextmanager
async def visit(chromium: str, address: str, *flags: str) -> AsyncIterator[Visit]:
    await lines_are_free(address)
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


async def lines_are_free(address: str, *, within_s: float = 60) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(within_s):
        while (await client.get(urljoin(address, "/health"))).json()["calls"]:
            await asyncio.sleep(0.05)


@pytest.mark.alone
@pytest.mark.parametrize("path", ["/", "/duplex"])
async def test_a_person_speaks_and_types_and_hears_the_answers(
    chromium: str, server: str, tmp_path: Path, path: str
):
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        question = say("What are your opening hours on Saturday?")
        file.writeframes(silence(QUESTION_AT_MS) + question + silence(60_000))
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")

    async with visit(chromium, f"{server}{path}?raw=1", *flags) as person:
        await expect(person.part("engines")).to_contain_text("moonshine_tiny")
        await expect(person.part("floor")).to_be_hidden()
        await person.part("talk").click()
        await person.state("listening", "speaking")
        await person.page.evaluate(LISTEN)

        said = person.page.locator('[data-role="user-turn"][data-final="true"]')
        await expect(said).to_contain_text("opening hours on saturday")
        # The answer must begin as soon as before. Its words appear as they are heard, so those of the whole
        # sentence take as long as it takes to speak it.
        await person.answered("On Saturdays")
        await person.answered("ten until two")
        await expect(person.part("answered-in")).to_contain_text("answered in")

        votes = person.part("vote")
        if path == "/duplex":
            await expect(votes).to_have_text(re.compile("every 80 ms"), timeout=2_000)
        await expect(person.part("votes")).to_be_visible(visible=path == "/duplex")

        await person.type("what about sunday")
        await person.answered("closed")
        await person.state("speaking")
        if shots := os.environ.get("PARLEY_SCREENSHOTS"):
            await person.page.screenshot(path=f"{shots}/talk{path.replace('/', '-')}.png")
        heard = await person.page.evaluate("window.heard")

        await person.part("talk").click()
        await person.state("ready", within_s=1)
        await lines_are_free(server)

    settled = [sample for sample in heard if sample["settled_ms"] > SETTLED_MS]
    speaking = [sample["rms"] for sample in settled if sample["state"] == "speaking"]
    silent = [sample["rms"] for sample in settled if sample["state"] == "listening"]
    # The pauses between words are silent: the upper half of the samples is speech.
    assert quantiles(speaking, n=4)[1] > AUDIBLE_RMS
    assert len(silent) > 20 and max(silent) < AUDIBLE_RMS
    assert heard[-1]["played_s"] > heard[0]["played_s"] + 5
    assert person.hosts == {urlsplit(server).netloc}
    assert person.complaints == []


@pytest.mark.paired
async def test_a_page_that_was_never_opened_is_small_and_soon_takes_a_click(chromium: str, server: str):
    found = (await loads(server, ["/"], rounds=3))["/"]
    every = [load for each in found.values() for load in each]
    print(*every, sep="\n")
    # Without compression it would be 320 kB.
    assert max(load.wire_bytes for load in every) < 160_000
    # Of three browsers, the one that had most of the machine.
    assert min(load.usable_ms for load in found["local"]) < 1_000
    assert min(load.usable_ms for load in found["line"]) < 1_000


async def units_are_heard(worker: Any, count: int) -> None:
    """Wait until the engine has been given that many more units."""
    until = len(worker.chunks) + count
    async with asyncio.timeout(60):
        while len(worker.chunks) < until:
            await asyncio.sleep(0.1)


@pytest.mark.paired
async def test_an_engine_that_sees_is_shown_the_camera_while_the_person_wants_that(
    chromium: str, tmp_path: Path
):
    flags = ("--use-fake-ui-for-media-stream",)
    with minicpm_server() as worker:
        engine = f"duplex: {{engine: {{name: minicpm_worker, settings: {{url: '{worker.url}'}}}}}}\n"
        with serving(tmp_path, "llm: {name: documents}", more=engine) as served:
            async with visit(chromium, f"{served.address}/duplex", *flags) as person:
                await expect(person.part("camera-control")).to_be_hidden()
                await person.part("talk").click()
                await person.state("listening", "speaking")
                await units_are_heard(worker, 2)
                assert not any(chunk["frames"] for chunk in worker.chunks)

                await person.part("camera").click()
                await expect(person.part("camera")).to_have_attribute("aria-pressed", "true")
                await expect(person.part("preview")).to_be_visible()
                async with asyncio.timeout(60):
                    while sum(bool(chunk["frames"]) for chunk in worker.chunks) < 3:
                        await asyncio.sleep(0.1)
                if shots := os.environ.get("PARLEY_SCREENSHOTS"):
                    await person.page.screenshot(path=f"{shots}/talk-camera.png")
                seen = [size for chunk in worker.chunks for size in chunk["frames"]]
                # Pictures come from Chromium's camera, no larger than it delivers them; one in a unit of a
                # second.
                assert all(width <= 1_344 and width > height > 100 for width, height in seen)
                assert max(len(chunk["frames"]) for chunk in worker.chunks) == 1

                await person.part("camera").click()
                await expect(person.part("preview")).to_be_hidden()
                # A unit that was under way may still carry a picture, and the one after it.
                await units_are_heard(worker, 2)
                before = len(worker.chunks)
                await units_are_heard(worker, 3)
                assert not any(chunk["frames"] for chunk in worker.chunks[before:])
                await person.part("talk").click()
                await person.state("ready", within_s=1)
            assert person.complaints == []


@pytest.mark.paired
async def test_a_language_model_sees_the_camera_of_a_call_by_turns_while_the_person_wants_that(
    chromium: str, tmp_path: Path
):
    flags = ("--use-fake-ui-for-media-stream",)
    async with OpenAiServer([Turn(["I see it."])]) as model:
        row = f"{{name: openai_compatible, settings: {{base_url: '{model.url}/v1', model: m, sees: true}}}}"
        more = f"bot: {{greeting: ''}}\nrecording: {{enabled: true, folder: {tmp_path / 'recorded'}}}\n"
        with serving(tmp_path, f"llm: {row}", more=more) as served:
            async with visit(chromium, served.address, *flags) as person:
                await expect(person.part("camera-control")).to_be_hidden()
                await expect(person.part("latency")).to_be_hidden()
                await person.part("talk").click()
                await person.state("listening", "speaking")
                await person.type("Can you see me?")
                await person.answered("I see it.")
                assert pictures_in(model.requests[-1]) == []

                await person.part("camera").click()
                await expect(person.part("preview")).to_be_visible()
                await controls_fit_a_small_phone(person)
                await type_until(person, "And now?", lambda: len(pictures_in(model.requests[-1])) == 1)
                [(width, height)] = pictures_in(model.requests[-1])
                assert 1_024 >= width > height > 100

                await person.part("camera").click()
                await expect(person.part("preview")).to_be_hidden()
                # A picture of the last two seconds may still be taken.
                await type_until(person, "And now?", lambda: newest_turn(model.requests[-1]) == "And now?")
                # The pictures of earlier turns are still there.
                assert pictures_in(model.requests[-1])[0] == (width, height)
                await shown_pictures_are_seen(person, model)
                # Once more, and the call ends while it is on.
                await person.part("camera").click()
                await type_until(person, "And now?", lambda: newest_turn(model.requests[-1]) != "And now?")
                await person.part("talk").click()
                await person.state("ready", within_s=1)
                await a_recorded_call_is_found_again(person)
            assert person.complaints == []
            # Each change between voice and video is an event of the session.
            await lines_are_free(served.address)
            assert await transports(served.address) == [
                ("joined", "webrtc"),
                *[("joined", "camera"), ("left", "camera")] * 2,
                ("left", "webrtc"),
            ]


async def controls_fit_a_small_phone(person: Visit) -> None:
    """Expect every control of a call in a small window, and the picture of the camera over none of them."""
    usual = person.page.viewport_size
    await person.page.set_viewport_size({"width": 320, "height": 640})
    for role in ("hold-switch", "sound-open", "microphone", "talk", "camera", "screen", "attach", "send"):
        await expect(person.part(role)).to_be_in_viewport(ratio=1)
    assert await person.page.evaluate("document.documentElement.scrollWidth") == 320
    preview, dock = await person.part("preview").bounding_box(), await person.part("hold").bounding_box()
    assert preview is not None and dock is not None and preview["y"] + preview["height"] <= dock["y"]
    assert usual is not None
    await person.page.set_viewport_size(usual)


async def shown_pictures_are_seen(person: Visit, model: OpenAiServer) -> None:
    """Show a picture before the words that go with it; the model gets both, and the page the latency."""
    # Noise is long as a file: the page makes it fit into a message of the call.
    noise = Image.frombytes("RGB", (2_000, 1_000), os.urandom(6_000_000))
    file = io.BytesIO()
    noise.save(file, "PNG", compress_level=1)
    chosen = {"name": "noise.png", "mimeType": "image/png", "buffer": file.getvalue()}
    await person.part("files").set_input_files([chosen])  # type: ignore[list-item]
    await expect(person.part("attached").locator("img")).to_have_count(1)
    await person.state("listening")
    asked = len(model.requests)
    await person.part("send").click()
    await expect(person.part("attached")).to_be_hidden()
    await expect(person.part("user-turn").last.locator("img.shown")).to_be_visible()
    assert len(model.requests) == asked, "a picture alone asks nothing"
    await type_until(person, "What is this?", lambda: len(model.requests) > asked)
    newest = [size for size in pictures_in(model.requests[-1]) if size[0] == 2 * size[1]]
    assert len(newest) == 1 and newest[0][0] <= 1_568
    await expect(person.part("latency-summary")).to_have_text(
        re.compile(r"Last answer \d+ ms, median \d+ ms of")
    )
    await person.part("latency").locator("summary").click()
    await expect(person.part("latency-legend").locator("dt").first).to_be_visible()
    await person.part("latency").locator("summary").click()


async def a_recorded_call_is_found_again(person: Visit) -> None:
    """Follow the links of a call that is over to its conversation and its recording."""
    session = person.page.url.partition("session=")[2]
    await expect(person.part("after-conversation")).to_have_attribute("href", f"/s/{session}")
    play = person.part("after-recording").get_by_role("link", name="Play")
    await expect(play).to_have_attribute("href", f"/s/{session}#recordings")
    download = person.part("after-recording").get_by_role("link", name="Download")
    async with person.page.expect_download() as started:
        await download.click()
    saved = await (await started.value).path()
    assert saved.read_bytes()[:4] == b"RIFF"
    await play.click()
    await expect(person.part("player")).to_be_visible()


async def transports(address: str) -> list[tuple[str, str]]:
    """Return what has joined and left in the newest session."""
    async with httpx.AsyncClient(base_url=address, headers=BEARER) as client:
        session = (await client.get("/api/sessions")).json()["sessions"][0]["id"]
        query = {"kind": ["joined", "left"]}
        events = (await client.get(f"/api/sessions/{session}/timeline", params=query)).json()["events"]
    return [(each["kind"], each["payload"]["transport"]) for each in events]


async def type_until(person: Visit, text: str, condition: Callable[[], bool]) -> None:
    """Type a turn again, and wait for its answer, until the model's request is as expected."""
    async with asyncio.timeout(60):
        while True:
            # The answer before has been heard: this turn would interrupt it.
            await person.state("listening")
            answers = await person.part("bot-turn").count()
            await person.type(text)
            await expect(person.part("bot-turn")).to_have_count(answers + 1)
            if condition():
                return


def newest_turn(request: dict[str, Any]) -> object:
    """Return the content of the last message in a request: a text where it has no picture."""
    return request["messages"][-1]["content"]


def pictures_in(request: dict[str, Any]) -> list[tuple[int, int]]:
    """Return width and height of the pictures in a request of OpenAI's form."""
    parts = [part for message in request["messages"] for part in message["content"] if isinstance(part, dict)]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    files = [io.BytesIO(base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))) for url in urls]
    return [Image.open(file).size for file in files]


async def test_without_a_microphone_one_can_type_and_a_second_person_is_told_that_the_line_is_taken(
    chromium: str, server: str
):
    async with visit(chromium, server, "--deny-permission-prompts") as person:
        await person.part("talk").click()
        await person.state("listening", "speaking")
        await expect(person.part("notice")).to_contain_text("blocked for this page. You can type below.")
        await person.type("How do I report a lost card?")
        await person.answered("hotline")

        other = await open_page(person.context, server)
        await other.type("hello")
        await other.state("error")
        await expect(other.part("notice")).to_contain_text("The server is busy")
        await expect(other.part("typed")).to_have_value("hello")

        await person.page.close()
        await lines_are_free(server)


async def test_a_typed_turn_is_answered_in_writing_and_is_there_after_a_reload(chromium: str, server: str):
    async with visit(chromium, f"{server}/s/new") as person:
        await person.state("ready")
        session = session_of(person)
        await person.type("What are your opening hours on Saturday?")
        await person.answered("ten until two")
        await person.state("ready")
        shown = await said(person)

        await person.page.reload()
        await person.answered("ten until two")

        assert shown[0] == "What are your opening hours on Saturday?"
        assert len(shown) == 2
        assert await said(person) == shown == await recorded(server, session)
        await expect(person.part("via")).to_have_count(0)
        assert person.hosts == {urlsplit(server).netloc}
        assert person.complaints == []


@pytest.mark.paired
async def test_what_is_said_elsewhere_appears_at_once_and_nothing_appears_twice(chromium: str, server: str):
    async with visit(chromium, f"{server}/s/new") as person:
        await person.state("ready")
        session = session_of(person)
        other = await open_page(person.context, f"{server}/s/{session}")
        await other.state("ready")

        await post_message(server, session, "What are your opening hours on Saturday?")
        await person.answered("ten until two", within_s=2)
        await person.type("How do I report a lost card?")
        await person.answered("hotline")
        await person.state("ready")
        await other.answered("hotline", within_s=2)

        assert await said(person) == await said(other) == await recorded(server, session)
        assert len(await said(person)) == 4
        assert person.complaints == other.complaints == []


async def test_a_call_shows_what_was_said_before_and_goes_on_in_the_same_session(chromium: str, server: str):
    session = await new_session(server)
    await post_message(server, session, "What are your opening hours on Saturday?")
    async with visit(chromium, f"{server}/?session={session}", "--deny-permission-prompts") as person:
        await person.answered("ten until two")
        reader = await open_page(person.context, f"{server}/s/{session}")
        await reader.answered("ten until two")

        await person.type("How do I report a lost card?")
        await person.answered("hotline")
        await expect(reader.part("user-turn")).to_have_count(2)
        await expect(reader.part("user-turn").nth(1)).to_contain_text("lost card")
        # It was typed, although in a call.
        await expect(reader.part("user-turn").nth(1).locator('[data-role="via"]')).to_have_count(0)
        await expect(person.part("as-text")).to_have_attribute("href", f"/s/{session}")

        await person.part("talk").click()
        await lines_are_free(server)
        assert urlsplit(person.page.url).query == f"session={session}"
        assert person.complaints == reader.complaints == []


async def test_a_call_without_a_session_gets_one_and_keeps_it_over_a_reload(chromium: str, server: str):
    async with visit(chromium, server, "--deny-permission-prompts") as person:
        await expect(person.part("as-text")).to_have_attribute("href", "/s/new")
        await person.type("How do I report a lost card?")
        await person.answered("hotline")
        session = urlsplit(person.page.url).query.removeprefix("session=")
        await expect(person.part("as-text")).to_have_attribute("href", f"/s/{session}")
        # The reply is recorded after it was heard.
        await person.state("speaking")
        await person.part("talk").click()
        await lines_are_free(server)

        await person.page.reload()
        await expect(person.part("user-turn")).to_contain_text("lost card")
        await person.part("new-conversation").click()
        await expect(person.part("hero")).to_be_visible()
        await expect(person.part("new-conversation")).to_be_hidden()
        assert urlsplit(person.page.url).query == ""
        assert person.complaints == []


async def test_a_call_whose_session_is_deleted_says_so(chromium: str, server: str):
    async with visit(chromium, server, "--deny-permission-prompts") as person:
        await person.type("hello")
        await expect(person.part("as-text")).to_have_text("Open as text")
        session = urlsplit(person.page.url).query.removeprefix("session=")
        async with httpx.AsyncClient() as client:
            await client.delete(f"{server}/api/sessions/{session}", headers=BEARER)
        await expect(person.part("notice")).to_contain_text("was deleted")
        assert urlsplit(person.page.url).query == ""


async def test_a_call_of_a_conversation_that_was_deleted_meanwhile_says_so_and_the_next_one_is_new(
    chromium: str, server: str
):
    session = await new_session(server)
    await post_message(server, session, "What are your opening hours on Saturday?")
    async with visit(chromium, f"{server}/?session={session}", "--deny-permission-prompts") as person:
        await person.answered("ten until two")
        async with httpx.AsyncClient() as client:
            await client.delete(f"{server}/api/sessions/{session}", headers=BEARER)
        await person.part("talk").click()
        await expect(person.part("notice")).to_contain_text("was deleted. Press Talk to begin a new one.")
        assert urlsplit(person.page.url).query == ""
        await person.part("talk").click()
        await person.state("listening", "speaking")
        await person.part("talk").click()
        await lines_are_free(server)


async def test_without_a_microphone_the_page_does_not_say_that_it_listens(chromium: str, server: str):
    async with visit(chromium, server, "--deny-permission-prompts") as person:
        await person.part("talk").click()
        await person.state("speaking")
        await person.state("listening")
        await expect(person.part("state")).to_have_text("Mic off")
        await person.part("talk").click()
        await lines_are_free(server)


async def test_a_page_that_was_given_a_conversation_reads_it_and_does_not_delete_it(
    chromium: str, server: str
):
    session = await new_session(server)
    async with visit(chromium, f"{server}/s/{session}") as person:
        await person.part("delete").click()
        await person.part("confirm").get_by_role("button", name="Delete").click()
        message = person.page.get_by_text("The conversation was not deleted.")
        await expect(message).to_contain_text("deleted only by its owner or an operator")
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{server}/api/sessions/{session}")).status_code == 200


async def test_a_deleted_conversation_is_gone_and_a_new_one_can_begin(chromium: str, server: str):
    # A conversation that this browser has begun belongs to it.
    async with visit(chromium, f"{server}/s/new") as person:
        await expect(person.page).to_have_url(re.compile(r"/s/[0-9a-f-]{36}$"))
        session = session_of(person)
        await post_message(server, session, "What are your opening hours on Saturday?")
        await person.answered("ten until two")
        other = await open_page(person.context, f"{server}/s/{session}")
        await other.answered("ten until two")

        await person.part("delete").click()
        await person.page.keyboard.press("Escape")
        await expect(person.part("confirm")).to_be_hidden()
        await expect(person.part("bot-turn")).to_be_visible()
        await person.part("delete").click()
        await person.part("confirm").get_by_role("button", name="Delete").click()
        await expect(person.part("end-title")).to_have_text("Deleted")
        await expect(person.part("bot-turn")).to_have_count(0)
        await expect(other.part("end-title")).to_have_text("No such conversation")

        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{server}/api/sessions/{session}")).status_code == 404
        await person.page.reload()
        await expect(person.part("end-title")).to_have_text("No such conversation")
        await person.part("end-link").click()
        await person.state("ready")
        assert session_of(person) != session


async def test_an_address_that_is_no_session_leads_to_a_new_conversation(chromium: str, server: str):
    async with visit(chromium, f"{server}/s/nonsense") as person:
        await expect(person.part("end-title")).to_have_text("No such conversation")
        await expect(person.part("dock")).to_be_hidden()
        await expect(person.part("end-link")).to_have_attribute("href", "/s/new")


@pytest.mark.paired
async def test_a_reader_finds_every_event_in_the_timeline(chromium: str, server: str):
    session = await new_session(server)
    await post_message(server, session, "What are your opening hours on Saturday?")
    async with visit(chromium, f"{server}/s/{session}") as person:
        await person.answered("ten until two")
        await person.part("timeline").locator("summary", has_text="Timeline").click()
        await expect(person.part("event").first).to_be_visible()
        await post_message(server, session, "How do I report a lost card?")
        await person.answered("hotline", within_s=2)

        numbers = await person.part("event").evaluate_all("rows => rows.map(row => Number(row.dataset.seq))")
        assert numbers == [event["seq"] for event in await timeline(server, session)]
        await person.part("event").first.locator("summary").click()
        await expect(person.part("event").first).to_contain_text('"transport": "text"')


async def test_a_reply_that_was_interrupted_shows_what_was_not_heard(
    chromium: str, server: str, tmp_path: Path
):
    session = await import_session(
        server,
        tmp_path,
        said_by_voice("when are you open"),
        (Kind.HEARD, {"reply_id": "r1", "text": "We open at"}),
        (
            Kind.BOT_TURN,
            {
                "reply_id": "r1",
                "text": "We open at nine",
                "truncated": True,
                "unheard": "and close at five.",
                "transport": "webrtc",
            },
        ),
        said_by_voice("thank you"),
        (Kind.HEARD, {"reply_id": "r2", "text": "You are"}),
    )
    async with visit(chromium, f"{server}/s/{session}") as person:
        cut, unfinished = person.part("bot-turn").nth(0), person.part("bot-turn").nth(1)
        await expect(cut.locator(".unheard")).to_have_text("and close at five.")
        await expect(cut.locator(".unheard")).to_have_css("text-decoration-line", "line-through")
        await expect(cut).to_contain_text("We open at nine")
        await expect(cut).to_contain_text("cut off")
        await expect(unfinished).to_contain_text("heard so far")
        await expect(person.part("via")).to_have_text(["voice", "voice", "voice"])
        await expect(person.part("bot-turn")).to_have_count(2)


async def test_of_a_long_conversation_the_end_is_shown_and_more_on_demand(
    chromium: str, server: str, tmp_path: Path
):
    session = await import_session(server, tmp_path, *(said_by_voice(f"number {n}") for n in range(150)))
    async with visit(chromium, f"{server}/s/{session}") as person:
        await person.state("ready")
        assert await said(person) == [f"Number {n}" for n in range(50, 150)]
        await expect(person.part("user-turn").last).to_be_in_viewport()
        await person.part("earlier").click()
        await expect(person.part("earlier")).to_be_hidden()
        assert await said(person) == [f"Number {n}" for n in range(150)]

        await person.page.goto(f"{server}/?session={session}")
        await expect(person.part("user-turn")).to_have_count(20)
        assert await said(person) == [f"Number {n}" for n in range(130, 150)]


@pytest.mark.paired
async def test_an_answer_that_is_stopped_is_kept_as_far_as_it_came(chromium: str, tmp_path: Path):
    async with OpenAiServer([Turn(pieces=["We ", "open ", *["late "] * 30], between_ms=300)]) as model:
        with serving(tmp_path, answered_by(model)) as served:
            async with visit(chromium, f"{served.address}/s/new") as person:
                await person.state("ready")
                await person.type("When are you open?")
                await expect(person.part("bot-turn")).to_contain_text("We open")
                await person.part("stop").click()
                await person.state("ready", within_s=1)
                await expect(person.part("bot-turn")).to_contain_text("cut off")
                await expect(person.part("retry")).to_have_count(0)

                await person.page.reload()
                await expect(person.part("bot-turn")).to_contain_text("cut off")
                assert await said(person) == await recorded(served.address, session_of(person))
                assert len(await said(person)) == 2


async def test_a_question_that_nothing_answered_can_be_asked_again_after_a_reload(
    chromium: str, tmp_path: Path
):
    async with OpenAiServer([Turn(status=500), Turn(pieces=["We open at nine."])]) as model:
        with serving(tmp_path, answered_by(model)) as served:
            async with visit(chromium, f"{served.address}/s/new") as person:
                await person.state("ready")
                await person.type("When are you open?")
                await expect(person.part("notice")).to_contain_text("Your question is kept")
                await person.page.reload()
                await person.part("retry").click()
                await person.answered("We open at nine.")
                await person.state("ready")
                await expect(person.part("retry")).to_have_count(0)

                shown = await said(person)
                assert shown == ["When are you open?", "We open at nine."]
                assert shown == await recorded(served.address, session_of(person))


async def test_a_question_survives_a_server_that_dies_while_it_answers(chromium: str, tmp_path: Path):
    answer = ["We ", "open ", "at ", "nine ", "and ", "close ", "at ", "five."]
    # The second request gets the same words without the delays.
    turns = [Turn(pieces=answer, between_ms=600), Turn(pieces=answer)]
    port = free_port()
    async with OpenAiServer(turns) as model:
        thinking = answered_by(model)
        with serving(tmp_path, thinking, port=port) as served:
            address = served.address
            async with visit(chromium, f"{address}/s/new") as person:
                await person.state("ready")
                session = session_of(person)
                await person.type("When are you open?")
                await expect(person.part("bot-turn")).to_contain_text("We open")
                served.process.kill()
                await expect(person.part("notice")).to_contain_text("Your question is kept")
                await person.state("away")
                await person.part("typed").fill("typed meanwhile")

                with serving(tmp_path, thinking, port=port):
                    await person.state("ready")
                    await expect(person.part("notice")).to_contain_text("answers again")
                    await person.part("retry").click()
                    await person.answered("close at five.")
                    await person.state("ready")
                    await expect(person.part("retry")).to_have_count(0)
                    await expect(person.part("typed")).to_have_value("typed meanwhile")
                    assert await said(person) == ["When are you open?", "".join(answer)]
                    assert await recorded(address, session) == ["When are you open?", "".join(answer)]


def answered_by(model: OpenAiServer) -> str:
    settings = f"{{base_url: '{model.url}/v1', model: m}}"
    return f"llm: {{name: openai_compatible, settings: {settings}}}"


def said_by_voice(text: str) -> tuple[Kind, dict[str, object]]:
    return Kind.USER_TURN, {"text": text, "transport": "webrtc"}


async def import_session(address: str, folder: Path, *events: tuple[Kind, dict[str, object]]) -> str:
    """Import a session that another server recorded."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/other.db"))
    try:
        session = await store.create()
        writer = await store.claim(session.id)
        first_us = writer.clock.now_us()
        await writer.append(
            *(
                Draft(kind, payload, first_us + at, first_us + at, "test")
                for at, (kind, payload) in enumerate(events)
            )
        )
        lines = [line async for line in store.export(session.id)]
    finally:
        await store.close()
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{address}/api/sessions/import", content="\n".join(lines).encode(), headers=BEARER
        )
    assert answer.status_code == 201, answer.text
    return session.id


def session_of(person: Visit) -> str:
    return urlsplit(person.page.url).path.removeprefix("/s/")


async def said(person: Visit) -> list[str]:
    """Return the texts of the bubbles, in order."""
    return await person.page.locator(".turn .bubble").all_inner_texts()


async def new_session(address: str) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.post(f"{address}/api/sessions")).json()["id"]


async def post_message(address: str, session: str, text: str) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{address}/api/sessions/{session}/messages", json={"text": text})
    assert "event: done" in answer.text


async def timeline(address: str, session: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{address}/api/sessions/{session}/timeline")).json()["events"]


async def recorded(address: str, session: str) -> list[str]:
    """Return the texts that the session has recorded, in order of time."""
    events = await timeline(address, session)
    return [event["payload"]["text"] for event in events if event["kind"] in ("user_turn", "bot_turn")]
