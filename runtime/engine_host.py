"""The child's side of ``runtime.engine_process``: one blocking engine, many streams, one thread.

In: frames on a socket that the parent handed over. Out: acknowledged audio, partial and final results,
answers, failures. One thread does all of it: the engines that live here hold the interpreter lock, or take it
back so often that more threads would only add hand-overs. Work is taken in pieces of at most 100 ms of audio,
from the stream that waits for its final result or an answer first and from the others in turn, so that a
caller who begins with a second of saved audio delays another's last word by 10 ms, not 100.

A ping is answered between two pieces of work, so an idle child that stands is noticed before a caller needs
it. Acknowledged audio says how long the engine worked on it: on the clock and not in processor time, because
what other processes took is missing as well.

The parent bounds what is queued here, and it alone ends this process, by closing the socket: signals that
reach a whole group (Ctrl-C, a service manager's SIGTERM) are ignored, so that the parent can finish in order.
When the parent dies the socket ends as well; on Linux the kernel then kills this process even inside a long
call. A failing stream ends alone; one that cannot start an utterance for want of room fails with
``EngineBusyError``.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any, Protocol, cast

from core.errors import AgentError, ConfigError, EngineBusyError, EngineError
from core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples

# Payload bytes, kind, stream, utterance.
HEADER = struct.Struct("<IBII")
# Bytes of audio that were taken, and how long the engine worked on them in microseconds.
TAKEN = struct.Struct("<II")
MOST_WORK_US = 2**32 - 1
# Larger than any configuration; a larger frame is a bug, not audio.
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
RECEIVE_BYTES = 256 * 1024
WORK_PIECE_MS = 100
# Option of Linux's prctl: the signal that this process gets when its parent dies.
PR_SET_PDEATHSIG = 1


class Kind(IntEnum):
    """What a frame is. The first block goes to the child, the second to the parent."""

    CONFIGURE = 1
    OPEN = 2
    START = 3
    AUDIO = 4
    FINISH = 5
    DISCARD = 6
    CLOSE = 7
    ASK = 8
    PING = 9

    READY = 16
    TAKEN = 17
    PARTIAL = 18
    FINAL = 19
    FAILED = 20
    BROKEN = 21
    ANSWER = 22
    PONG = 23


# A result is due at once: these go before audio of other streams.
WAITED_FOR = frozenset({Kind.FINISH, Kind.ASK})


@dataclass(frozen=True, slots=True)
class WireFrame:
    """One message."""

    kind: Kind
    stream: int
    utterance: int
    payload: bytes


class BlockingStream(Protocol):
    """One caller of a blocking engine. Results are dataclasses that JSON can carry."""

    def start(self) -> None:
        """Begin an utterance. A retryable EngineError says that there is no room for it at this moment."""
        ...

    def feed(self, pcm: bytes) -> object | None: ...

    def finish(self) -> object: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class AskedStream(Protocol):
    """One caller of an engine that answers questions: bytes in, bytes out, in their order."""

    def ask(self, payload: bytes) -> bytes: ...

    def close(self) -> None: ...


class BlockingEngine(Protocol):
    """What can be hosted: 16-bit mono audio in, results out."""

    @property
    def rate_hz(self) -> int: ...

    def open_stream(self) -> BlockingStream: ...


class AskedEngine(Protocol):
    """What can be hosted: questions in, answers out."""

    @property
    def rate_hz(self) -> int: ...

    def open_stream(self) -> AskedStream: ...


def encode(kind: Kind, stream: int = 0, utterance: int = 0, payload: bytes = b"") -> bytes:
    """One message as bytes.

    Raises:
        ValueError: the payload is larger than a frame may be.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"{len(payload)} bytes do not fit in one frame")
    return HEADER.pack(len(payload), kind, stream, utterance) + payload


