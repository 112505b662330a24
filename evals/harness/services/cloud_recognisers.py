"""Servers that speak the WebSocket protocols of Soniox and Deepgram, with faults.

Audio is binary; each loud stretch of ``WORD_MS`` is a word. Words come as partials while a server listens,
and are final when the client asks for that: Soniox sends tokens with times in milliseconds and ``<fin>`` at
their end, Deepgram results with times in seconds and ``from_finalize``.
"""

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from http import HTTPStatus
from typing import TypeVar

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Recogniser = TypeVar("Recogniser", bound="CloudRecogniser")
KEY = "secret"
WORD_MS = 200
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
_WORD_BYTES = WORD_MS * 32
_LOUD, _PART_BYTES = 300, 320


class RecogniserFault(Enum):
    """Fault of a server."""

    NONE = auto()
    # Nothing listens at its address.
    REFUSED = auto()
    # Refuses the handshake with a status.
    UNAUTHORIZED = auto()
    TOO_MANY = auto()
    # Accepts the TCP connection and never answers the handshake.
    HANDSHAKE_HANGS = auto()
    # Takes audio and never answers.
    HANGS = auto()
    # Sends partial words and no final ones.
    NO_FINALS = auto()
    # Drops the connection after ``cut_words`` words.
    CUT = auto()
    # Answers with what is no JSON.
    GARBAGE = auto()
    # Answers with an error of the protocol.
    LIMITED = auto()
    # Closes every connection as soon as it is open.
    FLAPS = auto()


@dataclass(frozen=True)
class HeardWord:
    """Word of one connection, in milliseconds of its audio."""

    text: str
    start_ms: int
    end_ms: int
    is_final: bool = False


class CloudRecogniser(ABC):
    """Server of one protocol; a test may change the fault at any time.

    Args:
        fault: first fault.
        cut_words: number of words before a fault in the middle of a voice.

    Attributes:
        url: address of the server.
        connections: number of connections that were opened.
    """

    def __init__(self, fault: RecogniserFault, cut_words: int) -> None:
        self.fault, self.cut_words = fault, cut_words
        self.url = ""
        self.connections = 0

    # Path of its address.
    path = ""

    @abstractmethod
    def knows(self, request: Request) -> bool:
        """Return whether a client has the key."""

    @abstractmethod
    async def open(self, client: ServerConnection) -> None:
        """Read what a client sends before its audio."""

    @abstractmethod
    def asks_for_finals(self, message: str) -> bool:
        """Return whether a message asks for final words."""

    @abstractmethod
    def results(self, words: list[HeardWord], *, are_final: bool) -> list[str]:
        """Return the messages with words."""

    @abstractmethod
    async def limit(self, client: ServerConnection) -> None:
        """Refuse more work in the protocol's way."""

    async def hold(self, client: ServerConnection) -> None:
        """Serve one connection."""
        self.connections += 1
        if self.fault is RecogniserFault.FLAPS:
            await client.close()
            return
        try:
            await self.open(client)
            await self.listen(client)
        except ConnectionClosed:
            pass

    async def listen(self, client: ServerConnection) -> None:
        """Recognise the audio of one connection."""
        words: list[HeardWord] = []
        heard = loud = settled = 0
        async for message in client:
            if self.fault is RecogniserFault.LIMITED:
                await self.limit(client)
                return
            if self.fault is RecogniserFault.GARBAGE and isinstance(message, bytes):
                await client.send("<html>502 Bad Gateway</html>")
            if self.fault in (RecogniserFault.HANGS, RecogniserFault.GARBAGE):
                heard += len(message) if isinstance(message, bytes) else 0
                continue
            if isinstance(message, bytes):
                heard += len(message)
                # In parts of 10 ms: audio of before the connection comes in one message.
                for start in range(0, len(message), _PART_BYTES):
                    pcm = np.frombuffer(message[start : start + _PART_BYTES], dtype="<i2").astype(float)
                    loud += 2 * pcm.size if np.sqrt(np.mean(pcm**2)) > _LOUD else 0
                while loud >= _WORD_BYTES * (len(words) + 1):
                    end_ms = heard // 32
                    words.append(HeardWord(WORDS[len(words) % len(WORDS)], end_ms - WORD_MS, end_ms))
                    for each in self.results(words[settled:], are_final=False):
                        await client.send(each)
                if self.fault is RecogniserFault.CUT and len(words) >= self.cut_words:
                    client.transport.abort()
                    return
            elif self.asks_for_finals(message) and self.fault is not RecogniserFault.NO_FINALS:
                finals = [replace(word, is_final=True) for word in words[settled:]]
                settled = len(words)
                for each in self.results(finals, are_final=True):
                    await client.send(each)


