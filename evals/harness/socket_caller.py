"""Caller over a WebSocket, by OpenAI's realtime protocol: asks, and waits for the end of each answer.

Latency lasts from the last audible sample that was sent to the first audible one that arrived, both at their
place in real time. Sent audio is played into the socket sample by sample, and received audio is heard when
the audio before it has been. The client is plain ``websockets``, so that it costs little next to the server.
"""

import asyncio
import base64
import json
import time

import numpy as np
import soxr
from websockets.asyncio.client import ClientConnection, connect

from parley.evals.harness.voices import synthesised
from parley.models.tts.flite import FliteSettings, FliteTts

RATE_HZ = 24_000
PIECE_MS = 20
AUDIBLE = 500
ANSWER_S = 15.0
QUESTIONS = (
    "What are your opening hours on Saturday?",
    "What are your opening hours on Sunday?",
    "When do you open in the morning?",
)


def speech(text: str) -> bytes:
    """Return a question as 16-bit PCM, cut at its last audible sample."""
    pcm = synthesised(FliteTts(FliteSettings(voice="rms")), text)
    samples = soxr.resample(np.frombuffer(pcm, "<i2"), 16_000, RATE_HZ)
    audible = np.flatnonzero(np.abs(samples.astype(np.int32)) > AUDIBLE)
    return bytes(samples[: audible[-1] + 1].astype("<i2").tobytes())


class ItemPlayer:
    """Clock of a player that plays the pieces of an item one after the other, each when it has come. Pure.

    Attributes:
        largest_gap_s: longest time for which there was nothing to play inside of an item.
    """

    def __init__(self) -> None:
        self.largest_gap_s = 0.0
        self._item_id, self._until_s = "", 0.0

    def take(self, item_id: str, at_s: float, length_s: float) -> None:
        """Take a piece of an item that has come."""
        if item_id == self._item_id:
            self.largest_gap_s = max(self.largest_gap_s, at_s - self._until_s)
        self._item_id, self._until_s = item_id, max(at_s, self._until_s) + length_s


class SocketCaller:
    """A call.

    Attributes:
        latencies_ms: of every answer.
        unanswered: number of questions without an answer.
        errors: codes that the server sent.
        heard: transcripts by the server, of each question that it recognised.
        heard_by_turn: the same, of each question apart, after those of the time before the first.
        pieces: of the audio of each answer, arrival and length in seconds.
        player: plays the answers.
        audio: all speech of the bot, 16-bit PCM at ``RATE_HZ``.
        closed: code and reason of the server's close. None while there is none.

    Args:
        url: of the socket.
        turns: number of questions.
        address: local address of the caller. Empty leaves it to the system.
        token: sent as a bearer token. Empty for none.
    """

    def __init__(self, url: str, turns: int, *, address: str = "", token: str = "") -> None:
        self._url = url
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._turns = turns
        self._speech = b""
        self._said_s = 0.0
        self._heard_s: float | None = None
        self._playing_until_s = 0.0
        # The question has been said, and the answer is over.
        self._said, self._over = asyncio.Event(), asyncio.Event()
        self.latencies_ms: list[float] = []
        self.unanswered = 0
        self.errors: list[str] = []
        self.heard: list[str] = []
        self.heard_by_turn: list[list[str]] = [[]]
        self.pieces: list[list[tuple[float, float]]] = [[]]
        self.player = ItemPlayer()
        self.audio = bytearray()
        self.closed: tuple[int, str] | None = None

    async def call(self) -> None:
        """Ask all questions."""
        local = (self._address, 0) if self._address else None
        async with connect(
            self._url, max_size=None, local_addr=local, additional_headers=self._headers
        ) as socket:
            tasks = [asyncio.create_task(self._speak(socket)), asyncio.create_task(self._listen(socket))]
            try:
                await asyncio.sleep(1)
                for turn in range(self._turns):
                    await self._ask(QUESTIONS[turn % len(QUESTIONS)])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, question: str) -> None:
        self._heard_s = None
        self._said.clear()
        self.pieces.append([])
        self.heard_by_turn.append([])
        self._speech = await asyncio.to_thread(speech, question)
        try:
            async with asyncio.timeout(len(self._speech) / 2 / RATE_HZ + ANSWER_S):
                # The words of the next question would replace what has not been said of this one.
                await self._said.wait()
                # An answer that began in a pause of the question may have ended with it.
                self._over.clear()
                await self._over.wait()
        except TimeoutError:
            self.unanswered += 1
            return
        if self._heard_s is None:
            self.unanswered += 1
        else:
            self.latencies_ms.append((self._heard_s - self._said_s) * 1000)
        await asyncio.sleep(1)

    async def _speak(self, socket: ClientConnection) -> None:
        piece = RATE_HZ * PIECE_MS // 1000 * 2
        due_s = time.monotonic()
        while True:
            # A microphone sends a piece when it is complete: its samples were spoken before ``due_s``.
            due_s += PIECE_MS / 1000
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            data, self._speech = self._speech[:piece], self._speech[piece:]
            if data:
                self._said_s = due_s - (piece - len(data)) / 2 / RATE_HZ
                if not self._speech:
                    self._said.set()
            audio = base64.b64encode(data.ljust(piece, b"\0")).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

    async def _listen(self, socket: ClientConnection) -> None:
        try:
            await self._take(socket)
        finally:
            if close := socket.protocol.close_rcvd:
                self.closed = close.code, close.reason

    async def _take(self, socket: ClientConnection) -> None:
        async for text in socket:
            event = json.loads(text)
            match event["type"]:
                case "response.output_audio.delta":
                    self._hear(event["item_id"], base64.b64decode(event["delta"]))
                case "response.done" if event["response"]["status"] != "cancelled":
                    self._over.set()
                case "conversation.item.input_audio_transcription.completed":
                    self.heard.append(str(event["transcript"]))
                    self.heard_by_turn[-1].append(self.heard[-1])
                case "error":
                    self.errors.append(str(event["error"]["code"]))

    def _hear(self, item_id: str, pcm: bytes) -> None:
        self.audio += pcm
        self.pieces[-1].append((time.monotonic(), len(pcm) / 2 / RATE_HZ))
        self.player.take(item_id, time.monotonic(), len(pcm) / 2 / RATE_HZ)
        start_s = max(self._playing_until_s, time.monotonic())
        self._playing_until_s = start_s + len(pcm) / 2 / RATE_HZ
        audible = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > AUDIBLE)
        if self._heard_s is None and len(audible):
            self._heard_s = start_s + float(audible[0]) / RATE_HZ
