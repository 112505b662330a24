"""Links and comments in Chromium: made in the viewer of a session, opened by readers without a credential."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from parley.pipelines.call_recording import CallRecordings
from parley.recording.settings import RecordingSettings
from parley.session_store.events import Draft, Kind
from tests.peers.session_gateway import Turns, application, client_of, served
from tests.peers.test_browser import Visit, chromium, visit
from tests.recorded_call import record_call

__all__ = ["chromium"]
pytestmark = pytest.mark.browser

MARKUP = "<b>bold</b> & <img src=x onerror=\"document.title='attacked'\">"
SHOTS = os.environ.get("PARLEY_SCREENSHOTS")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Yield the address of a server, and a session with a recorded call of three seconds."""
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, store):
        async with client_of(app) as client:
            session = (await client.post("/api/sessions")).json()["id"]
        path = await record_call(tmp_path, session, seconds=3)
        writer = await store.claim(session)
        for kind, payload, source in (
            (Kind.USER_TURN, {"text": "hello", "transport": "webrtc"}, "user"),
            (Kind.BOT_TURN, {"text": "Good morning.", "reply_id": "r", "transport": "webrtc"}, "bot"),
            (Kind.RECORDING, {"call_id": path.name, "state": "ended"}, "system"),
        ):
            now_us = writer.clock.now_us()
            await writer.append(Draft(kind, payload, now_us, now_us, source))
        async with served(app) as server:
            yield f"http://localhost:{server.port}", session


async def shot(person: Visit, name: str) -> None:
    if SHOTS:
        await person.page.screenshot(path=f"{SHOTS}/{name}.png")


async def make_link(person: Visit) -> str:
    await person.part("share-open").click()
    await person.part("share-time").select_option("86400")
    await person.part("share-form").locator("button").click()
    await expect(person.part("share-made")).to_be_visible()
    await shot(person, "share_dialog")
    return await person.part("share-link").input_value()


async def test_a_link_is_made_opened_and_revoked(chromium: str, site: tuple[str, str]):
    address, session = site
    async with visit(chromium, f"{address}/s/{session}") as owner:
        link = await make_link(owner)
        await expect(owner.part("share-list").locator("li")).to_have_count(1)
        # Another browser: no cookie of the owner.
        async with visit(chromium, link) as reader:
            await reader.state("ready")
            await expect(reader.part("until")).to_contain_text("opens until")
            await expect(reader.part("conversation")).to_contain_text("Good morning.")
            await reader.part("recordings").locator("summary").click()
            await expect(reader.part("player")).to_be_visible()
            await expect(reader.part("wav")).to_be_hidden()
            # wait_for_function would need eval in the page for its second look, which the page forbids.
            async with asyncio.timeout(30):
                while not await reader.part("replay").evaluate("node => node.duration > 2.5"):
                    await asyncio.sleep(0.05)
            await shot(reader, "shared_page")
            assert (reader.complaints, reader.hosts) == ([], {urlsplit(address).netloc})
            await owner.part("share-list").locator("button").click()
            await expect(owner.part("share-list").locator("li")).to_have_attribute("data-state", "revoked")
            await reader.page.reload()
            await expect(reader.part("end-title")).to_have_text("This link has ended")
            await expect(reader.part("end-text")).to_contain_text("revoked")
            await shot(reader, "share_revoked")
    altered = link[:-1] + ("A" if link[-1] != "A" else "B")
    for broken, title in ((altered, "No such link"), (link.partition("#")[0], "No such link")):
        async with visit(chromium, broken) as reader:
            await expect(reader.part("end-title")).to_have_text(title)


async def test_a_comment_is_at_its_place_and_its_markup_is_text(chromium: str, site: tuple[str, str]):
    address, session = site
    async with visit(chromium, f"{address}/s/{session}") as person:
        await person.part("recordings").locator("summary").click()
        await expect(person.part("comments")).to_be_visible()
        await person.part("replay").evaluate("node => { node.currentTime = 1.5; }")
        await expect(person.part("comment-at")).to_have_text("0:01")
        await person.part("comment-name").fill("Ann <i>")
        await person.part("comment-text").fill(MARKUP)
        await person.part("comment-form").locator("button").click()
        comment = person.part("comment-list").locator("li")
        await expect(comment.locator(".text")).to_have_text(MARKUP)
        await expect(comment.locator("b")).to_have_text("Ann <i>")
        assert await comment.locator(".text *").count() == 0
        assert "attacked" not in await person.page.title()
        # Its mark is under the middle of the waveform, and leads there.
        mark = person.part("comment-marks").locator("button")
        canvas = await person.part("waveform").bounding_box()
        box = await mark.bounding_box()
        assert canvas and box
        assert abs(box["x"] + box["width"] / 2 - canvas["x"] - canvas["width"] / 2) < canvas["width"] / 20
        await person.part("replay").evaluate("node => { node.currentTime = 0; }")
        await mark.click()
        await expect(person.part("comment-at")).to_have_text("0:01")
        await person.part("comment-text").scroll_into_view_if_needed()
        await shot(person, "comments")
        await person.page.reload()
        await person.part("recordings").locator("summary").click()
        await expect(comment).to_have_count(1)
        await comment.locator(".remove").click()
        await expect(comment).to_have_count(0)
        await expect(mark).to_have_count(0)