class FrameReader:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[WireFrame]:
        """Messages completed by ``data``, oldest first.

        Raises:
            ValueError: the peer does not speak this protocol.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            length, kind, stream, utterance = HEADER.unpack_from(self._buffer)
            if length > MAX_PAYLOAD_BYTES:
                raise ValueError(f"frame of {length} bytes")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield WireFrame(Kind(kind), stream, utterance, payload)


def begin(stream: BlockingStream) -> None:
    """Start an utterance.

    Raises:
        EngineBusyError: the engine has no room at this moment. It heard nothing, so the utterance is not to
            blame.
        EngineError: it cannot start at all.
    """
    try:
        stream.start()
    except EngineError as error:
        if not error.retryable or isinstance(error, EngineBusyError):
            raise
        raise EngineBusyError(str(error), engine=error.engine) from error


def error_payload(error: AgentError) -> bytes:
    """What the parent must know of an error: ``class``, ``message``, ``retryable``."""
    known = (ConfigError, EngineBusyError)
    facts = {
        "class": next((one.__name__ for one in known if isinstance(error, one)), EngineError.__name__),
        "message": str(error),
        "retryable": getattr(error, "retryable", False),
    }
    return json.dumps(facts).encode()


def resolve(target: str) -> Any:
    """The attribute named ``"package.module:Attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class ParentGone(Exception):
    """Nobody reads what is written to the socket any more. No error of the engine whose result it was."""


class _HostedStream:
    """A stream and what its parent asked of it."""

    def __init__(self, stream: BlockingStream | AskedStream) -> None:
        self.stream = stream
        self.commands: deque[WireFrame] = deque()
        # Finishes and questions among the commands: a result is waited for.
        self.waited_for = 0


