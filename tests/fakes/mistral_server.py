"""Server that speaks the protocol of Mistral's realtime transcription, with faults.

A word is sent when the audio of the delay has come after it, or at a flush, which is answered with ``done``
and the text since the last one. Nothing but a session's settings is taken before the session is open, and
they cannot be changed after audio. Each loud stretch of ``WORD_MS`` is a word.
"""

import base64
import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from parley.evals.harness.services.cloud_recognisers import (
    KEY,
    WORD_MS,
    WORDS,
    CloudRecogniser,
    HeardWord,
    RecogniserFault,
)

DELAY_MS = 480
_PART_BYTES, _LOUD = 320, 300


class MistralServer(CloudRecogniser):
    """The server.

    Attributes:
        said: words that it writes.
        repeats: after the last of them it writes the first one again.
        sessions: settings of the sessions, in order.
        flushes: number of flushes of all sessions.
        holds_last: the last word of a voice comes with ``done`` alone.
        tells_all: ``done`` has the text of the whole session, as at its end.
    """

    path = "/v1/audio/transcriptions/realtime"
    said: tuple[str, ...] = WORDS
    repeats = True
    holds_last = tells_all = False

    def __init__(self, fault: RecogniserFault, cut_words: int) -> None:
        super().__init__(fault, cut_words)
        self.sessions: list[dict[str, object]] = []
        self.flushes = 0

    def knows(self, request: Request) -> bool:
        address = urlsplit(request.path)
        is_right = address.path == self.path and bool(parse_qs(address.query).get("model"))
        return is_right and request.headers.get("Authorization") == f"Bearer {KEY}"

    async def open(self, client: ServerConnection) -> None:
        session = {"request_id": "r", "model": "voxtral", "audio_format": {"encoding": "pcm_s16le"}}
        await client.send(json.dumps({"type": "session.created", "session": session}))
        message = await client.recv()
        assert isinstance(message, str)
        configured = json.loads(message)
        assert configured["type"] == "session.update", configured["type"]
        assert configured["session"]["audio_format"] == {"encoding": "pcm_s16le", "sample_rate": 16_000}
        self.sessions.append(configured["session"])
        await client.send(json.dumps({"type": "session.updated", "session": session}))

    async def limit(self, client: ServerConnection) -> None:
        error = {"message": {"detail": "Too many sessions"}, "code": 3505}
        await client.send(json.dumps({"type": "error", "error": error}))
        await client.close()

    def asks_for_finals(self, message: str) -> bool:
        raise AssertionError("every message is text")

    def results(self, words: list[HeardWord], *, are_final: bool) -> list[str]:
        raise AssertionError("there are no results")

    async def listen(self, client: ServerConnection) -> None:
        words: list[HeardWord] = []
        heard = loud = sent = settled = 0
        async for message in client:
            assert isinstance(message, str)
            if self.fault is RecogniserFault.LIMITED:
                await self.limit(client)
                return
            if self.fault is RecogniserFault.GARBAGE:
                await client.send("<html>502 Bad Gateway</html>")
            if self.fault in (RecogniserFault.HANGS, RecogniserFault.GARBAGE):
                continue
            fields = json.loads(message)
            is_flush = fields["type"] == "input_audio.flush"
            if is_flush:
                self.flushes += 1
            else:
                assert fields["type"] == "input_audio.append"
                pcm = base64.b64decode(fields["audio"], validate=True)
                assert len(pcm) <= 262_144
                for start in range(0, len(pcm), _PART_BYTES):
                    part = np.frombuffer(pcm[start : start + _PART_BYTES], "<i2").astype(float)
                    heard += 2 * part.size
                    loud += 2 * part.size if np.sqrt(np.mean(part**2)) > _LOUD else 0
                    if loud >= WORD_MS * 32 * (len(words) + 1) and (
                        self.repeats or len(words) < len(self.said)
                    ):
                        text = self.said[len(words) % len(self.said)]
                        words.append(HeardWord(text, heard // 32 - WORD_MS, heard // 32))
            while sent < len(words) and (is_flush or words[sent].end_ms + DELAY_MS <= heard // 32):
                # A space comes with the word after it.
                text = f" {words[sent].text}" if sent else words[sent].text
                sent += 1
                if not (self.holds_last and is_flush and sent == len(words)):
                    await client.send(json.dumps({"type": "transcription.text.delta", "text": text}))
            if self.fault is RecogniserFault.CUT and sent >= self.cut_words:
                client.transport.abort()
                return
            if is_flush and self.fault is not RecogniserFault.NO_FINALS:
                first, settled = (0 if self.tells_all else settled), sent
                text = " ".join(word.text for word in words[first:sent])
                done = {"type": "transcription.done", "model": "voxtral", "text": text, "usage": {}}
                await client.send(json.dumps({**done, "language": None}))
