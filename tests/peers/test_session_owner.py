"""Sessions in two calls of one server: the newest call owns the session, and the earlier one is notified."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.peers.minicpm_page import page
from tests.peers.server import RunningServer, running_server
from tests.peers.test_sessions import call, new_session, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDED = "session_lost"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with running_server() as server:
        yield server


class Client:
    """A client of the OpenAI protocol that types.

    Attributes:
        got: received messages, in order.
        closed: code and reason, after the socket was closed.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.got: list[dict[str, Any]] = []
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        try:
            async for text in self._socket:
                self.got.append(json.loads(text))
                async with self._news:
                    self._news.notify_all()
        except ConnectionClosed:
            pass
        frame = self._socket.protocol.close_rcvd
        self.closed.set_result((frame.code, frame.reason) if frame else (1006, ""))

    async def until(self, kind: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [message for message in self.got if message["type"] == kind]

        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(found)
        return found()[-1]

    async def types(self, text: str) -> None:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        await self._socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await self._socket.send(json.dumps({"type": "response.create"}))


@asynccontextmanager
async def client(server: RunningServer, session: str) -> AsyncIterator[Client]:
    url = server.url.replace("http", "ws")
    async with connect(f"{url}/v1/realtime?model=parley&session={session}") as socket:
        peer = Client(socket)
        listening = asyncio.create_task(peer.listen())
        try:
            await peer.until("session.created")
            yield peer
        finally:
            await socket.close()
            await listening


async def test_answers_reach_the_socket_that_has_the_session_and_no_other(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        session = await new_session(http)
    async with client(server, session) as first, client(server, session) as second:
        assert await asyncio.wait_for(asyncio.shield(first.closed), 10) == (1000, ENDED)
        before = list(first.got)
        await second.types("What are your opening hours on Saturday?")
        done = await second.until("response.output_audio_transcript.done")
        assert "two" in done["transcript"]
        assert first.got == before
        assert not second.closed.done()


async def test_a_socket_takes_the_session_of_a_browsers_call_and_a_browser_that_of_a_socket(
    server: RunningServer,
):
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        session = await new_session(http)
        async with call(http, session) as caller, client(server, session) as socket:
            await caller.until(
                lambda: [m for m in caller.of_type("server-message") if m["data"]["kind"] == ENDED]
            )
            async with call(http, session):
                assert await asyncio.wait_for(asyncio.shield(socket.closed), 10) == (1000, ENDED)


async def test_a_conversation_by_turns_that_waits_is_told_that_its_session_went_on(server: RunningServer):
    async with page(server.url, "/ws/streaming/one") as first:
        session = (await first.until("queue_done"))["session_id"]
        async with page(server.url, f"/ws/streaming/two?session={session}") as second:
            await second.until("queue_done")
            assert (await first.until("error"))["code"] == ENDED
            assert await first.until_closed() == (1011, ENDED)


async def test_typed_turns_share_the_session_of_a_call(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        session = await new_session(http)
        async with client(server, session) as caller:
            await say(http, session, "What are your opening hours on Saturday?")
            assert not caller.closed.done()
