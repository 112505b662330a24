"""OpenAI's Realtime API on loopback, which fails on command and speaks the words of ``sounds``.

Utterances are found by level, as the provider's ``server_vad`` does; each has the announced words as its
transcript, and the next reply as its answer. Audio comes four times as fast as it is spoken. The events are
those of the released protocol that Pipecat's client reads.
"""

import asyncio
import base64
import itertools
import json
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request

from parley.evals.failover.breakable import HTML, SocketService
from parley.evals.failover.faults import Fault
from parley.evals.failover.replies import GREETING, reply_text
from parley.evals.failover.sounds import WORD_MS, sound_of

RATE_HZ = 24_000
SILENCE_MS = 400
LOUD = 300
THOUGHT_S = 0.3
# Transcripts come this long after the end of an utterance.
TRANSCRIBED_S = 0.2


class Realtime(SocketService):
    """The service. It knows the caller's next words."""

    path = "/v1/realtime"

    def __init__(self) -> None:
        super().__init__()
        self.words = ""

    def expect(self, words: str) -> None:
        """Expect the words of the caller's next question."""
        self.words = words

    def admits(self, request: Request) -> bool:
        return request.headers.get("Authorization", "").startswith("Bearer ")

    async def refuse(self, client: ServerConnection) -> None:
        error = {"type": "server_error", "code": "rate_limit_exceeded", "message": "too many requests"}
        await client.send(json.dumps({"type": "error", "event_id": "event_0", "error": error}))

    async def serve_client(self, client: ServerConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            conversation = _Conversation(self, client, tasks)
            try:
                with suppress(ConnectionClosed):
                    await conversation.hold()
            finally:
                conversation.stop()


class _Conversation:
    """Conversation of one connection."""

    def __init__(self, service: Realtime, client: ServerConnection, tasks: asyncio.TaskGroup) -> None:
        self._service, self._client, self._tasks = service, client, tasks
        self._ids = itertools.count(1)
        self._replies = itertools.count()
        self._running: set[asyncio.Task[None]] = set()
        self._response: asyncio.Task[None] | None = None
        self._is_voice = False
        self._quiet_ms = self._heard_ms = 0.0
        self._item = ""

    def stop(self) -> None:
        """End its tasks."""
        for task in self._running:
            task.cancel()

    async def hold(self) -> None:
        """Serve the client until it leaves."""
        await self._send("session.created", session={"type": "realtime", "id": "sess_1"})
        async for message in self._client:
            event = json.loads(message)
            kind = event["type"]
            if kind == "input_audio_buffer.append":
                await self._hear(base64.b64decode(event["audio"]))
            elif kind == "session.update":
                await self._send("session.updated", session={"type": "realtime", "id": "sess_1"})
            elif kind == "conversation.item.create":
                await self._send("conversation.item.added", item=event["item"])
                await self._send("conversation.item.done", item=event["item"])
            elif kind == "response.create":
                self._respond(GREETING)
            elif kind == "conversation.item.truncate":
                names = ("item_id", "content_index", "audio_end_ms")
                await self._send("conversation.item.truncated", **{name: event[name] for name in names})

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._service.hold_back()
        await self._client.send(json.dumps({"type": kind, "event_id": self._id("event"), **fields}))

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            # The loop that reads notices a client that has left.
            with suppress(ConnectionClosed):
                await work

        task = self._tasks.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _hear(self, pcm: bytes) -> None:
        if self._service.present is Fault.GARBAGE:
            await self._client.send(HTML)
        if self._service.present is not None:
            return
        audio = np.frombuffer(pcm, "<i2").astype(float)
        length_ms = 1000 * audio.size / RATE_HZ
        self._heard_ms += length_ms
        if audio.size and np.sqrt(np.mean(audio**2)) > LOUD:
            self._quiet_ms = 0.0
            if not self._is_voice:
                self._is_voice, self._item = True, self._id("item")
                if self._response is not None:
                    self._response.cancel()
                await self._mark("speech_started", "audio_start_ms")
        elif self._is_voice:
            self._quiet_ms += length_ms
            if self._quiet_ms >= SILENCE_MS:
                self._is_voice = False
                await self._end_utterance()

    async def _mark(self, name: str, position: str) -> None:
        await self._send(
            f"input_audio_buffer.{name}", item_id=self._item, **{position: round(self._heard_ms)}
        )

    async def _end_utterance(self) -> None:
        item = self._item
        await self._mark("speech_stopped", "audio_end_ms")
        await self._send("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        content = [{"type": "input_audio", "transcript": None}]
        added = {"id": item, "type": "message", "role": "user", "status": "completed", "content": content}
        await self._send("conversation.item.added", item=added, previous_item_id=None)
        self._start(self._transcribe(item, self._service.words))
        self._respond(reply_text(next(self._replies)))

    async def _transcribe(self, item: str, words: str) -> None:
        await asyncio.sleep(TRANSCRIBED_S)
        kind = "conversation.item.input_audio_transcription.completed"
        await self._send(kind, item_id=item, content_index=0, transcript=words)

    def _respond(self, text: str) -> None:
        self._response = self._start(self._say(text))

    async def _say(self, text: str) -> None:
        response, item = self._id("resp"), self._id("item")
        place = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        message = {"id": item, "type": "message", "role": "assistant", "content": []}
        status = "completed"
        await self._send("response.created", response={"id": response, "status": "in_progress"})
        try:
            await asyncio.sleep(THOUGHT_S)
            await self._send("conversation.item.added", item={**message, "status": "in_progress"})
            for number, word in enumerate(text.split()):
                spoken = word if number == 0 else f" {word}"
                await self._send("response.output_audio_transcript.delta", delta=spoken, **place)
                sound = base64.b64encode(sound_of(word, RATE_HZ)).decode()
                await self._send("response.output_audio.delta", delta=sound, **place)
                await asyncio.sleep(WORD_MS / 4 / 1000)
            await self._send("response.output_audio.done", **place)
            await self._send("conversation.item.done", item={**message, "status": "completed"})
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            done: dict[str, Any] = {"id": response, "status": status, "status_details": None, "output": []}
            await self._send("response.done", response=done)
