"""The page of a call in German, in Chromium: chosen by the browser, switched by its user."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from tests.peers.session_gateway import Turns, application, served
from tests.peers.test_accessibility import LOOKS, serious
from tests.peers.test_browser import OFFLINE, chromium, open_page

__all__ = ["chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with application(tmp_path, Turns()) as (app, _), served(app) as server:
        yield f"http://localhost:{server.port}"


@pytest.mark.parametrize("look", LOOKS)
async def test_a_german_browser_gets_a_german_page_and_its_user_may_switch(
    chromium: str, address: str, look: str
):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*OFFLINE])
        try:
            context = await browser.new_context(locale="de-DE", **LOOKS[look])  # type: ignore[arg-type]
            person = await open_page(context, address)
            page = person.page
            await expect(person.part("talk-label")).to_have_text("Sprechen")
            await expect(person.part("state")).to_have_text("Bereit")
            await expect(page.locator("html")).to_have_attribute("lang", "de")
            await expect(person.part("microphone")).to_have_attribute("aria-label", "Mikrofon stummschalten")
            if shots := os.environ.get("PARLEY_SCREENSHOTS"):
                await page.screenshot(path=f"{shots}/german_{look}.png")
            assert not await serious(page)
            await person.part("language").select_option("en")
            await expect(person.part("talk-label")).to_have_text("Talk")
            await page.reload()
            await expect(page.locator("html")).to_have_attribute("lang", "en")
            await expect(person.part("state")).to_have_text("Ready")
            assert person.complaints == []
            # Another page of this server is English.
            await page.goto(f"{address}/s/new")
            await expect(page.locator("html")).to_have_attribute("lang", "en")
        finally:
            await browser.close()
