"""Two servers on one store: a session has one owner, and the server that lost it reports so."""

import asyncio

import httpx

from tests.peers.server import running_server
from tests.peers.test_metrics import scrape
from tests.peers.test_sessions import answer_of, call, new_session, say, timeline


async def test_the_server_that_claims_a_session_ends_its_call_on_the_other_one():
    async with (
        running_server() as first,
        running_server() as second,
        httpx.AsyncClient(base_url=first.url, timeout=60) as old,
        httpx.AsyncClient(base_url=second.url, timeout=60) as new,
    ):
        session = await new_session(old)
        await say(old, session, "My name is Ada.")
        async with call(old, session) as caller:
            assert "Ada" in answer_of(await say(new, session, "What is my name?"))
            # The old owner notices with its next commit: of the greeting that was heard, or of this turn.
            if caller.channel.readyState == "open":
                caller.type("What are your opening hours?")
            await caller.until(
                lambda: [m for m in caller.of_type("server-message") if m["data"]["kind"] == "session_lost"]
            )
            async with asyncio.timeout(60):
                while (await old.get("/health")).json()["calls"]:
                    await asyncio.sleep(0.05)
        metrics = await scrape(first.url)
        assert metrics.value("parley_call_ends_total", reason="session_lost") == 1
        events = await timeline(new, session, limit=500)
        epochs = [event["epoch"] for event in sorted(events, key=lambda event: event["seq"])]
        assert epochs == sorted(epochs)
        assert "What are your opening hours?" not in [event["payload"].get("text") for event in events]
        # The session can be taken back.
        assert "Ada" in answer_of(await say(old, session, "What is my name?"))
