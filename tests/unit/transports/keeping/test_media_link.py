"""Connection of the conversation process to the media process: its beginning, and calls that are unknown."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parley.command.conversation_process import inherited_socket
from parley.protocols.facts import to_facts
from parley.protocols.kept_streams import StreamOpened
from parley.runtime.conversation_settings import ConversationProcessTuning
from parley.runtime.engine_hosting.codec import FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.transports.keeping.media_link import FIRST_RESUMED, MediaLink
from parley.transports.keeping.media_process import MediaProcess
from parley.transports.keeping.remote_stream import RemoteStream
from parley.transports.twilio.protocol import TwilioProtocol

# A conversation process that hands one connection over, whose client it is itself.
HANDS_OVER = """
import asyncio, os, socket, sys
from parley.transports.keeping.media_link import MediaLink
async def serve():
    door, link = (socket.socket(fileno=int(each)) for each in sys.argv[-2:])
    media = MediaLink(link, door)
    await media.load()
    media.serve(line=None, on_stop=lambda: os._exit(0))
    ours, theirs = socket.socketpair()
    media.hand_over(os.dup(theirs.fileno()), b"answer", network="twilio", call_sid="", call={})
    theirs.close()
    await media.run()
asyncio.run(serve())
"""


class Media:
    """Media process's side of a link."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._frames = FrameReader()
        self._messages: list[tuple[int, EngineMessage]] = []

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._link)

    def send(self, message: EngineMessage, number: int = 0) -> None:
        self._writer.write(encode_frame(message, number))

    async def received(self) -> tuple[int, EngineMessage]:
        while not self._messages:
            self._messages += self._frames.feed(await self._reader.read(65_536))
        return self._messages.pop(0)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[MediaLink, Media]]:
    ours, theirs = socket.socketpair()
    door, child_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link, media = MediaLink(theirs, child_door), Media(ours)
    await media.connect()
    media.send(EngineMessage(MessageType.LOAD))
    async with asyncio.timeout(10):
        await link.load()
        reading = asyncio.create_task(link.run())
        yield link, media
        await media.close()
        await reading
    door.close()
    child_door.close()


async def test_a_request_to_stop_that_comes_while_the_process_loads_is_carried_out_when_it_serves():
    async with linked() as (link, media):
        media.send(EngineMessage(MessageType.STOP))
        media.send(EngineMessage(MessageType.PING))
        assert (await media.received())[1].type is MessageType.PONG
        stopped = asyncio.Event()
        link.serve(line=None, on_stop=stopped.set)
        assert stopped.is_set()


async def test_a_stream_that_begins_after_its_call_was_released_is_closed():
    async with linked() as (_, media):
        opened = to_facts(StreamOpened("MZ1", "CA1", "AC1", {}, None))
        media.send(EngineMessage(MessageType.OPEN, facts=opened), 5)
        number, message = await media.received()
        assert (number, message.type) == (5, MessageType.RELEASE)


async def test_a_call_that_cannot_go_on_is_released():
    async def fail(_stream: RemoteStream) -> None:
        raise RuntimeError("the call cannot go on")

    async with linked() as (link, media):
        link.resume_with(fail)
        opened = to_facts(StreamOpened("MZ1", "CA1", "AC1", {}, {"call_sid": "CA1"}))
        media.send(EngineMessage(MessageType.OPEN, facts=opened), FIRST_RESUMED)
        number, message = await media.received()
        assert (number, message.type) == (FIRST_RESUMED, MessageType.RELEASE)


def test_children_of_the_conversation_process_inherit_none_of_its_sockets():
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    assert not inherited_socket(theirs.detach()).get_inheritable()
    ours.close()


async def test_the_next_conversation_process_inherits_no_stream_that_was_handed_over():
    listener = socket.socket()
    media = MediaProcess(
        (sys.executable, "-c", HANDS_OVER),
        {},
        environment=dict(os.environ),
        listener=listener,
        line=None,
        protocol_of=lambda _name: TwilioProtocol(),
        settings=ConversationProcessTuning(),
        stop_s=5,
    )
    before = inheritable()
    await media.start()
    async with asyncio.timeout(10):
        while "kept_stream.1" not in {task.get_name() for task in asyncio.all_tasks()}:
            await asyncio.sleep(0.01)
    assert inheritable() == before
    stopping = asyncio.Event()
    stopping.set()
    await media.run(stopping)
    await media.close()
    listener.close()


def inheritable() -> set[int]:
    """Return the descriptors of this process that a child may inherit."""
    found = set()
    for each in Path("/proc/self/fdinfo").iterdir():
        try:
            flags = next(line for line in each.read_text().splitlines() if line.startswith("flags:"))
        except OSError:
            # That of the folder itself.
            continue
        if not int(flags.split()[1], 8) & os.O_CLOEXEC:
            found.add(int(each.name))
    return found