class Soniox(CloudRecogniser):
    """Soniox' protocol."""

    def knows(self, request: Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {KEY}"

    async def open(self, client: ServerConnection) -> None:
        configured = json.loads(await client.recv())
        assert configured["audio_format"] == "pcm_s16le" and configured["sample_rate"] == 16_000

    def asks_for_finals(self, message: str) -> bool:
        return bool(message) and json.loads(message).get("type") == "finalize"

    def results(self, words: list[HeardWord], *, are_final: bool) -> list[str]:
        tokens: list[dict[str, object]] = [
            {
                "text": f" {word.text}" if number else word.text,
                "start_ms": word.start_ms,
                "end_ms": word.end_ms,
                "is_final": word.is_final,
                "confidence": 0.9,
            }
            for number, word in enumerate(words)
        ]
        if are_final:
            tokens.append({"text": "<fin>", "is_final": True})
        return [json.dumps({"tokens": tokens})]

    async def limit(self, client: ServerConnection) -> None:
        refusal = {"tokens": [], "error_code": 429, "error_message": "too many requests"}
        await client.send(json.dumps(refusal))


class Deepgram(CloudRecogniser):
    """Deepgram's protocol."""

    def knows(self, request: Request) -> bool:
        return request.headers.get("Authorization") == f"Token {KEY}"

    async def open(self, client: ServerConnection) -> None:
        assert client.request is not None and "encoding=linear16" in client.request.path

    def asks_for_finals(self, message: str) -> bool:
        return json.loads(message)["type"] == "Finalize"

    def results(self, words: list[HeardWord], *, are_final: bool) -> list[str]:
        spoken = [
            {
                "word": word.text,
                "punctuated_word": word.text,
                "start": word.start_ms / 1000,
                "end": word.end_ms / 1000,
                "confidence": 0.9,
            }
            for word in words
        ]
        text = " ".join(word.text for word in words)
        start_s = words[0].start_ms / 1000 if words else 0.0
        return [
            json.dumps(
                {
                    "type": "Results",
                    "channel_index": [0, 1],
                    "duration": words[-1].end_ms / 1000 - start_s if words else 0.0,
                    "start": start_s,
                    "is_final": are_final,
                    "speech_final": are_final,
                    "from_finalize": are_final,
                    "channel": {"alternatives": [{"transcript": text, "confidence": 0.9, "words": spoken}]},
                    "metadata": {
                        "request_id": "r",
                        "model_info": {"name": "nova", "version": "1", "arch": "nova"},
                        "model_uuid": "u",
                    },
                }
            )
        ]

    async def limit(self, client: ServerConnection) -> None:
        await client.close(1011, "NET-0001")


@asynccontextmanager
async def running_recogniser(
    kind: type[Recogniser], fault: RecogniserFault = RecogniserFault.NONE, *, cut_words: int = 0
) -> AsyncIterator[Recogniser]:
    """Run a server on a port of its own."""
    state, over = kind(fault, cut_words), asyncio.Event()

    async def check(client: ServerConnection, request: Request) -> Response | None:
        if state.fault is RecogniserFault.HANDSHAKE_HANGS:
            await over.wait()
        if state.fault is RecogniserFault.TOO_MANY:
            return client.respond(HTTPStatus.TOO_MANY_REQUESTS, "too many connections\n")
        if state.fault is RecogniserFault.UNAUTHORIZED or not state.knows(request):
            return client.respond(HTTPStatus.UNAUTHORIZED, "invalid api key\n")
        return None

    async with serve(
        state.hold, "127.0.0.1", 0, process_request=check, close_timeout=0.2, open_timeout=None
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        closed = fault is RecogniserFault.REFUSED
        state.url = f"ws://127.0.0.1:{_closed_port() if closed else port}{state.path}"
        try:
            yield state
        finally:
            over.set()


def _closed_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
