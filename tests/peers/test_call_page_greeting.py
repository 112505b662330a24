"""A bot that speaks before the first messages of its call have arrived at the page."""

from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from tests.peers.test_browser import OFFLINE, chromium, open_page, serving

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

# Gives the page the message that the bot is ready after the one that it speaks, as a slow network does: the
# channel of the messages opens after the sound of the call.
LATE = """() => {
  const add = RTCDataChannel.prototype.addEventListener;
  RTCDataChannel.prototype.addEventListener = function (name, listener, ...more) {
    if (name !== "message") return add.call(this, name, listener, ...more);
    const held = [];
    let speaks = false;
    return add.call(this, name, (event) => {
      const { type } = event.data.startsWith("{") ? JSON.parse(event.data) : {};
      if (type === "bot-ready" && !speaks) {
        held.push(event);
        return;
      }
      listener(event);
      if (type !== "bot-started-speaking") return;
      speaks = true;
      held.splice(0).forEach((each) => listener(each));
    }, ...more);
  };
}"""


async def test_the_page_says_that_the_bot_speaks_when_that_comes_before_the_call_is_up(
    chromium: str, tmp_path: Path
):
    # It lasts for a minute: what the page shows by then is of the greeting, and not of a later question.
    greeting = "bot: {greeting: 'Hello. " + "We open at nine in the morning. " * 30 + "'}\n"
    with serving(tmp_path, "llm: {name: documents}", more=greeting) as served:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=[*OFFLINE, "--deny-permission-prompts"]
            )
            try:
                context = await browser.new_context()
                await context.add_init_script(f"({LATE})()")
                person = await open_page(context, served.address)
                await person.part("talk").click()
                await person.state("speaking", within_s=40)
                await person.part("talk").click()
                await person.state("ready")
                assert person.complaints == []
            finally:
                await browser.close()
