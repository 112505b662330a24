"""OpenAI's Realtime API on loopback: the WebSocket with the events of the released version, as documented.

Voice activity is by level, similar to the provider's ``server_vad``: an utterance ends after ``silence_ms``
of silence in the received audio. Each utterance gets a transcript and a response of the script. Audio of a
response is sent far faster than it is played, as the provider does.
"""

import asyncio
import base64
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from tests.peers.http_peer import HttpPeer

RATE_HZ = 24_000
_LOUD = 1_000
_PIECE_MS = 100
_SAMPLES = 8_000 * np.sin(2 * np.pi * 400 * np.arange(RATE_HZ * _PIECE_MS // 1000) / RATE_HZ)
_TONE = base64.b64encode(_SAMPLES.astype("<i2").tobytes()).decode()


class Failure(Enum):
    """Way in which the provider fails, at a moment and from then on."""

    CLOSES = "closes"
    ABORTS = "aborts"
    HANGS = "hangs"
    GARBAGE = "garbage"


class Moment(Enum):
    """Moment of a turn: its voice begins, its voice is over, half of its answer has been sent."""

    VOICE = "voice"
    VOICE_OVER = "voice over"
    ANSWER = "answer"


@dataclass(frozen=True)
class Answer:
    """The model's response to one utterance, or at the beginning.

    Attributes:
        heard: transcript of the caller's utterance; empty for the answer to a ``response.create``.
        text: words of the model, in the pieces in which their transcript is streamed.
        audio_ms: length of its audio, a tone.
        transcript_late_ms: delay of the caller's transcript after the end of the utterance.
        pieces_ms: time between two pieces of audio; 0 sends all at once.
        failed: the response fails at the provider.
        silent: nothing is sent at all.
    """

    heard: str = ""
    text: Sequence[str] = ()
    audio_ms: int = 1_000
    transcript_late_ms: int = 50
    pieces_ms: int = 0
    failed: bool = False
    silent: bool = False


@dataclass
class RealtimeServer(HttpPeer):
    """Server on a loopback port that speaks the protocol to any number of clients.

    Args:
        answers: answers to the utterances, in order; the last one is repeated.
        opening: answer to a ``response.create``.
        status: HTTP status in place of the socket.
        fails: way and moment in which the provider fails in the first turn; None when it works.
        hangs_at_handshake: no handshake is answered.
        close_on_voice: number (from 0) of the utterance at whose end the socket is closed.
        close_code: close code of the socket.

    Attributes:
        events: all events of a client, without its audio.
        session: newest session that the client requested.
        headers: headers of the client's request.
        model: model that the client requested.
        arrivals: times at which audio arrived, with the number of samples.
        samples: number of samples so far.
        connections: number of handshakes.
    """

    answers: Sequence[Answer] = ()
    opening: Answer = Answer(text=("Hello", " there."), audio_ms=600)
    silence_ms: int = 300
    status: int = 101
    fails: tuple[Failure, Moment] | None = None
    hangs_at_handshake: bool = False
    close_on_voice: int | None = None
    close_code: int = 1011
    events: list[dict[str, Any]] = field(default_factory=list)
    session: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    model: str = ""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    samples: int = 0
    connections: int = 0
    truncated_ms: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one type that a client sent."""
        return [event for event in self.events if event["type"] == kind]

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/realtime", self._serve)]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        self.model = request.query.get("model", "")
        self.connections += 1
        if self.hangs_at_handshake:
            await asyncio.Event().wait()
        if self.status != 101:
            error = {"type": "invalid_request_error", "code": "invalid_api_key", "message": "no such key"}
            return web.json_response({"error": error}, status=self.status)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async with asyncio.TaskGroup() as tasks:
            client = _Client(self, request, socket, tasks)
            await client.run()
            client.stop()
        return socket


class _Client:
    """The connection of one client."""

    def __init__(
        self,
        server: RealtimeServer,
        request: web.Request,
        socket: web.WebSocketResponse,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._server, self._request, self._socket, self._tasks = server, request, socket, tasks
        self._ids = itertools.count(1)
        self._voices = 0
        self._speaking = False
        self._quiet_ms = 0.0
        self._item = ""
        self._hangs = False
        self._response: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def send(self, kind: str, **fields: Any) -> None:
        if not self._socket.closed and not self._hangs:
            try:
                await self._socket.send_json({"type": kind, "event_id": self._id("event"), **fields})
            except ConnectionError:
                # The client has left; the loop that reads will notice.
                return

    async def fail_at(self, moment: Moment) -> None:
        """Fail if this is the moment for it."""
        failure, when = self._server.fails or (None, None)
        if failure is None or when is not moment or self._hangs:
            return
        if failure is Failure.GARBAGE:
            await self._socket.send_str("<html>502 Bad Gateway</html>")
        elif failure is Failure.ABORTS:
            transport = self._request.transport
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        elif failure is Failure.CLOSES:
            await self._socket.close(code=self._server.close_code)
        self._hangs = True

    async def run(self) -> None:
        await self.send(
            "session.created", session={"type": "realtime", "object": "realtime.session", "id": "sess_1"}
        )
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            event = json.loads(message.data)
            if event["type"] == "input_audio_buffer.append":
                await self._hear(base64.b64decode(event["audio"]))
                continue
            self._server.events.append(event)
            await self._obey(event)

    async def _obey(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "session.update":
            self._server.session = event["session"]
            await self.send("session.updated", session={"type": "realtime", "id": "sess_1"})
        elif kind == "conversation.item.create":
            await self.send("conversation.item.added", item=event["item"])
            await self.send("conversation.item.done", item=event["item"])
        elif kind == "response.create":
            self._respond(self._server.opening)
        elif kind == "conversation.item.truncate":
            self._server.truncated_ms.append(event["audio_end_ms"])
            fields = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
            await self.send("conversation.item.truncated", **fields)

    async def _hear(self, pcm: bytes) -> None:
        server = self._server
        audio = np.frombuffer(pcm, "<i2")
        server.samples += audio.size
        server.arrivals.append((time.monotonic(), audio.size))
        at_ms = server.samples * 1000 // RATE_HZ
        if audio.size and int(np.abs(audio.astype(np.int32)).max()) > _LOUD:
            self._quiet_ms = 0.0
            if not self._speaking:
                self._speaking = True
                self._item = self._id("item")
                if self._response is not None:
                    self._response.cancel()
                await self.send("input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=self._item)
                await self.fail_at(Moment.VOICE)
        elif self._speaking:
            self._quiet_ms += audio.size * 1000 / RATE_HZ
            if self._quiet_ms >= server.silence_ms:
                self._speaking = False
                await self._voice_over(at_ms)

    async def _voice_over(self, at_ms: int) -> None:
        server, item = self._server, self._item
        voice, self._voices = self._voices, self._voices + 1
        await self.send("input_audio_buffer.speech_stopped", audio_end_ms=at_ms, item_id=item)
        await self.send("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        await self.fail_at(Moment.VOICE_OVER)
        if server.close_on_voice == voice:
            await self._socket.close(code=server.close_code)
            return
        answer = server.answers[min(voice, len(server.answers) - 1)]
        audio = {"type": "input_audio", "transcript": None}
        added = {"id": item, "type": "message", "role": "user", "status": "completed", "content": [audio]}
        await self.send("conversation.item.added", item=added, previous_item_id=None)
        self._start(self._write_down(item, answer))
        if not answer.silent:
            self._respond(answer)

    async def _write_down(self, item: str, answer: Answer) -> None:
        await asyncio.sleep(answer.transcript_late_ms / 1000)
        kind = "conversation.item.input_audio_transcription"
        for word in answer.heard.split():
            await self.send(f"{kind}.delta", item_id=item, content_index=0, delta=word + " ")
        await self.send(f"{kind}.completed", item_id=item, content_index=0, transcript=answer.heard)

    def _respond(self, answer: Answer) -> None:
        self._response = self._start(self._say(answer))

    async def _say(self, answer: Answer) -> None:
        response, item = self._id("resp"), self._id("item")
        place = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        message = {"id": item, "type": "message", "role": "assistant", "content": []}
        status = "failed" if answer.failed else "completed"
        await self.send("response.created", response={"id": response, "status": "in_progress"})
        try:
            if not answer.failed:
                await self.send("conversation.item.added", item={**message, "status": "in_progress"})
                await self._stream(answer, place)
                await self.send("response.output_audio.done", **place)
                await self.send("conversation.item.done", item={**message, "status": "completed"})
        except asyncio.CancelledError:
            status = "cancelled"
            # Audio that was in flight when speech was detected.
            for _ in range(2):
                await self.send("response.output_audio.delta", delta=_TONE, **place)
            raise
        finally:
            details = {"error": {"message": "the model is overloaded"}} if answer.failed else None
            done = {"id": response, "status": status, "status_details": details, "output": []}
            await self.send("response.done", response=done)

    async def _stream(self, answer: Answer, place: dict[str, Any]) -> None:
        pieces = max(1, answer.audio_ms // _PIECE_MS)
        texts = list(answer.text)
        for number in range(pieces):
            due = len(answer.text) * (number + 1) // pieces
            while len(answer.text) - len(texts) < due:
                await self.send("response.output_audio_transcript.delta", delta=texts.pop(0), **place)
            await self.send("response.output_audio.delta", delta=_TONE, **place)
            await asyncio.sleep(answer.pieces_ms / 1000)
            if answer.heard and number + 1 == pieces // 2:
                await self.fail_at(Moment.ANSWER)
