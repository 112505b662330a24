"""Take the pictures of the pages in docs/screenshots.

Run by hand after a page has changed: ``python -m scripts.take_screenshots``. It starts the embedded
deployment with recordings and a desk, holds a call in Chromium whose microphone asks a question aloud, and
takes a picture of every page at the size of a desktop and of a phone, light and dark. Options:
``--out FOLDER``, and ``--pages NAME ...`` for some of them. Needs Chromium and ``make setup``.
"""

import argparse
import asyncio
import io
import json
import secrets
import shutil
import tempfile
import wave
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from PIL import Image
from playwright.async_api import Browser, Locator, Page, ViewportSize, async_playwright

from parley.core.errors import ConfigError
from parley.evals.harness.launcher import PRODUCT, launched
from parley.evals.harness.voices import synthesised
from parley.models.tts.hibari import HibariTts

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "screenshots"
SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1_280, "height": 800},
    "phone": {"width": 390, "height": 844},
}
SCHEMES = ("light", "dark")
QUALITY = 80
WISH, ANSWER = "I want to talk to a human.", "Good afternoon, this is the front desk. How can I help you?"
SPOKEN, TYPED = "What are your opening hours on Saturday?", "How do I report a lost card?"
# The microphone is silent while the greeting is said.
BEFORE_S, AFTER_S = 9.0, 120.0
WITHIN_MS = 60_000
GRANTED = ["microphone", "camera"]
ARGUMENTS = (
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A server whose pages are photographed.

    Attributes:
        url: its root.
        token: of the operator.
        session: conversation with a recorded call; empty until there is one.
    """

    url: str
    token: str
    session: str = ""


class Camera:
    """Takes the pictures of one page.

    Args:
        out: folder of the pictures.
        name: of the page.
    """

    def __init__(self, out: Path, name: str) -> None:
        self._out, self._name = out, name

    async def take(self, page: Page) -> None:
        """Take a picture of what the page shows, at each size and in each colour scheme."""
        for size, viewport in SIZES.items():
            await page.set_viewport_size(viewport)
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                # Canvases are drawn again with the next frame.
                await page.evaluate(
                    "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 300)))"
                )
                taken = Image.open(io.BytesIO(await page.screenshot()))
                taken.save(self._out / f"{self._name}-{size}-{scheme}.webp", quality=QUALITY, method=6)


def part(page: Page, role: str) -> Locator:
    return page.locator(f'[data-role="{role}"]').first


async def call(page: Page, site: Site, camera: Camera) -> None:
    """Hold a call: a question that is asked aloud, and a typed one."""
    await page.goto(site.url)
    await part(page, "talk").click()
    answers = page.locator(".turn.bot")
    await answers.nth(1).wait_for(timeout=WITHIN_MS)
    await quiet(page)
    await part(page, "typed").fill(TYPED)
    await part(page, "send").click()
    await answers.nth(2).wait_for(timeout=WITHIN_MS)
    await camera.take(page)
    await quiet(page)
    await part(page, "talk").click()


async def quiet(page: Page) -> None:
    """Wait until the bot has spoken and listens again."""
    await page.locator('body[data-state="speaking"]').wait_for(timeout=WITHIN_MS)
    await page.locator('body[data-state="listening"]').wait_for(timeout=WITHIN_MS)


async def session(page: Page, site: Site, camera: Camera) -> None:
    """Open the recorded call of the session."""
    await page.goto(f"{site.url}/s/{site.session}")
    await part(page, "recordings").locator("summary").click()
    await part(page, "player").wait_for(timeout=WITHIN_MS)
    await page.wait_for_load_state("networkidle")
    await part(page, "recordings").scroll_into_view_if_needed()
    await camera.take(page)


def opened(path: str) -> Callable[[Page, Site, Camera], Awaitable[None]]:
    """Return the photographer of a page that shows everything once it is open."""

    async def photograph(page: Page, site: Site, camera: Camera) -> None:
        await page.goto(f"{site.url}{path}#token={site.token}")
        await page.wait_for_load_state("networkidle")
        await camera.take(page)

    return photograph


async def desk(page: Page, site: Site, camera: Camera) -> None:
    """Take over a session whose caller has asked for a human."""
    async with httpx.AsyncClient(base_url=site.url, timeout=60) as client:
        waiting = (await client.post("/api/sessions")).json()["id"]
        for words in (SPOKEN, WISH):
            await client.post(f"/api/sessions/{waiting}/messages", json={"text": words})
    await page.goto(f"{site.url}/desk#token={site.token}")
    await page.locator('[data-role="caller"]', has_text="waits").click()
    await part(page, "take").click()
    await part(page, "words").fill(ANSWER)
    await camera.take(page)


async def sound(page: Page, site: Site, camera: Camera) -> None:
    """Open the panel of sound and devices in a call that has begun."""
    await page.goto(site.url)
    await part(page, "talk").click()
    await page.locator('body[data-state="speaking"]').wait_for(timeout=WITHIN_MS)
    await part(page, "sound-open").click()
    await part(page, "loudness-bot").filter(has_text="LUFS").wait_for(timeout=WITHIN_MS)
    await camera.take(page)


# In this order: the call of the first one is shown by others.
SHOW_THE_CALL = {"session", "sessions"}
PAGES: dict[str, Callable[[Page, Site, Camera], Awaitable[None]]] = {
    "call": call,
    "session": session,
    "chat": opened("/chat"),
    "omni": opened("/omni"),
    "sessions": opened("/sessions"),
    "desk": desk,
    "admin": opened("/admin"),
    "sound": sound,
}


async def take_all(out: Path, names: Sequence[str]) -> None:
    """Take the pictures of pages.

    Args:
        out: folder of the pictures, which exists.
        names: of the pages.

    Raises:
        ConfigError: there is no Chromium.
        PeerError: the server does not start.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with served(folder) as site, chromium(microphone(folder / "microphone.wav")) as browser:
            shown = {"call", *names} if SHOW_THE_CALL & set(names) else set(names)
            for each in (name for name in PAGES if name in shown):
                context = await browser.new_context(viewport=SIZES["desktop"], permissions=GRANTED)
                try:
                    camera = Camera(out if each in names else folder, each)
                    await PAGES[each](await context.new_page(), site, camera)
                finally:
                    await context.close()
                if each == "call" and SHOW_THE_CALL & shown:
                    site = await with_session(site)


async def with_session(site: Site) -> Site:
    """Return the site with the session of its call, once the recording is merged."""
    headers = {"Authorization": f"Bearer {site.token}"}
    async with httpx.AsyncClient(base_url=site.url, headers=headers) as client, asyncio.timeout(60):
        while True:
            (found,) = (await client.get("/api/sessions")).json()["sessions"]
            calls = (await client.get(f"/api/sessions/{found['id']}/recordings")).json()["calls"]
            if calls and calls[0]["has_replay"]:
                return Site(site.url, site.token, found["id"])
            await asyncio.sleep(0.2)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Site]:
    """Serve the embedded deployment with recordings and a desk."""
    config, token = folder / "screenshots.yaml", secrets.token_hex(16)
    deployment = {
        "recording": {"enabled": True, "folder": str(folder / "data"), "min_free_gb": 0},
        "desk": {"wait_s": 300},
        "server": {"admission": "off"},
    }
    config.write_text(json.dumps(deployment))
    environment = {"PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db", "PARLEY_ADMIN_TOKEN": token}
    async with launched(
        PRODUCT, folder / "server.log", "--config", str(config), environment=environment
    ) as server:
        # A page that is not of this machine's name may use no microphone.
        yield Site(server.url.replace("127.0.0.1", "localhost"), token)


@asynccontextmanager
async def chromium(sound: Path) -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        raise ConfigError("pictures of pages need Chromium (make setup installs it on Debian)")
    async with async_playwright() as playwright:
        arguments = [*ARGUMENTS, f"--use-file-for-fake-audio-capture={sound}%noloop"]
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


def microphone(path: Path) -> Path:
    """Write the sound of a caller who asks a question after the greeting."""
    voice = HibariTts()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(voice.rate_hz)
        for sound in (
            silence(voice.rate_hz, BEFORE_S),
            synthesised(voice, SPOKEN),
            silence(voice.rate_hz, AFTER_S),
        ):
            file.writeframes(sound)
    return path


def silence(rate_hz: int, seconds: float) -> bytes:
    return bytes(2 * round(rate_hz * seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of the pages in docs/screenshots.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures")
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=list(PAGES), help="only these")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_all(options.out, options.pages))


if __name__ == "__main__":
    main()
