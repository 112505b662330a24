"""The audio delay to the caller, measured from the caller's reports, in the running product."""

from typing import Any

import pytest

from tests.peers.server import running_server
from tests.peers.test_webrtc_call import call
from tests.peers.webrtc_caller import Caller

pytestmark = pytest.mark.paired


def heard_by(caller: Caller) -> list[dict[str, Any]]:
    return [m["data"] for m in caller.of_type("server-message") if m["data"]["kind"] == "heard"]


async def ask(caller: Caller) -> dict[str, Any]:
    """Type a question; return the message about the reply."""
    replies = len(heard_by(caller))
    text = {"content": "What are your opening hours on Saturday?", "options": {"run_immediately": True}}
    caller.send({"label": "rtvi-ai", "type": "send-text", "id": str(replies), "data": text})
    await caller.until(lambda: len(heard_by(caller)) > replies)
    return heard_by(caller)[-1]


async def test_a_reply_is_placed_by_what_the_caller_reports_of_the_line():
    async with running_server() as server, call(server.url) as caller:
        # aiortc reports about every second, and the server reads the reports every two: the greeting and one
        # reply take longer than that.
        await ask(caller)
        reply = await ask(caller)
        assert reply["client_delay_reported"]
        # Both ends are on this machine: almost no network delay, and the receiver's buffer.
        assert 60 <= reply["client_delay_ms"] < 200
