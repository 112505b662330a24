"""A human at the desk: Chromium at ``/desk``, and a caller in another browser who writes or speaks."""

import asyncio
import json
import os
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import async_playwright, expect

from tests.peers.operations_gateway import BEARER, TOKEN
from tests.peers.server import free_port
from tests.peers.test_browser import OFFLINE, Visit, chromium, open_page, serving
from tests.peers.test_desk import JOINED, WAITING, WISH, Desked, deployed
from tests.peers.test_desk_voice import CALLER_HZ, HEARD_SHARE, HUMAN_HZ, called, share_at, until_tone
from tests.voices import RATE_HZ, say, silence, tone

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

# Longer than the page's looks at the list, which are two seconds apart.
LISTED_MS = 8_000
SPOKEN_MS = 30_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desked]:
    async for each in deployed(tmp_path_factory.mktemp("desk"), "wait_s: 300, grace_s: 6"):
        yield each


@asynccontextmanager
async def browser(path: str, *flags: str) -> AsyncIterator[tuple[Visit, Visit]]:
    """Yield the page of a caller and that of a desk, which share nothing; neither has been anywhere."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=path,
            args=[*OFFLINE, "--autoplay-policy=no-user-gesture-required", *flags],
        )
        try:
            size = {"width": 1_180, "height": 820}
            yield (
                await open_page(await started.new_context(), "about:blank"),
                await open_page(await started.new_context(viewport=size), "about:blank"),  # type: ignore[arg-type]
            )
        finally:
            await started.close()


def address(site: Desked) -> str:
    """Return the address of the server by the one name that the browser resolves."""
    return site.url.replace("127.0.0.1", "localhost").rstrip("/")


async def take_a_shot(visit: Visit, name: str) -> None:
    if shots := os.environ.get("PARLEY_SCREENSHOTS"):
        await visit.page.screenshot(path=f"{shots}/{name}.png")


async def choose_the_waiting(desk: Visit, site: Desked) -> None:
    await desk.page.goto(f"{address(site)}/desk#token={TOKEN}")
    await desk.state("live")
    waiting = desk.part("caller").filter(has_text="waits, number 1")
    await expect(waiting).to_have_count(1, timeout=LISTED_MS)
    await expect(desk.page).to_have_title("(1) Desk – Parley")
    await waiting.click()


async def answer(desk: Visit, text: str) -> None:
    await desk.part("words").fill(text)
    await desk.part("words").press("Enter")


async def hand_back(desk: Visit, note: str) -> None:
    await desk.part("handover").fill(note)
    await desk.page.get_by_role("button", name="Hand back").click()


async def test_a_human_takes_over_from_the_page_and_hands_back(chromium: str, site: Desked) -> None:
    async with browser(chromium) as (caller, desk):
        await caller.page.goto(f"{address(site)}/s/new")
        await caller.state("ready")
        await caller.type(WISH)
        await caller.answered(WAITING)
        await expect(caller.part("speaker")).to_contain_text("You are waiting for a colleague")

        await choose_the_waiting(desk, site)
        await expect(desk.part("user-turn")).to_have_text([f"Caller: {WISH}"])
        await expect(desk.part("facts")).to_contain_text("in writing, asked for a human")
        await take_a_shot(desk, "desk-waiting")
        # Also what is on the page already.
        await desk.part("language").select_option("de")
        await expect(desk.part("user-turn")).to_have_text([f"Anrufer: {WISH}"])
        await expect(desk.part("facts")).to_contain_text("schriftlich, hat einen Menschen verlangt")
        await expect(desk.part("take")).to_have_text("Übernehmen")
        await expect(desk.part("tier")).to_have_text("wartet, Platz 1")
        await desk.part("language").select_option("en")
        await expect(desk.part("user-turn")).to_have_text([f"Caller: {WISH}"])
        asked = len(site.llm.requests)
        await desk.part("take").click()
        await expect(desk.part("tier")).to_have_text("with you")
        await expect(caller.part("speaker")).to_have_text("You are talking with a colleague.")
        await caller.answered(JOINED)

        await caller.type("My card is gone.")
        await expect(desk.part("user-turn").last).to_have_text("Caller: My card is gone.")
        await caller.state("ready")
        await answer(desk, "I have blocked it.")
        said = caller.page.locator('[data-role="bot-turn"][data-by="human"]')
        await expect(said).to_contain_text("A colleague: I have blocked it.")
        await take_a_shot(desk, "desk-taken")
        await take_a_shot(caller, "desk-caller")

        # A desk that is opened again in its tab still has the session.
        await desk.page.reload()
        await desk.part("caller").filter(has_text="with you").click()
        await desk.part("whisper").fill("Mention the app.")
        await desk.page.get_by_role("button", name="Whisper").click()
        await expect(desk.part("notice")).to_contain_text("instructed for its next reply")
        await hand_back(desk, "Card 42 is blocked.")
        await expect(desk.part("take")).to_be_visible()
        await expect(desk.part("handover")).to_have_value("")
        await expect(desk.part("conversation")).to_contain_text("with the note “Card 42 is blocked.”")
        await expect(caller.part("speaker")).to_be_hidden()
        assert len(site.llm.requests) == asked

        await caller.type("And now?")
        await caller.answered("We open at ten.")
        request = json.dumps(site.llm.requests[-1]["messages"])
        assert "Card 42 is blocked." in request and "Mention the app." in request
        await expect(caller.part("conversation")).not_to_contain_text("Card 42")
        assert caller.complaints == [] and desk.complaints == []


@pytest.mark.alone
async def test_a_caller_in_a_voice_call_hears_what_a_human_types(
    chromium: str, site: Desked, tmp_path: Path
) -> None:
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(silence(3_000) + say("Can I speak to a person please?") + silence(120_000))
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
    )
    async with browser(chromium, *flags) as (caller, desk):
        await caller.page.goto(f"{address(site)}/?raw=1")
        await caller.part("talk").click()
        await caller.state("listening", "speaking")
        await expect(caller.part("bot-turn").first).to_contain_text("fetching a colleague", timeout=SPOKEN_MS)

        await choose_the_waiting(desk, site)
        await expect(desk.part("facts")).to_contain_text("in a call")
        await desk.part("take").click()
        await caller.answered(JOINED)
        await answer(desk, "Good day, this is the branch office.")
        spoken = caller.page.locator(".word.spoken")
        await expect(spoken.filter(has_text="office")).to_have_count(1, timeout=SPOKEN_MS)
        # The desk sees what was heard, with its author.
        said = desk.page.locator('[data-role="bot-turn"][data-by="human"]')
        await expect(said).to_contain_text("this is the branch office", timeout=SPOKEN_MS)
        await take_a_shot(desk, "desk-voice")
        await hand_back(desk, "")
        await caller.answered("handed you back")
        await caller.part("talk").click()
        await caller.state("ready")
        assert caller.complaints == [] and desk.complaints == []


@pytest.mark.alone
async def test_a_human_speaks_from_the_page_and_the_caller_hears_them(
    chromium: str, site: Desked, tmp_path: Path
) -> None:
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(tone(10_000, HUMAN_HZ))
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}",
    )
    session = await site.new_session()
    async with browser(chromium, *flags) as (_, desk), called(site, session=session) as caller:
        await desk.page.goto(f"{address(site)}/desk?raw=1#token={TOKEN}")
        row = desk.part("caller").filter(has_text=session[:8])
        await row.click(timeout=LISTED_MS)
        await expect(desk.part("speak")).to_be_hidden()
        await desk.part("take").click()
        await desk.part("speak").click()
        await until_tone(caller, HUMAN_HZ)
        caller.microphone.say(tone(4_000, CALLER_HZ))
        playing = "document.querySelector('[data-role=remote-audio]').srcObject?.active ?? false"
        assert await desk.page.evaluate(playing)
        await expect(desk.part("speak")).to_have_text("Stop speaking")
        await take_a_shot(desk, "desk-speaking")
        await desk.part("speak").click()
        await expect(desk.part("speak")).to_have_text("Speak")
        assert not await desk.page.evaluate(playing)
        await asyncio.sleep(1)
        heard = len(caller.heard)
        await asyncio.sleep(2)
        assert share_at(bytes(caller.heard[heard:]), HUMAN_HZ) < HEARD_SHARE
        # Handing the session back ends a call of the human, too.
        await desk.part("speak").click()
        await expect(desk.part("speak")).to_have_text("Stop speaking")
        await hand_back(desk, "")
        await expect(desk.part("take")).to_be_visible()
        await expect(desk.part("speak")).to_be_hidden()
        assert desk.complaints == []


async def test_a_desk_that_is_closed_gives_its_session_back(chromium: str, site: Desked) -> None:
    session = await site.new_session()
    await site.type(session, WISH)
    async with browser(chromium) as (_, desk):
        await choose_the_waiting(desk, site)
        await desk.part("take").click()
        await expect(desk.part("tier")).to_have_text("with you")
        # An open page, also a hidden one, is a sign of life.
        await desk.page.evaluate(
            "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        await asyncio.sleep(8)
        assert (await site.tiers(session))[-1] == ("human", "taken")
    await site.until_said(session, "deployment", "My colleague has left")
    assert (await site.tiers(session))[-1] == ("back", "desk_lost")


async def test_the_page_asks_for_the_token_of_the_operator(chromium: str, site: Desked) -> None:
    async with browser(chromium) as (_, desk):
        await desk.page.goto(f"{address(site)}/desk")
        await desk.state("locked")
        await expect(desk.part("open")).to_be_hidden()
        await desk.part("token").fill("a wrong token of the tests")
        await desk.part("token").press("Enter")
        await expect(desk.part("notice")).to_be_visible()
        await desk.state("locked")
        await desk.part("token").fill(TOKEN)
        await desk.part("token").press("Enter")
        await desk.state("live")
        await expect(desk.part("open")).to_be_visible()
        await desk.page.get_by_role("button", name="Log out").click()
        await desk.state("locked")


@pytest.mark.slow
async def test_the_page_keeps_its_session_when_the_server_starts_again(chromium: str, tmp_path: Path) -> None:
    port = free_port()
    start = partial(serving, tmp_path, "llm: {name: documents}", port=port, more="desk: {grace_s: 5}\n")
    async with (
        browser(chromium) as (_, desk),
        httpx.AsyncClient(base_url=f"http://localhost:{port}", headers=BEARER, timeout=60) as client,
    ):
        with start():
            session = (await client.post("/api/sessions")).json()["id"]
            await client.post(f"/api/sessions/{session}/messages", json={"text": WISH})
            await desk.page.goto(f"http://localhost:{port}/desk#token={TOKEN}")
            await desk.part("caller").click()
            await desk.part("take").click()
            await expect(desk.part("tier")).to_have_text("with you")
        await desk.state("away")
        # Longer than the desk may be away: the time without a server does not count.
        await asyncio.sleep(5)
        with start():
            # A server that starts again knows no login.
            await desk.state("locked")
            held = await client.post(f"/api/sessions/{session}/messages", json={"text": "Hello?"})
            assert "event: held" in held.text
            await desk.part("token").fill(TOKEN)
            await desk.part("token").press("Enter")
            await desk.part("caller").filter(has_text="with you").click(timeout=LISTED_MS)
            await expect(desk.part("tier")).to_have_text("with you", timeout=LISTED_MS)
            await answer(desk, "I am still here.")
            said = desk.page.locator('[data-role="bot-turn"][data-by="human"]')
            await expect(said).to_contain_text("I am still here.", timeout=LISTED_MS)
            timeline = await client.get(f"/api/sessions/{session}/timeline", params={"kind": "tier"})
            tiers = [each["payload"]["tier"] for each in timeline.json()["events"]]
            assert tiers == ["waiting", "human"]
