import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from parley.core.errors import PeerError
from parley.serving.gateway.http.event_stream import EventStream
from tests.virtual_time import run

SCOPE = {"type": "http"}


class Peer:
    """A reader of an answer.

    Args:
        takes: number of messages that it reads, then no more.
    """

    def __init__(self, takes: int = 1_000) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self._takes = takes

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if len(self.sent) == self._takes:
            await asyncio.Event().wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent if "body" in message)


class Chunks:
    """Chunks that record when their generator is closed."""

    def __init__(self, *chunks: str, error: Exception | None = None, wait_s: float = 0) -> None:
        self.begun = asyncio.Event()
        self.closed = False
        self._chunks = chunks
        self._error = error
        self._wait_s = wait_s

    async def __call__(self) -> AsyncGenerator[str, None]:
        self.begun.set()
        try:
            for chunk in self._chunks:
                yield chunk
            await asyncio.sleep(self._wait_s)
            if self._error is not None:
                raise self._error
        finally:
            # It is not cancelled again: it may take its time.
            await asyncio.sleep(0.01)
            self.closed = True


async def test_a_stream_is_read_to_its_end():
    chunks, peer = Chunks("one", "two"), Peer()
    await EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send)
    assert peer.sent[0]["status"] == 200
    assert dict(peer.sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert (peer.body, peer.sent[-1]["more_body"], chunks.closed) == (b"onetwo", False, True)


@pytest.mark.parametrize("already", [(), ("one",)], ids=["before the first chunk", "in the middle"])
async def test_a_reader_that_leaves_ends_the_stream_at_once(already: tuple[str, ...]):
    chunks, peer = Chunks(*already, wait_s=3_600), Peer()
    answering = asyncio.create_task(EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send))
    await chunks.begun.wait()
    peer.left.set()
    await asyncio.wait_for(answering, 2)
    assert chunks.closed


async def test_what_fails_before_the_first_chunk_is_a_status():
    chunks, peer = Chunks(error=PeerError("refused")), Peer()
    with pytest.raises(PeerError, match="refused"):
        await EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send)
    assert peer.sent == []
    assert chunks.closed


async def test_a_request_that_is_cancelled_closes_its_chunks():
    chunks, peer = Chunks("one", wait_s=3_600), Peer()
    answering = asyncio.create_task(EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send))
    await chunks.begun.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert chunks.closed


@pytest.mark.parametrize("takes", [0, 1, 2])
def test_a_reader_that_takes_nothing_in_is_not_waited_for(takes: int):
    async def scenario() -> None:
        chunks, peer = Chunks("one", "two", wait_s=3_600), Peer(takes)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send)
        assert loop.time() - began_s == pytest.approx(5, abs=0.1)
        assert chunks.closed
        assert len(peer.sent) == takes

    run(scenario())


def test_a_stream_with_nothing_to_say_goes_on():
    async def scenario() -> None:
        chunks, peer = Chunks("one", wait_s=3_600), Peer()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await EventStream(chunks(), stall_s=5)(SCOPE, peer.receive, peer.send)
        assert loop.time() - began_s >= 3_600
        assert peer.sent[-1]["more_body"] is False

    run(scenario())
