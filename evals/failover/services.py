"""Recogniser, language model, voice and realtime service on loopback, each of which fails on command.

``python -m parley.evals.failover.services soniox`` serves Soniox' protocol (or ``deepgram``), OpenAI's chat
completions, Cartesia's voice and OpenAI's Realtime API on four ports, in a process of its own. It prints
their addresses, and obeys lines of JSON on standard input, each of which it answers with a line:
``{"question": [["what", 240], ...]}`` announces the words that the caller is about to say, with the end of
each after the first sound; ``{"stage": "voice", "fault": "hangs"}`` makes a service fail from now on, and
``{"stage": "voice"}`` ends that. The recogniser finds the announced words in the caller's audio by its sound
alone.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import numpy as np
from aiohttp import web
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from parley.evals.failover.breakable import HTML, Breakable, SocketService
from parley.evals.failover.faults import Fault, Stage
from parley.evals.failover.realtime_service import Realtime
from parley.evals.failover.replies import reply_of
from parley.evals.failover.sounds import WORD_MS, sound_of
from parley.evals.harness.launcher import free_port
from parley.evals.harness.services.cartesia import Cartesia, context_error, context_message, encoded
from parley.evals.harness.services.chat_completions import send_delta
from parley.evals.harness.services.cloud_recognisers import (
    Deepgram,
    HeardWord,
    RecogniserFault,
    Soniox,
)

LOUD, PART_MS = 300, 10
PART_BYTES = PART_MS * 32
# From the question to the first word, and from word to word.
THOUGHT_S, PIECE_S = 0.2, 0.1
# Generation is four times as fast as speech, in pieces of half a word.
PIECE_OF_WORD_MS = WORD_MS // 2
KINDS: Mapping[str, type[Soniox | Deepgram]] = {"soniox": Soniox, "deepgram": Deepgram}


class Recogniser(SocketService):
    """Recogniser that knows the caller's next words.

    Args:
        kind: protocol.
    """

    def __init__(self, kind: type[Soniox | Deepgram]) -> None:
        super().__init__()
        self._protocol = kind(RecogniserFault.NONE, 0)
        self.path = self._protocol.path
        # Words of the present question with the end of each after its first sound, and the question's number.
        self._words: Sequence[tuple[str, int]] = ()
        self._number = 0

    def expect(self, words: Sequence[tuple[str, int]]) -> None:
        """Expect the words of the caller's next question."""
        self._words, self._number = words, self._number + 1

    def admits(self, request: Request) -> bool:
        return self._protocol.knows(request)

    async def refuse(self, client: ServerConnection) -> None:
        await self._protocol.limit(client)

    async def serve_client(self, client: ServerConnection) -> None:
        protocol = self._protocol
        await protocol.open(client)
        heard, number, began_ms = 0, self._number, None
        words: list[HeardWord] = []
        settled = 0
        async for message in client:
            if self.present is Fault.GARBAGE and isinstance(message, bytes):
                await client.send(HTML)
            if number != self._number:
                number, began_ms, words, settled = self._number, None, [], 0
            if isinstance(message, bytes):
                # In parts of 10 ms: audio of before the connection comes in one message.
                for start in range(0, len(message), PART_BYTES):
                    pcm = np.frombuffer(message[start : start + PART_BYTES], dtype="<i2").astype(float)
                    heard += 2 * pcm.size
                    if began_ms is None and np.sqrt(np.mean(pcm**2)) > LOUD:
                        began_ms = heard // 32 - PART_MS
                known = len(words)
                if began_ms is not None:
                    words += _ended(self._words[known:], began_ms, heard // 32)
                if len(words) > known and self.present is None:
                    for each in protocol.results(words[settled:], are_final=False):
                        await client.send(each)
            elif protocol.asks_for_finals(message) and self.present is None:
                finals = [HeardWord(each.text, each.start_ms, each.end_ms, True) for each in words[settled:]]
                settled = len(words)
                for each in protocol.results(finals, are_final=True):
                    await client.send(each)


def _ended(words: Sequence[tuple[str, int]], began_ms: int, now_ms: int) -> list[HeardWord]:
    """Return the words that have ended by now, in milliseconds of a connection."""
    return [
        HeardWord(text, began_ms + end_ms - 200, began_ms + end_ms)
        for text, end_ms in words
        if began_ms + end_ms <= now_ms
    ]


class Voice(SocketService):
    """Cartesia's voice, which speaks the words of ``sounds``."""

    path = "/tts/websocket"

    def __init__(self) -> None:
        super().__init__()
        self._protocol = _SoundingCartesia(self)

    def admits(self, request: Request) -> bool:
        return "X-API-Key" in request.headers

    async def refuse(self, client: ServerConnection) -> None:
        for context_id in self._protocol.contexts_of(client):
            await client.send(context_error(context_id, 429, "concurrency limit reached"))

    async def serve_client(self, client: ServerConnection) -> None:
        await self._protocol.hold(client)


class _SoundingCartesia(Cartesia):
    """Cartesia's protocol over the words of ``sounds``, with the faults of a ``Voice``."""

    def __init__(self, voice: Voice) -> None:
        super().__init__()
        self._voice = voice
        self._speaking: dict[ServerConnection, set[str]] = {}

    def contexts_of(self, client: ServerConnection) -> list[str]:
        """Return the contexts that a client waits for."""
        return sorted(self._speaking.get(client, ()))

    async def say(
        self, client: ServerConnection, context_id: str, request: dict[str, Any], from_ms: int
    ) -> int:
        """Answer one transcript; return the audio of its context so far."""
        speaking = self._speaking.setdefault(client, set())
        speaking.add(context_id)
        try:
            return await self._speak_words(client, context_id, request, from_ms)
        finally:
            speaking.discard(context_id)
            if not speaking:
                self._speaking.pop(client, None)

    async def _speak_words(
        self, client: ServerConnection, context_id: str, request: dict[str, Any], from_ms: int
    ) -> int:
        rate_hz, words = request["output_format"]["sample_rate"], request["transcript"].split()
        if self._voice.present is Fault.REFUSES:
            await client.send(context_error(context_id, 429, "concurrency limit reached"))
        elif self._voice.present is Fault.GARBAGE:
            await client.send(HTML)
        for place, word in enumerate(words):
            sound, start_ms = sound_of(word, rate_hz), from_ms + place * WORD_MS
            times = {"words": [word], "start": [start_ms / 1000], "end": [(start_ms + WORD_MS) / 1000]}
            half = len(sound) // 4 * 2
            await self._voice.hold_back()
            await client.send(context_message("timestamps", context_id, word_timestamps=times))
            for piece in (sound[:half], sound[half:]):
                await self._voice.hold_back()
                await client.send(context_message("chunk", context_id, data=encoded(piece), step_time=1.0))
                await asyncio.sleep(PIECE_OF_WORD_MS / 4 / 1000)
        await self._voice.hold_back()
        await client.send(context_message("flush_done", context_id, flush_id=1, flush_done=True))
        return from_ms + len(words) * WORD_MS


class Model(Breakable):
    """Language model: the first reply of which nothing has been said (``replies``)."""

    def __init__(self) -> None:
        super().__init__()
        self._runner: web.AppRunner | None = None
        self._streams: set[web.StreamResponse] = set()
        self._transports: set[asyncio.Transport] = set()
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address, up to and including ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def drop_all(self) -> None:
        for transport in tuple(self._transports):
            transport.abort()

    async def listen_again(self) -> None:
        if self._runner is None:
            app = web.Application()
            app.router.add_post("/v1/chat/completions", self._complete)
            self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop_listening(self) -> None:
        self.drop_all()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def announce(self) -> None:
        for response in tuple(self._streams):
            with suppress(ConnectionResetError):
                if self.present is Fault.REFUSES:
                    error = {"error": {"message": "overloaded", "type": "server_error", "code": None}}
                    await response.write(f"data: {json.dumps(error)}\n\n".encode())
                elif self.present is Fault.GARBAGE:
                    await response.write(f"data: {HTML}\n\n".encode())

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            body = await request.json()
            if self.present is Fault.REFUSES:
                error = {"error": {"message": "refused", "type": "server_error", "param": None, "code": None}}
                return web.json_response(error, status=503)
            if self.present is Fault.GARBAGE:
                return web.Response(text=HTML, content_type="text/html")
            await self.hold_back()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            # The server closes the request of an answer that is not needed any more.
            with suppress(ConnectionResetError):
                await response.prepare(request)
                await self._stream(response, reply_of(body["messages"]))
            return response
        finally:
            self._transports.discard(transport)

    async def _stream(self, response: web.StreamResponse, text: str) -> None:
        self._streams.add(response)
        try:
            await asyncio.sleep(THOUGHT_S)
            for piece in text.split():
                await self.hold_back()
                await send_delta(response, {"content": f"{piece} "})
                await asyncio.sleep(PIECE_S)
            await self.hold_back()
            await send_delta(response, {}, finish="stop")
            await response.write(b"data: [DONE]\n\n")
        finally:
            self._streams.discard(response)


@asynccontextmanager
async def _serving(service: Breakable) -> AsyncIterator[None]:
    await service.listen_again()
    try:
        yield
    finally:
        service.drop_all()
        await service.stop_listening()


async def run(kind: str) -> None:
    """Serve until standard input ends."""
    recogniser, model, voice = Recogniser(KINDS[kind]), Model(), Voice()
    realtime = Realtime()
    services: dict[Stage, Breakable] = {
        Stage.RECOGNISER: recogniser,
        Stage.MODEL: model,
        Stage.VOICE: voice,
        Stage.REALTIME: realtime,
    }
    async with AsyncExitStack() as stack:
        for service in services.values():
            await stack.enter_async_context(_serving(service))
        urls = {
            Stage.RECOGNISER: recogniser.url,
            Stage.MODEL: model.url,
            Stage.VOICE: voice.url,
            Stage.REALTIME: realtime.url,
        }
        print(json.dumps(urls), flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        async for line in lines:
            order = json.loads(line)
            if "question" in order:
                words = [(str(word), int(end_ms)) for word, end_ms in order["question"]]
                recogniser.expect(words)
                realtime.expect(" ".join(word for word, _ in words))
            else:
                fault = order.get("fault")
                await services[Stage(order["stage"])].fail(None if fault is None else Fault(fault))
            print(json.dumps({"done": True}), flush=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Serve the services of measured calls.")
    parser.add_argument("kind", choices=sorted(KINDS))
    asyncio.run(run(parser.parse_args().kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
