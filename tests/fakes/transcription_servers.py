"""Servers of OpenAI's transcription endpoint, with faults: each loud stretch of ``WORD_MS`` is a word."""

import asyncio
import io
import json
import wave
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
from aiohttp import web

from parley.evals.harness.services.cloud_recognisers import KEY, WORD_MS, WORDS
from tests.peers.http_peer import HttpPeer

_LOUD = 300


class TranscriptionFault(Enum):
    """Fault of a server."""

    NONE = auto()
    # Refuses the request with a status.
    UNAUTHORIZED = auto()
    TOO_MANY = auto()
    BROKEN = auto()
    # Takes the audio and never answers.
    HANGS = auto()
    # Drops the connection in place of an answer, and in the middle of one.
    DROPS = auto()
    CUT = auto()
    # Answers with a page, with other JSON, with a list of stretches that is none, and without an end.
    GARBAGE = auto()
    OTHER_JSON = auto()
    OTHER_STRETCHES = auto()
    ENDLESS = auto()
    # Answers with JSON that is nested too deeply, as an error too.
    DEEP = auto()
    DEEP_ERROR = auto()


@dataclass
class TranscriptionServer(HttpPeer):
    """Groq's endpoint, with Whisper's report of stretches; a test may change the fault at any time.

    Attributes:
        fault: present fault.
        delay_s: time to each answer, in order; the last one holds for all that follow.
        said: words that it writes, in order over all requests; after the last one the first.
        times: JSON of the beginning and of the end of each stretch, in place of the real ones.
        no_speech: Whisper's probability that there is no speech, and its mean log probability.
        requests: fields of the requests, without the audio.
        heard_ms: length of the audio of each.
        left: number of requests that the client has given up.
    """

    fault: TranscriptionFault = TranscriptionFault.NONE
    delay_s: list[float] = field(default_factory=lambda: [0.0])
    said: tuple[str, ...] = WORDS
    times: tuple[str, str] | None = None
    no_speech: tuple[float, float] = (0.01, -0.2)
    requests: list[dict[str, str]] = field(default_factory=list)
    heard_ms: list[int] = field(default_factory=list)
    left: int = 0
    _words: int = 0

    @property
    def url(self) -> str:
        """Address of the server, up to and including ``/v1``."""
        return f"http://127.0.0.1:{self.port}/openai/v1"

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/openai/v1/audio/transcriptions", self._transcribe)]

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        posted = await request.post()
        audio = posted["file"]
        assert isinstance(audio, web.FileField) and audio.content_type == "audio/wav"
        self.requests.append({name: str(value) for name, value in posted.items() if name != "file"})
        pcm, rate_hz = _decoded(audio.file.read())
        self.heard_ms.append(len(pcm) * 1000 // rate_hz)
        match self.fault:
            case TranscriptionFault.UNAUTHORIZED:
                return self._error(401, "Invalid API Key")
            case TranscriptionFault.TOO_MANY:
                return self._error(429, "Rate limit reached for model `whisper-large-v3-turbo`")
            case TranscriptionFault.BROKEN:
                return web.Response(status=503, text="<html>Service Unavailable</html>")
            case TranscriptionFault.HANGS:
                await asyncio.Event().wait()
            case TranscriptionFault.DROPS:
                _abort(request)
                return web.Response()
            case TranscriptionFault.CUT | TranscriptionFault.ENDLESS:
                return await self._broken_answer(request)
            case TranscriptionFault.GARBAGE:
                return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
            case TranscriptionFault.DEEP | TranscriptionFault.DEEP_ERROR:
                status = 200 if self.fault is TranscriptionFault.DEEP else 503
                return web.Response(status=status, text="[" * 100_000, content_type="application/json")
            case TranscriptionFault.OTHER_JSON:
                return web.json_response({"result": ["hello"]})
            case TranscriptionFault.OTHER_STRETCHES:
                return web.json_response({"text": "hello", "segments": ["hello"]})
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return self._error(401, "Invalid API Key")
        text, stretches = self._heard(pcm, rate_hz)
        await asyncio.sleep(self.delay_s.pop(0) if len(self.delay_s) > 1 else self.delay_s[0])
        if self.times is not None:
            for stretch in stretches:
                stretch["start"], stretch["end"] = map(json.loads, self.times)
        return web.json_response(self.answer(text, stretches))

    def answer(self, text: str, stretches: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer in the protocol's form."""
        return {"task": "transcribe", "language": "English", "text": text, "segments": stretches}

    def _heard(self, pcm: np.ndarray, rate_hz: int) -> tuple[str, list[dict[str, Any]]]:
        step = rate_hz // 100
        loud = [
            number
            for number, part in enumerate(pcm[: len(pcm) // step * step].reshape(-1, step))
            if np.sqrt(np.mean(part.astype(float) ** 2)) > _LOUD
        ]
        words = [self._next_word() for _ in range(len(loud) * 10 // WORD_MS)]
        if not words:
            return "", []
        no_speech, log_probability = self.no_speech
        stretch = {
            **{"id": 0, "seek": 0, "start": loud[0] / 100, "end": (loud[-1] + 1) / 100},
            **{"text": f" {' '.join(words)}", "no_speech_prob": no_speech, "avg_logprob": log_probability},
        }
        return " ".join(words), [stretch]

    def _next_word(self) -> str:
        self._words += 1
        return self.said[(self._words - 1) % len(self.said)]

    async def _broken_answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b'{"text": "hel')
        while self.fault is TranscriptionFault.ENDLESS:
            await response.write(b"l" * 65_536)
        _abort(request)
        return response

    def _error(self, status: int, message: str) -> web.Response:
        error = {"message": message, "type": "invalid_request_error", "code": "invalid_api_key"}
        return web.json_response({"error": error}, status=status)


def _decoded(data: bytes) -> tuple[np.ndarray, int]:
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()


def _abort(request: web.Request) -> None:
    transport = request.transport
    assert isinstance(transport, asyncio.Transport)
    transport.abort()
