"""Server that speaks the WebSocket protocol of Cartesia's voices, with faults.

A context collects transcripts until one with ``continue: false``; each is answered at once with ``chunk``,
``timestamps`` and ``flush_done`` messages, and the context with ``done``. ``cancel`` ends it. A wrong key, or
a request without a field that the service needs, is answered as Cartesia does. Each word is a tone.
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from parley.evals.harness.services.tone import tone

KEY = "secret"
WORD_MS = 250
CHUNK_MS = 50
# Generation is four times as fast as speech.
CHUNK_S = CHUNK_MS / 4 / 1000
NEEDED = ("model_id", "transcript", "voice", "output_format", "context_id", "continue", "language")


class CartesiaFault(Enum):
    """Fault of the server."""

    NONE = auto()
    # Refuses the handshake with a status.
    UNAUTHORIZED = auto()
    TOO_MANY = auto()
    # Accepts the TCP connection and never answers the handshake.
    HANDSHAKE_HANGS = auto()
    # Accepts requests and never answers.
    HANGS = auto()
    # Drops the connection after ``cut_ms`` of a context.
    CUT = auto()
    # Sends nothing more after ``cut_ms`` of a context.
    STALLS = auto()
    # Answers with what is no JSON, or a message without a context.
    GARBAGE = auto()
    STRANGE = auto()
    # Answers with an error message.
    LIMITED = auto()
    # Sends digital silence.
    SILENT = auto()
    # Sends ``done`` and no audio.
    EMPTY = auto()
    # Closes every connection as soon as it is open.
    FLAPS = auto()


@dataclass
class Cartesia:
    """State of the server; a test may change the fault at any time.

    Attributes:
        url: address of the server.
        fault: present fault.
        cut_ms: audio of a context before a fault in its middle.
        connections: number of connections that were opened.
        transcripts: texts that were asked for, in order.
        cancelled: contexts that were cancelled.
    """

    url: str = ""
    fault: CartesiaFault = CartesiaFault.NONE
    cut_ms: int = 0
    connections: int = 0
    transcripts: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    _clients: list[ServerConnection] = field(default_factory=list)

    def drop_all(self) -> None:
        """Drop every connection without a closing handshake."""
        for client in self._clients:
            client.transport.abort()

    async def hold(self, client: ServerConnection) -> None:
        """Serve one connection."""
        self.connections += 1
        self._clients.append(client)
        if self.fault is CartesiaFault.FLAPS:
            await client.close()
            return
        contexts: dict[str, _Context] = {}
        async with asyncio.TaskGroup() as tasks:
            try:
                async for message in client:
                    request = json.loads(message)
                    context_id = request["context_id"]
                    if request.get("cancel"):
                        self.cancelled.append(context_id)
                        if (context := contexts.pop(context_id, None)) is not None:
                            context.task.cancel()
                        continue
                    missing = [name for name in NEEDED if name not in request]
                    if missing:
                        await client.send(context_error(context_id, 400, f"missing {missing}"))
                        continue
                    if context_id not in contexts:
                        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
                        task = tasks.create_task(self._speak(client, context_id, queue))
                        contexts[context_id] = _Context(queue, task)
                    contexts[context_id].queue.put_nowait(request)
            except ConnectionClosed:
                pass
            for each in contexts.values():
                each.task.cancel()

    async def _speak(
        self, client: ServerConnection, context_id: str, requests: "asyncio.Queue[dict[str, Any]]"
    ) -> None:
        sent_ms = 0
        try:
            while True:
                request = await requests.get()
                if request["transcript"]:
                    self.transcripts.append(request["transcript"])
                    sent_ms = await self.say(client, context_id, request, sent_ms)
                if not request["continue"]:
                    break
            await client.send(
                json.dumps({"type": "done", "done": True, "status_code": 200, "context_id": context_id})
            )
        except ConnectionClosed:
            pass

    async def say(
        self, client: ServerConnection, context_id: str, request: dict[str, Any], from_ms: int
    ) -> int:
        """Answer one transcript; return the audio of its context so far."""
        rate_hz, words = request["output_format"]["sample_rate"], request["transcript"].split()
        whole_ms = len(words) * WORD_MS
        match self.fault:
            case CartesiaFault.HANGS:
                await asyncio.Event().wait()
            case CartesiaFault.GARBAGE:
                await client.send("<html>502 Bad Gateway</html>")
                await asyncio.Event().wait()
            case CartesiaFault.STRANGE:
                await client.send(json.dumps({"type": "chunk", "data": "AAAA"}))
                await asyncio.Event().wait()
            case CartesiaFault.LIMITED:
                await client.send(context_error(context_id, 429, "concurrency limit reached"))
                await asyncio.Event().wait()
            case CartesiaFault.EMPTY:
                return from_ms
        for start_ms in range(0, whole_ms, CHUNK_MS):
            if self.fault in (CartesiaFault.CUT, CartesiaFault.STALLS) and start_ms >= self.cut_ms:
                if self.fault is CartesiaFault.CUT:
                    client.transport.abort()
                await asyncio.Event().wait()
            if start_ms % WORD_MS == 0:
                number = start_ms // WORD_MS
                times = {
                    "words": [words[number]],
                    "start": [(from_ms + start_ms) / 1000],
                    "end": [(from_ms + start_ms + WORD_MS) / 1000],
                }
                await client.send(context_message("timestamps", context_id, word_timestamps=times))
            pcm = tone(start_ms, CHUNK_MS, rate_hz)
            if self.fault is CartesiaFault.SILENT:
                pcm = bytes(len(pcm))
            await client.send(context_message("chunk", context_id, data=encoded(pcm), step_time=1.0))
            await asyncio.sleep(CHUNK_S)
        await client.send(context_message("flush_done", context_id, flush_id=1, flush_done=True))
        return from_ms + whole_ms


@dataclass
class _Context:
    queue: "asyncio.Queue[dict[str, Any]]"
    task: asyncio.Task[None]


def encoded(pcm: bytes) -> str:
    """Return audio as it is written in a message."""
    return base64.b64encode(pcm).decode()


def context_message(kind: str, context_id: str, **more: Any) -> str:
    """Return a message about a context."""
    return json.dumps({"type": kind, "done": False, "status_code": 206, "context_id": context_id, **more})


def context_error(context_id: str, status: int, text: str) -> str:
    """Return the error message of a context."""
    return json.dumps(
        {
            "type": "error",
            "done": True,
            "status_code": status,
            "title": "Error",
            "message": text,
            "context_id": context_id,
        }
    )


@asynccontextmanager
async def running_cartesia(
    fault: CartesiaFault = CartesiaFault.NONE, *, cut_ms: int = 0
) -> AsyncIterator[Cartesia]:
    """Run the server on a port of its own."""
    state = Cartesia(fault=fault, cut_ms=cut_ms)
    over = asyncio.Event()

    async def check(_client: ServerConnection, request: Request) -> Response | None:
        if state.fault is CartesiaFault.HANDSHAKE_HANGS:
            await over.wait()
        if state.fault is CartesiaFault.TOO_MANY:
            return _client.respond(HTTPStatus.TOO_MANY_REQUESTS, "too many connections\n")
        known = request.headers.get("X-API-Key") == KEY and "Cartesia-Version" in request.headers
        if state.fault is CartesiaFault.UNAUTHORIZED or not known:
            return _client.respond(HTTPStatus.UNAUTHORIZED, "invalid api key\n")
        return None

    async with serve(
        state.hold, "127.0.0.1", 0, process_request=check, close_timeout=0.2, open_timeout=None
    ) as server:
        state.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/tts/websocket"
        try:
            yield state
        finally:
            over.set()


def closed_port_url() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"ws://127.0.0.1:{taken.getsockname()[1]}/tts/websocket"
