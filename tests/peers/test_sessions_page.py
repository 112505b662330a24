"""The page that lists sessions, and the way between the pages, in Chromium."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.peers.operations_gateway import BEARER, TOKEN
from tests.peers.server import RunningServer, running_server
from tests.peers.test_browser import chromium, visit

__all__ = ["chromium"]
# Names of pages in the order in which they are visited, with their paths.
WAY = (("Omni", "/omni"), ("Chat", "/s/"), ("Operator", "/admin"), ("Desk", "/desk"))
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with (
        running_server() as running,
        httpx.AsyncClient(base_url=running.url, headers=BEARER, timeout=60) as client,
    ):
        for text in ("How do I report a lost card?", "<b>What</b> about Sunday?"):
            session = (await client.post("/api/sessions")).json()["id"]
            answer = await client.post(f"/api/sessions/{session}/messages", json={"text": text})
            assert "event: done" in answer.text
        yield running


def address(server: RunningServer) -> str:
    return server.url.replace("127.0.0.1", "localhost")


async def test_the_token_of_the_address_logs_in_and_leaves_the_address(chromium: str, server: RunningServer):
    async with visit(chromium, f"{address(server)}/sessions#token={TOKEN}") as person:
        await person.state("live")
        assert person.page.url == f"{address(server)}/sessions"
    async with visit(chromium, f"{address(server)}/sessions#token=wrong") as person:
        await person.state("locked")
        await expect(person.part("notice")).to_be_visible()


async def test_the_page_is_in_german_where_that_is_chosen(chromium: str, server: RunningServer):
    async with visit(chromium, f"{address(server)}/sessions#token={TOKEN}") as person:
        await person.state("live")
        rows = person.part("found").locator("li")
        await expect(rows.first).to_contain_text("1 turn · text")
        await person.part("language").select_option("de")
        await expect(rows.first).to_contain_text("1 Beitrag · Text")
        await expect(person.part("state")).to_have_text("Bereit")
        await expect(person.page.locator("#sessions-title")).to_have_text("Gespräche")
        await expect(person.page.get_by_role("button", name="Suchen")).to_be_visible()
        await person.part("words").fill("no such words anywhere")
        await person.part("words").press("Enter")
        await expect(person.part("none")).to_have_text("Kein Gespräch passt dazu.")
        assert not person.complaints


async def test_an_operator_finds_a_session_by_its_words_and_opens_it(chromium: str, server: RunningServer):
    async with visit(chromium, f"{address(server)}/sessions") as person:
        await person.state("locked")
        await person.part("token").fill("wrong")
        await person.part("token").press("Enter")
        await expect(person.part("notice")).to_be_visible()
        await person.part("token").fill(TOKEN)
        await person.part("token").press("Enter")
        rows = person.part("found").locator("li")
        # Other tests of this run may have left sessions in the store.
        await expect(rows.first).to_contain_text("<b>What</b> about Sunday?")
        await expect(rows.first).to_contain_text("1 turn · text")
        await person.part("words").fill("lost CARD")
        await person.part("words").press("Enter")
        await expect(rows.first).to_contain_text("How do I report a lost card?")
        await expect(person.part("found")).not_to_contain_text("Sunday")
        await person.part("words").fill("no such words anywhere")
        await person.part("words").press("Enter")
        await expect(person.part("none")).to_be_visible()
        await person.part("words").fill("lost card")
        await person.part("transport").select_option("phone")
        await person.part("words").press("Enter")
        await expect(rows).to_have_count(0)
        await person.part("transport").select_option("text")
        await person.part("words").press("Enter")
        await rows.first.locator("a").click()
        await expect(person.part("conversation")).to_contain_text("How do I report a lost card?")
        # A tag is shown with the session, and narrows the list.
        await person.part("tag-typed").fill("Call  Back")
        await person.part("tag-typed").press("Enter")
        await expect(person.part("tag-list").locator("li")).to_have_text("call back×")
        await person.page.goto(f"{address(server)}/sessions")
        await person.part("tag").fill("call back")
        await person.part("tag").press("Enter")
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("call back")
        await rows.first.locator("a").click()
        await person.page.get_by_role("button", name="Remove the tag call back").click()
        await expect(person.part("tag-list").locator("li")).to_have_count(0)
        await person.page.goto(f"{address(server)}/sessions")
        await expect(rows.first).to_be_visible()
        await expect(person.part("found")).not_to_contain_text("call back")
        # The browser logs the refusals of the first requests.
        assert all("401" in each or "403" in each for each in person.complaints)


async def test_every_page_leads_to_the_others(chromium: str, server: RunningServer):
    async with visit(chromium, f"{address(server)}/") as person:
        pages = person.page.locator("nav.pages")
        for name, path in (
            ("Omni", "/omni"),
            ("Chat", "/s/"),
            ("Operator", "/admin"),
            ("Desk", "/desk"),
        ):
            await pages.get_by_role("link", name=name).click()
            await person.page.wait_for_url(f"**{path}**")
            await expect(pages.locator("[aria-current=page]")).to_have_text(name)
            await expect(pages).to_be_in_viewport()
        await pages.get_by_role("link", name="Sessions").click()
        await expect(pages.locator("[aria-current=page]")).to_have_text("Sessions")
        await pages.get_by_role("link", name="Call").click()
        await expect(person.part("talk")).to_be_visible()
