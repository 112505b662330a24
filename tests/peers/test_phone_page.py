"""A conversation that begins on the page and continues in a phone call."""

import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import expect

from parley.protocols.twilio_media import SILENCE
from parley.transports.twilio.simulated_caller import Caller, SimulatedCall
from tests.peers.test_browser import chromium, serving, visit  # noqa: F401

pytestmark = pytest.mark.browser
PHONE = "phone: {signatures: false, number: '+15550199'}\n"


async def test_a_call_on_the_page_goes_on_by_telephone(chromium: str, tmp_path: Path):  # noqa: F811
    with serving(tmp_path, "llm: {name: documents}", more=PHONE, calls=2) as server:
        async with visit(chromium, server.address) as person:
            await expect(person.part("by-phone")).to_be_hidden()
            await person.part("talk").click()
            await person.state("listening")
            await person.part("by-phone").click()
            notice = person.part("notice")
            await expect(notice).to_contain_text("Call +15550199 and press")
            code = re.search(r"press (\d{6}) ", await notice.inner_text())
            assert code is not None
            caller = Caller(keys=code.group(1), tail_ms=1_500)
            heard = await SimulatedCall(server.address, SILENCE * 8_000, caller=caller).hold()
            assert heard.ended == "caller" and heard.violations == []
            await expect(notice).to_have_text(
                "This conversation continues elsewhere. Press Talk to continue it here."
            )
            [session] = re.findall(r"session=([0-9a-f-]{36})", person.page.url)
            events = httpx.get(f"{server.address}/api/sessions/{session}/timeline").json()["events"]
            joined = [event["payload"]["transport"] for event in events if event["kind"] == "joined"]
            assert joined == ["webrtc", "phone"]
