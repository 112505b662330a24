"""Connection of the conversation process to the media process that has started it.

Input: messages about calls, pings, and the request to stop. Output: connections of calls that are handed
over, and the answers. Its owner runs ``run``, which returns at the end of the media process. This process
then ends too: the kernel kills it (``runtime.parent_death``). Owns a task for each call that goes on.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from loguru import logger

from parley.core.errors import AgentError, CapacityError, PeerError
from parley.protocols.facts import to_facts
from parley.protocols.kept_streams import HandedOver, PreparedClause, Serving, StreamEnd, state_facts
from parley.runtime.engine_hosting.codec import RECEIVE_BYTES, FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType, failed
from parley.session_store.faults import log_failure
from parley.transports.keeping.remote_stream import RemoteStream
from parley.transports.twilio.stream import PhoneSettings

# Numbers of calls that go on from an earlier process: those of new ones begin at 1.
FIRST_RESUMED = 1 << 30

Resume = Callable[[RemoteStream], Coroutine[Any, Any, None]]


class MediaLink:
    """Connection to the media process.

    Args:
        link: socket of the messages.
        door: socket over which descriptors are passed.
    """

    def __init__(self, link: socket.socket, door: socket.socket) -> None:
        self._link, self._door = link, door
        self._door.setblocking(False)
        self._frames = FrameReader()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._streams: dict[int, RemoteStream] = {}
        self._numbers = count(1)
        self._line: PhoneSettings | None = None
        self._resume: Resume | None = None
        self._resumed: set[asyncio.Task[None]] = set()
        self._on_stop: Callable[[], None] | None = None
        self._is_stopping = False

    async def load(self) -> Mapping[str, Any]:
        """Return the facts of the first message.

        Raises:
            PeerError: the media process has closed the link.
        """
        self._reader, self._writer = await asyncio.open_connection(sock=self._link)
        while data := await self._reader.read(RECEIVE_BYTES):
            for _, message in self._frames.feed(data):
                return message.facts
        raise PeerError("the media process has closed the link")

    def fail(self, error: AgentError) -> None:
        """Report that this process cannot start."""
        self._send(failed(0, error), 0)

    async def flush(self) -> None:
        """Wait until all messages are sent."""
        if self._writer is not None:
            with suppress(OSError):
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()

    def serve(
        self,
        *,
        line: PhoneSettings | None,
        on_stop: Callable[[], None],
    ) -> None:
        """Report that this process takes calls from here on.

        Args:
            line: sound of the bot on the line.
            on_stop: called when this process is to end in order; here, if that was asked while it loaded.
        """
        self._line, self._on_stop = line, on_stop
        self._send(EngineMessage(MessageType.DONE), 0)
        self._send(EngineMessage(MessageType.STATE, facts=state_facts(Serving())), 0)
        if self._is_stopping:
            on_stop()

    def prepare(self, clauses: Mapping[str, bytes]) -> None:
        """Give the media process clauses that it may say without this process: mu-law, by name."""
        for name, mu_law in clauses.items():
            facts = to_facts(PreparedClause(name))
            self._send(EngineMessage(MessageType.SPEAK, facts=facts, payload=mu_law), 0)

    def resume_with(self, resume: Resume) -> None:
        """Hold calls that go on from an earlier process with this function, each in a task of this object."""
        self._resume = resume

    async def close(self) -> None:
        """End the calls that go on."""
        for task in self._resumed:
            task.cancel()
        await asyncio.gather(*self._resumed, return_exceptions=True)

    async def run(self) -> None:
        """Handle messages until the media process closes the link."""
        assert self._reader is not None
        with suppress(ConnectionResetError):
            while data := await self._reader.read(RECEIVE_BYTES):
                for number, message in self._frames.feed(data):
                    self._take(number, message)

    def hand_over(
        self,
        descriptor: int,
        response: bytes,
        *,
        network: str,
        call_sid: str,
        call: Mapping[str, Any],
    ) -> RemoteStream:
        """Hand the connection of a call over; return its stream, which is still to be opened.

        Args:
            descriptor: of the connection; closed here in any case.
            response: answer to its handshake.
            network: name of its transport.
            call_sid: the only call whose stream it may be; empty for any.
            call: facts of the call.

        Raises:
            CapacityError: the media process takes no connection at the moment.
        """
        number = next(self._numbers)
        handed = HandedOver(os.getpid(), number, network, call_sid, dict(call), response.decode("latin-1"))
        stream = RemoteStream(number, self._line, send=self._send_about, forget=self._forget)
        self._streams[number] = stream
        try:
            socket.send_fds(self._door, [handed.encode()], [descriptor])
        except OSError as error:
            self._forget(number)
            raise CapacityError("the media process takes no call at the moment", limit=0) from error
        finally:
            os.close(descriptor)
        return stream

    def _take(self, number: int, message: EngineMessage) -> None:
        if message.type is MessageType.PING:
            self._send(EngineMessage(MessageType.PONG), 0)
        elif message.type is MessageType.STOP:
            self._is_stopping = True
            if self._on_stop is not None:
                self._on_stop()
        else:
            self._take_about(number, message)

    def _take_about(self, number: int, message: EngineMessage) -> None:
        stream = self._streams.get(number)
        is_new = stream is None and message.type is MessageType.OPEN and number >= FIRST_RESUMED
        if is_new:
            stream = RemoteStream(number, self._line, send=self._send_about, forget=self._forget)
            self._streams[number] = stream
        if stream is None:
            # It was released a moment ago. Where that overtook its connection, on the other socket, the media
            # process did not know it then.
            if message.type is MessageType.OPEN:
                end = to_facts(StreamEnd("closed", "the call is over"))
                self._send(EngineMessage(MessageType.RELEASE, facts=end), number)
            return
        try:
            stream.take(message)
        except PeerError as error:
            logger.error(f"a message of the media process cannot be read: {error}")
            return
        if is_new and self._resume is not None:
            task = asyncio.create_task(self._hold(self._resume, stream), name=f"phone.resumed.{number}")
            self._resumed.add(task)
            task.add_done_callback(self._resumed.discard)

    async def _hold(self, resume: Resume, stream: RemoteStream) -> None:
        try:
            await resume(stream)
        except Exception as error:
            # The boundary of one call; the others continue.
            log_failure("a phone call cannot go on", error)
        finally:
            # Without a conversation its caller would stay on a silent line.
            await stream.close()

    def _forget(self, number: int) -> None:
        self._streams.pop(number, None)

    def _send_about(self, message: EngineMessage, number: int) -> None:
        self._send(message, number)

    def _send(self, message: EngineMessage, number: int) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_frame(message, number))
