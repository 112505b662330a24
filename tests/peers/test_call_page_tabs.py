"""Two tabs of a browser at the call page with one conversation."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import expect

from tests.peers.test_browser import Visit, chromium, lines_are_free, open_page, recorded, serving, visit

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

ELSEWHERE = "This conversation continues elsewhere. Press Talk to continue it here."


async def test_the_call_goes_on_in_the_tab_in_which_talk_was_pressed_last(chromium: str, tmp_path: Path):
    with serving(tmp_path, "llm: {name: documents}", calls=2, more="bot: {greeting: ''}\n") as served:
        async with visit(chromium, served.address, "--deny-permission-prompts") as first:
            await first.part("talk").click()
            await first.state("listening")
            await first.type("What are your opening hours on Saturday?")
            await first.answered("ten until two")
            session = urlsplit(first.page.url).query.removeprefix("session=")

            second = await open_page(first.context, f"{served.address}/?session={session}")
            await expect(second.part("user-turn")).to_contain_text("Saturday")
            await goes_on(second)
            await is_over(first)
            # The second tab alone is in the call, and the conversation is one.
            await second.type("How do I report a lost card?")
            await second.answered("hotline")
            await is_over(first)
            assert await calls_of(served.address) == 1
            texts = await recorded(served.address, session)
            assert [text for text in texts if text.endswith("?")] == [
                "What are your opening hours on Saturday?",
                "How do I report a lost card?",
            ]

            # Talk takes it back.
            await goes_on(first)
            await is_over(second)
            assert await calls_of(served.address) == 1
            await first.part("talk").click()
            await lines_are_free(served.address)
            assert first.complaints == second.complaints == []


async def goes_on(tab: Visit) -> None:
    await tab.part("talk").click()
    await tab.state("listening", "speaking")


async def is_over(tab: Visit) -> None:
    """Expect a tab that says where its call goes on, and does not take the call back by itself."""
    await expect(tab.part("notice")).to_have_text(ELSEWHERE)
    await tab.state("ended", "error")
    states = await tab.page.evaluate(
        """async () => {
          const seen = new Set();
          // Longer than the first pauses of a page that opens its call again.
          const until = performance.now() + 3_000;
          while (performance.now() < until) {
            seen.add(document.body.dataset.state);
            await new Promise((resolve) => setTimeout(resolve, 50));
          }
          return [...seen];
        }"""
    )
    assert len(states) == 1, states


async def calls_of(address: str) -> int:
    async with httpx.AsyncClient() as client:
        return int((await client.get(f"{address}/health")).json()["calls"])