class EngineHost:
    """Serves one engine on one connected socket until the peer closes it."""

    def __init__(
        self, connection: socket.socket, engine: BlockingEngine | AskedEngine, reader: FrameReader
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._reader = reader
        self._streams: dict[int, _HostedStream] = {}
        # Streams with commands, in the order in which they are served.
        self._turns: deque[int] = deque()
        self._piece_bytes = ms_to_samples(WORK_PIECE_MS, engine.rate_hz) * PCM_BYTES_PER_SAMPLE

    def serve(self) -> None:
        """Returns when the parent is gone.

        Raises:
            ParentGone: it went while something was written to it.
            ConnectionResetError: it went without reading everything.
        """
        self._send(Kind.READY, payload=json.dumps({"rate_hz": self._engine.rate_hz}).encode())
        while self._receive(wait=not self._turns):
            if self._turns:
                self._work()

    def _receive(self, *, wait: bool) -> bool:
        while select.select([self._connection], [], [], None if wait else 0)[0]:
            data = self._connection.recv(RECEIVE_BYTES)
            if not data:
                return False
            for frame in self._reader.feed(data):
                self._accept(frame)
            wait = False
        return True

    def _accept(self, frame: WireFrame) -> None:
        if frame.kind is Kind.PING:
            self._send(Kind.PONG)
            return
        if frame.kind is Kind.OPEN:
            self._streams[frame.stream] = _HostedStream(self._engine.open_stream())
            return
        hosted = self._streams.get(frame.stream)
        if hosted is None:
            # It failed a moment ago; the parent has been told.
            return
        if not hosted.commands:
            self._turns.append(frame.stream)
        hosted.commands.append(frame)
        hosted.waited_for += frame.kind in WAITED_FOR

    def _work(self) -> None:
        number = next((n for n in self._turns if self._streams[n].waited_for), self._turns[0])
        self._turns.remove(number)
        hosted = self._streams[number]
        command = hosted.commands.popleft()
        hosted.waited_for -= command.kind in WAITED_FOR
        try:
            self._carry_out(hosted, command)
        except AgentError as error:
            self._fail(command, error)
            return
        except ParentGone:
            raise
        except Exception:
            # The edge of this stream: a bug of an engine ends the stream that met it, not its neighbours.
            traceback.print_exc()
            self._fail(command, EngineError("the engine raised an unexpected error", engine="host"))
            return
        if command.kind is Kind.CLOSE:
            del self._streams[number]
        elif hosted.commands:
            self._turns.append(number)

    def _carry_out(self, hosted: _HostedStream, command: WireFrame) -> None:
        if command.kind is Kind.CLOSE:
            hosted.stream.close()
        elif command.kind is Kind.ASK:
            asked = cast(AskedStream, hosted.stream)
            self._send(Kind.ANSWER, command.stream, command.utterance, asked.ask(command.payload))
        else:
            self._hear(hosted, cast(BlockingStream, hosted.stream), command)

    def _hear(self, hosted: _HostedStream, stream: BlockingStream, command: WireFrame) -> None:
        match command.kind:
            case Kind.START:
                begin(stream)
            case Kind.AUDIO:
                self._decode(hosted, stream, command)
            case Kind.FINISH:
                began_s = time.perf_counter()
                result = stream.finish()
                work_us = _us_since(began_s)
                self._reply(Kind.FINAL, command, result)
                self._send(Kind.TAKEN, command.stream, command.utterance, TAKEN.pack(0, work_us))
            case Kind.DISCARD:
                stream.discard()
            case _:
                raise EngineError(f"unexpected {command.kind.name}", engine="host", retryable=False)

    def _decode(self, hosted: _HostedStream, stream: BlockingStream, command: WireFrame) -> None:
        piece, rest = command.payload[: self._piece_bytes], command.payload[self._piece_bytes :]
        if rest:
            hosted.commands.appendleft(WireFrame(Kind.AUDIO, command.stream, command.utterance, rest))
        began_s = time.perf_counter()
        partial = stream.feed(piece)
        taken = TAKEN.pack(len(piece), _us_since(began_s))
        self._send(Kind.TAKEN, command.stream, command.utterance, taken)
        if partial is not None:
            self._reply(Kind.PARTIAL, command, partial)

    def _reply(self, kind: Kind, command: WireFrame, result: object) -> None:
        if not is_dataclass(result) or isinstance(result, type):
            raise EngineError("a result is not a dataclass", engine="host", retryable=False)
        self._send(kind, command.stream, command.utterance, json.dumps(asdict(result)).encode())

    def _fail(self, command: WireFrame, error: AgentError) -> None:
        hosted = self._streams.pop(command.stream)
        self._send(Kind.FAILED, command.stream, command.utterance, error_payload(error))
        try:
            hosted.stream.close()
        except AgentError:
            # It failed already; what it borrowed is as good as lost.
            traceback.print_exc()

    def _send(self, kind: Kind, stream: int = 0, utterance: int = 0, payload: bytes = b"") -> None:
        data = encode(kind, stream, utterance, payload)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ParentGone from error


def _us_since(began_s: float) -> int:
    return min(round((time.perf_counter() - began_s) * 1e6), MOST_WORK_US)


def load_engine(configuration: bytes) -> BlockingEngine | AskedEngine:
    """The engine of a CONFIGURE frame: factory, and the type and JSON of its settings."""
    facts = json.loads(configuration)
    factory = resolve(facts["factory"])
    if facts["settings_type"] is None:
        engine: BlockingEngine | AskedEngine = factory()
        return engine
    engine = factory(resolve(facts["settings_type"]).model_validate_json(facts["settings"]))
    return engine


def main(arguments: list[str]) -> int:
    """``python -m runtime.engine_host SOCKET_FD NICE``."""
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    _die_with_the_parent()
    os.nice(int(arguments[1]))
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            return _host(connection)
        except (ParentGone, BrokenPipeError, ConnectionResetError):
            # Nobody is left to be told anything.
            return 0


def _host(connection: socket.socket) -> int:
    reader = FrameReader()
    frames: list[WireFrame] = []
    while not frames:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            return 0
        frames = list(reader.feed(data))
    try:
        engine = load_engine(frames[0].payload)
    except AgentError as error:
        connection.sendall(encode(Kind.BROKEN, payload=error_payload(error)))
        return 1
    except Exception as error:
        # The edge of the process: whatever else an engine's factory raises, the parent must learn of it.
        traceback.print_exc()
        broken = EngineError(f"{type(error).__name__}: {error}", engine="host", retryable=False)
        connection.sendall(encode(Kind.BROKEN, payload=error_payload(broken)))
        return 1
    # The weights live as long as the process: keep the collector from walking them.
    gc.freeze()
    EngineHost(connection, engine, reader).serve()
    return 0


def _die_with_the_parent() -> None:
    # A long call of the engine does not look at the socket. The kernel means the thread that started us: it
    # is the one of the parent's loop. A parent that died before this line is noticed at the socket.
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
