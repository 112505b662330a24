"""Rules of accessibility (WCAG 2.2 A and AA) on every page, checked by axe-core in Chromium."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright

from tests.peers.operations_gateway import TOKEN
from tests.peers.test_browser import OFFLINE, ROOT, chromium, open_page, serving
from tests.recorded_call import record_call
from tests.system import missing

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
DESK = "desk: {wait_s: 60}\n"
FLAGS = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
LOOKS = {
    "desktop-light": {"viewport": {"width": 1_280, "height": 900}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
PAGES = ("/", "/duplex", "/chat", "/omni", "/sessions", "/s/SESSION", "SHARE", "/desk", "/admin", "/docs")
# Rules of the standard, and axe's own of the same weight.
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map(({ id, impact, help, nodes }) => (
    { id, impact, help, places: nodes.map((node) => node.html.slice(0, 160)) }
  ));
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str, str]]:
    """Yield the address of a server with everything switched on, a session with a recorded call and comments,
    and the path of a link to it.
    """
    folder = tmp_path_factory.mktemp("accessible")
    recording = f"recording: {{enabled: true, folder: {folder / 'data'}, min_free_gb: 0}}\n"
    with serving(folder, "llm: {name: documents}", more=recording + DESK, calls=8) as served:
        async with httpx.AsyncClient(base_url=served.address) as client:
            session = (await client.post("/api/sessions")).json()["id"]
            typed = {"text": "When do you open on Saturday?", "id": str(uuid.uuid4())}
            await client.post(f"/api/sessions/{session}/turns", json=typed)
            await record_call(folder / "data", session)
            (call,) = (await client.get(f"/api/sessions/{session}/recordings")).json()["calls"]
            for at_us in (call["began_us"], call["began_us"] + 900_000):
                comment = {"at_us": at_us, "text": "Too quiet here.", "name": "Ann"}
                await client.post(f"/api/sessions/{session}/comments", json=comment)
            shared = (await client.post(f"/api/sessions/{session}/shares")).json()["path"]
        yield served.address, session, shared


@asynccontextmanager
async def opened(chromium: str, address: str, look: str) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*OFFLINE, *FLAGS])
        try:
            # A turn that fades in has little contrast for 0.2 s; with reduced motion it appears at once.
            context = await browser.new_context(**LOOKS[look], reduced_motion="reduce")  # type: ignore[arg-type]
            yield (await open_page(context, address)).page
        finally:
            await browser.close()


async def serious(page: Page) -> list[dict[str, object]]:
    """Return the violations that axe calls serious or critical."""
    if not AXE.exists():
        missing("axe-core (make web)")
    await page.evaluate(Path(AXE).read_text())
    return [each for each in await page.evaluate(RUN) if each["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_no_serious_violation(
    chromium: str, site: tuple[str, str, str], path: str, look: str
):
    address, session, shared = site
    # The pages of operators take their token from the address.
    where = f"{address}{path.replace('SESSION', session)}#token={TOKEN}"
    if path == "SHARE":
        where = f"{address}{shared}"
    async with opened(chromium, where, look) as page:
        await page.wait_for_load_state("networkidle")
        found = await serious(page)
        await page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        await page.wait_for_load_state("networkidle")
        found += await serious(page)
    assert not found


@pytest.mark.parametrize("look", LOOKS)
async def test_the_dialog_of_links_has_no_serious_violation(
    chromium: str, site: tuple[str, str, str], look: str
):
    address, session, _ = site
    async with opened(chromium, f"{address}/s/{session}", look) as page:
        await page.locator('[data-role="share-open"]').click()
        await page.locator('[data-role="share-form"] button').click()
        await page.locator('[data-role="share-list"] li').first.wait_for()
        assert not await serious(page)


async def test_a_list_of_more_sessions_than_a_page_shows_has_no_serious_violation(
    chromium: str, site: tuple[str, str, str]
):
    async with httpx.AsyncClient(base_url=site[0]) as client:
        for _ in range(50):
            (await client.post("/api/sessions")).raise_for_status()
    async with opened(chromium, f"{site[0]}/sessions#token={TOKEN}", "phone-dark") as page:
        await page.locator('[data-role="more"]').wait_for()
        assert not await serious(page)


async def test_a_page_in_a_call_has_no_serious_violation(chromium: str, site: tuple[str, str, str]):
    async with opened(chromium, site[0], "phone-dark") as page:
        await page.locator('[data-role="talk"]').click()
        await page.locator('body[data-state="listening"], body[data-state="speaking"]').wait_for(
            timeout=60_000
        )
        assert not await serious(page)
        # An answer brings its latency, and the end of the call the ways on.
        await page.locator('[data-role="typed"]').fill("When do you open on Saturday?")
        await page.locator('[data-role="typed"]').press("Enter")
        await page.locator('[data-role="latency"] summary').click(timeout=60_000)
        await page.locator('[data-role="talk"]').click()
        await page.locator('[data-role="after-conversation"]').wait_for()
        assert not await serious(page)


async def test_a_button_without_a_name_is_found(chromium: str, site: tuple[str, str, str]):
    async with opened(chromium, site[0], "desktop-light") as page:
        await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
        assert [each["id"] for each in await serious(page)] == ["button-name"]
