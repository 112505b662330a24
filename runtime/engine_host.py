"""Child's side of ``runtime.engine_process``: one blocking engine, many streams, one thread.

Inputs: frames on a socket that the parent handed over. Outputs: acknowledged audio, partial and final
results, answers, failures. One thread does all of it: the engines that run here hold the interpreter lock, or
take it back so often that more threads would only add hand-overs.

Work is taken in pieces of at most 100 ms of audio. A stream that waits for its final result or an answer is
served first, the others in turn. A caller who begins with a second of saved audio therefore delays another's
last word by 10 ms, not 100.

A ping is answered between two pieces of work, so a hung idle child is noticed before a caller needs it.
Acknowledged audio reports how long the engine worked on it, in wall-clock time and not in processor time,
because time taken by other processes is missing as well.

The parent bounds the queue of this process and alone ends it, by closing the socket. Signals that reach a
whole group (Ctrl-C, a service manager's SIGTERM) are ignored, so that the parent can finish in order. When
the parent dies the socket ends as well; on Linux the kernel then kills this process even inside a long call.
A failing stream ends alone; a stream that cannot start an utterance for lack of room fails with
``EngineBusyError``.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Protocol, cast

from parley.core.errors import AgentError, EngineBusyError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.protocols.facts import from_facts
from parley.runtime.engine_hosting.codec import RECEIVE_BYTES, FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import (
    AudioTaken,
    EngineMessage,
    EngineSpec,
    MessageType,
    failed,
    resolve,
)
from parley.runtime.parent_death import die_with_the_parent

WORK_PIECE_MS = 100
# Message types of an utterance stream, and types that do not wait for a result. Any other type is a question.
HEARD = frozenset({MessageType.START, MessageType.AUDIO, MessageType.FINISH, MessageType.DISCARD})
NOT_WAITED_FOR = HEARD - {MessageType.FINISH} | {MessageType.RELEASE}
# Facts and payload of an answer.
Answer = tuple[dict[str, Any], bytes]


class BlockingStream(Protocol):
    """Stream of one call to a blocking engine. Results are dataclasses that JSON can represent."""

    def start(self) -> None:
        """Begin an utterance. A retryable EngineError means that the engine has no room for it now."""
        ...

    def feed(self, pcm: bytes) -> object | None: ...

    def finish(self) -> object: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class RequestStream(Protocol):
    """Stream of one call to an engine that answers questions, in the order in which they were put."""

    def ask(self, question: EngineMessage) -> Answer: ...

    def close(self) -> None: ...


class BlockingEngine(Protocol):
    """Engine that can be hosted: takes 16-bit mono audio, returns results."""

    @property
    def rate_hz(self) -> int: ...

    def open_stream(self) -> BlockingStream: ...


class RequestEngine(Protocol):
    """Engine that can be hosted: takes questions, returns answers."""

    @property
    def rate_hz(self) -> int: ...

    def open_stream(self) -> RequestStream: ...


class OfferingEngine(Protocol):
    """Hosted engine without streams; it is reached by other means, which ``offers`` describes."""

    rate_hz: int
    offers: dict[str, Any]


HostedEngine = BlockingEngine | RequestEngine | OfferingEngine


def begin(stream: BlockingStream) -> None:
    """Start an utterance.

    Raises:
        EngineBusyError: the engine has no room now. It received no audio, so the utterance is not the cause.
        EngineError: the engine cannot start at all.
    """
    try:
        stream.start()
    except EngineError as error:
        if not error.retryable or isinstance(error, EngineBusyError):
            raise
        raise EngineBusyError(str(error), engine=error.engine) from error


class ParentGone(Exception):
    """Raised when the socket is no longer read by the parent; not an error of the engine whose result
    it was.
    """


class _HostedStream:
    """Stream with the commands that its parent sent."""

    def __init__(self, stream: BlockingStream | RequestStream) -> None:
        self.stream = stream
        self.commands: deque[EngineMessage] = deque()
        # Number of FINISH and question commands in the queue: the parent waits for their results.
        self.waited_for = 0


class EngineHost:
    """Server of one engine on one connected socket, until the peer closes it."""

    def __init__(self, connection: socket.socket, engine: HostedEngine, reader: FrameReader) -> None:
        self._connection = connection
        self._engine = engine
        self._reader = reader
        self._streams: dict[int, _HostedStream] = {}
        # Streams with commands, in the order in which they are served.
        self._turns: deque[int] = deque()
        self._piece_bytes = ms_to_samples(WORK_PIECE_MS, engine.rate_hz) * PCM_BYTES_PER_SAMPLE

    def serve(self) -> None:
        """Serve the parent until its socket closes.

        Raises:
            ParentGone: the parent closed the socket during a write.
            ConnectionResetError: the parent closed it with data unread.
        """
        facts = {"rate_hz": self._engine.rate_hz} | getattr(self._engine, "offers", {})
        self._send(EngineMessage(MessageType.DONE, facts=facts))
        while self._receive(wait=not self._turns):
            if self._turns:
                self._work()

    def _receive(self, *, wait: bool) -> bool:
        while select.select([self._connection], [], [], None if wait else 0)[0]:
            data = self._connection.recv(RECEIVE_BYTES)
            if not data:
                return False
            for stream, message in self._reader.feed(data):
                self._accept(stream, message)
            wait = False
        return True

    def _accept(self, number: int, message: EngineMessage) -> None:
        if message.type is MessageType.PING:
            self._send(EngineMessage(MessageType.PONG))
            return
        if message.type is MessageType.OPEN:
            self._streams[number] = _HostedStream(cast(RequestEngine, self._engine).open_stream())
            return
        hosted = self._streams.get(number)
        if hosted is None:
            # The stream failed a moment ago; the parent has been notified.
            return
        if not hosted.commands:
            self._turns.append(number)
        hosted.commands.append(message)
        hosted.waited_for += message.type not in NOT_WAITED_FOR

    def _work(self) -> None:
        number = next((n for n in self._turns if self._streams[n].waited_for), self._turns[0])
        self._turns.remove(number)
        hosted = self._streams[number]
        command = hosted.commands.popleft()
        hosted.waited_for -= command.type not in NOT_WAITED_FOR
        try:
            self._carry_out(number, hosted, command)
        except AgentError as error:
            self._fail(number, command, error)
            return
        except ParentGone:
            raise
        except Exception:
            # Boundary of this stream: a bug in an engine ends only the stream that met it.
            traceback.print_exc()
            unexpected = EngineError("the engine raised an unexpected error", engine="host")
            self._fail(number, command, unexpected)
            return
        if command.type is MessageType.RELEASE:
            del self._streams[number]
        elif hosted.commands:
            self._turns.append(number)

    def _carry_out(self, number: int, hosted: _HostedStream, command: EngineMessage) -> None:
        if command.type is MessageType.RELEASE:
            hosted.stream.close()
        elif command.type in HEARD:
            self._hear(number, hosted, cast(BlockingStream, hosted.stream), command)
        else:
            facts, payload = cast(RequestStream, hosted.stream).ask(command)
            self._send(EngineMessage(MessageType.DONE, command.number, facts, payload), number)

    def _hear(
        self, number: int, hosted: _HostedStream, stream: BlockingStream, command: EngineMessage
    ) -> None:
        began_s = time.perf_counter()
        match command.type:
            case MessageType.START:
                begin(stream)
            case MessageType.AUDIO:
                piece, rest = command.payload[: self._piece_bytes], command.payload[self._piece_bytes :]
                if rest:
                    hosted.commands.appendleft(replace(command, payload=rest))
                partial = stream.feed(piece)
                self._acknowledge(number, command, len(piece), _us_since(began_s))
                if partial is not None:
                    self._send(EngineMessage(MessageType.PIECE, command.number, _fields(partial)), number)
            case MessageType.FINISH:
                result = stream.finish()
                work_us = _us_since(began_s)
                self._send(EngineMessage(MessageType.DONE, command.number, _fields(result)), number)
                self._acknowledge(number, command, 0, work_us)
            case _:
                stream.discard()

    def _acknowledge(self, number: int, command: EngineMessage, size_bytes: int, work_us: int) -> None:
        taken = asdict(AudioTaken(size_bytes, work_us))
        self._send(EngineMessage(MessageType.TAKEN, command.number, taken), number)

    def _fail(self, number: int, command: EngineMessage, error: AgentError) -> None:
        hosted = self._streams.pop(number)
        self._send(failed(command.number, error), number)
        try:
            hosted.stream.close()
        except AgentError:
            # The stream failed already; the resources that it borrowed are probably lost.
            traceback.print_exc()

    def _send(self, message: EngineMessage, stream: int = 0) -> None:
        data = encode_frame(message, stream)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ParentGone from error


def _us_since(began_s: float) -> int:
    return round((time.perf_counter() - began_s) * 1e6)


def _fields(result: object) -> dict[str, Any]:
    if not is_dataclass(result) or isinstance(result, type):
        raise EngineError("a result is not a dataclass", engine="host", retryable=False)
    return asdict(result)


def load_engine(spec: EngineSpec) -> HostedEngine:
    """Create the engine that a ``load`` message names."""
    given = () if spec.settings is None else (spec.read_settings(),)
    engine: HostedEngine = resolve(spec.factory)(*given)
    return engine


def main(arguments: list[str]) -> int:
    """Run ``python -m runtime.engine_host NICE SOCKET_FD``; return the exit status."""
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    die_with_the_parent()
    os.nice(int(arguments[0]))
    with socket.socket(fileno=int(arguments[1])) as connection:
        try:
            return _host(connection)
        except (ParentGone, BrokenPipeError, ConnectionResetError):
            # The parent is gone, so no error can be reported.
            return 0


def _host(connection: socket.socket) -> int:
    reader = FrameReader()
    received: list[tuple[int, EngineMessage]] = []
    while not received:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            return 0
        received = reader.feed(data)
    try:
        engine = load_engine(from_facts(EngineSpec, received[0][1].facts))
    except AgentError as error:
        connection.sendall(encode_frame(failed(0, error)))
        return 1
    except Exception as error:
        # Boundary of the process: the parent must be notified of any exception of an engine's factory.
        traceback.print_exc()
        broken = EngineError(f"{type(error).__name__}: {error}", engine="host", retryable=False)
        connection.sendall(encode_frame(failed(0, broken)))
        return 1
    # The weights live as long as the process: keep the collector from scanning them.
    gc.freeze()
    EngineHost(connection, engine, reader).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
