"""Routes of sessions against a store that is unavailable, on virtual time."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx

from parley.serving.gateway.app import create_app
from parley.serving.gateway.session_api import TurnEvent
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.webrtc.signaling import Signaling
from tests import virtual_time


async def no_call(_arguments: object) -> None:
    raise AssertionError("no call is made here")


async def no_turn(
    session_id: str, text: str, *, key: str | None, **_: object
) -> AsyncGenerator[TurnEvent, None]:
    raise AssertionError("no turn is typed here")
    yield


def test_a_call_is_refused_while_the_store_is_away_and_taken_when_it_is_back(tmp_path: Path):
    async def scenario() -> list[int]:
        url = f"sqlite:///{tmp_path}/sessions.db"
        store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0))
        conversations = Conversations(store, compactor=Compactor())
        app = create_app(
            ServerTuning(),
            run_call=no_call,
            describe=dict,
            open_door=lambda on_call: Signaling(on_call, max_calls=1, ice_servers=[], hang_up_s=1),
            conversations=conversations,
            type_turn=no_turn,
        )
        transport = httpx.ASGITransport(app)
        seen = []
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            conversations.open() as conversation,
        ):
            seen.append((await client.post("/start", json={})).status_code)
            other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            conversation.record(conversation.draft(Kind.HEARD, "bot", text="x"))
            await asyncio.sleep(2)
            answer = await client.post("/start", json={})
            seen.append(answer.status_code)
            assert answer.headers["retry-after"]
            other.rollback()
            other.close()
            await asyncio.sleep(2)
            seen.append((await client.post("/start", json={})).status_code)
        await conversations.close()
        await store.close()
        return seen

    assert virtual_time.run(scenario()) == [200, 503, 200]
