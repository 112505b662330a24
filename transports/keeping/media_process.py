"""Media process: the streams of phone calls, and the conversation process as a supervised child.

Inputs: connections that the child hands over, and its messages. Outputs: the child, started anew whenever it
dies or hangs, and every call that it held, which goes on with its successor. Owns the child and one task for
each stream from ``start`` to ``close``. Stopped: the child is asked to stop and drains its calls. It is
killed after ``stop_s``, and the streams are closed.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from loguru import logger

from parley.core.errors import PeerError
from parley.protocols.facts import from_facts
from parley.protocols.kept_streams import (
    MOST_DATAGRAM_BYTES,
    HandedOver,
    PreparedClause,
    Serving,
    read_state,
)
from parley.runtime.conversation_settings import ConversationProcessTuning
from parley.runtime.engine_hosting.child import ChildInheritance, ChildSettings, EngineChild
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.session_store.faults import log_failure
from parley.transports.keeping.handed_socket import HandedSocket
from parley.transports.keeping.kept_stream import KeptStream
from parley.transports.keeping.media_link import FIRST_RESUMED
from parley.transports.phone_protocol import StreamProtocol
from parley.transports.twilio.stream import PhoneSettings

# Audio of callers for a child that does not read: 100 calls for 5 s.
MOST_UNSENT_BYTES = 8_000_000
LOOK_S = 1.0


class MediaProcess:
    """Media process of a deployment.

    Args:
        command: command line of the conversation process.
        load: facts of its first message.
        environment: its environment variables.
        listener: listening socket, which each conversation process inherits.
        line: sound of the bot on a phone line.
        protocol_of: creates the protocol of a network.
        settings: of the conversation process.
        stop_s: longest time in which the child ends its calls.
    """

    def __init__(
        self,
        command: Sequence[str],
        load: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        listener: socket.socket,
        line: PhoneSettings | None,
        protocol_of: Callable[[str], StreamProtocol],
        settings: ConversationProcessTuning,
        stop_s: float,
    ) -> None:
        self._line, self._protocol_of = line, protocol_of
        self._settings, self._stop_s = settings, stop_s
        self._door, self._child_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)
        self._child = EngineChild(
            command,
            load,
            limits=ChildSettings(
                start_timeout_s=settings.start_timeout_s,
                hung_ms=settings.hung_ms,
                restart_min_ms=settings.restart_min_ms,
                restart_max_ms=settings.restart_max_ms,
            ),
            name="conversations",
            on_message=self._on_message,
            on_end=self._on_end,
            ends_for_good=True,
            inheritance=ChildInheritance(environment, (listener.fileno(), self._child_door.fileno())),
        )
        self._streams: dict[int, KeptStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._clauses: dict[str, bytes] = {}
        self._resumed_numbers = count(FIRST_RESUMED)

    async def start(self) -> None:
        """Start the first conversation process, and wait until it serves.

        Raises:
            AgentError: it does not start.
        """
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._take_handed)
        await self._child.start()

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping`` is set and the calls have ended, or for ``stop_s`` after it."""
        await self._watch(stopping)
        self._child.retire()
        self._child.send(EngineMessage(MessageType.STOP))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stop_s):
                await self._child.wait_ended()

    async def close(self) -> None:
        """End the child and all streams."""
        asyncio.get_running_loop().remove_reader(self._door.fileno())
        await self._child.close()
        for stream in list(self._streams.values()):
            stream.end("the server is stopping")
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._door.close()
        self._child_door.close()

    def kill(self) -> None:
        """End the child at once."""
        self._child.kill("stopped by a second signal")

    async def _watch(self, stopping: asyncio.Event) -> None:
        """Kill a child that computes and answers nothing, until ``stopping`` is set."""
        while not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stopping.wait()
            if self._child.is_ready:
                self._child.kill_if_silent(self._settings.busy_s)

    def _take_handed(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._door, MOST_DATAGRAM_BYTES, 1)
        except OSError:
            return
        if not descriptors:
            return
        connection = socket.socket(fileno=descriptors[0])
        # A received descriptor is inheritable, and uvloop closes none of these in the next child.
        connection.set_inheritable(False)
        try:
            handed = HandedOver.decode(data)
        except PeerError as error:
            logger.error(f"the conversation process hands a call over that cannot be read: {error}")
            connection.close()
            return
        if handed.pid != self._child.pid:
            # Its process has died since.
            connection.close()
            return
        stream = KeptStream(
            HandedSocket(connection, handed.response.encode("latin-1")),
            handed,
            line=self._line,
            protocol=self._protocol_of(handed.network),
            settings=self._settings,
            clauses=self._clauses,
            send=partial(self._send, handed.number),
        )
        self._streams[handed.number] = stream
        task = asyncio.create_task(self._hold(stream), name=f"kept_stream.{handed.number}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold(self, stream: KeptStream) -> None:
        try:
            await stream.run()
        except Exception as error:
            # The boundary of one call; the others continue.
            log_failure("a kept phone stream failed", error)
        finally:
            for number in [number for number, each in self._streams.items() if each is stream]:
                del self._streams[number]

    def _send(self, number: int, message: EngineMessage) -> None:
        if message.type is MessageType.AUDIO and self._child.unsent_bytes > MOST_UNSENT_BYTES:
            return
        self._child.send(message, number)

    def _on_message(self, number: int, message: EngineMessage) -> None:
        try:
            stream = self._streams.get(number)
            if number == 0:
                self._take_of_process(message)
            elif stream is not None:
                stream.take(message)
        except PeerError as error:
            logger.error(f"a message of the conversation process cannot be read: {error}")

    def _take_of_process(self, message: EngineMessage) -> None:
        if message.type is MessageType.SPEAK:
            self._clauses[from_facts(PreparedClause, message.facts).name] = message.payload
        elif message.type is MessageType.STATE and isinstance(read_state(message.facts), Serving):
            self._resume_all()

    def _resume_all(self) -> None:
        lost = [(number, stream) for number, stream in self._streams.items() if stream.is_lost]
        if lost:
            logger.warning(f"phone calls that go on in a new conversation process: {len(lost)}")
        for old, stream in lost:
            del self._streams[old]
            number = next(self._resumed_numbers)
            self._streams[number] = stream
            stream.resume(partial(self._send, number))

    def _on_end(self) -> None:
        for stream in list(self._streams.values()):
            stream.lose()
