"""Recordings for Mistral's transcription: the engine against a server on loopback that takes its requests."""

import asyncio
import io
import wave

import numpy as np
import pytest
from aiohttp import web

from parley.core.errors import ConfigError, EngineError
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.mistral_recordings import MistralRecordings, MistralRecordingsSettings
from tests.peers.http_peer import HttpPeer

KEY = "a key of the tests"
PIECES = [RecordedPiece(np.zeros(16_000 * seconds, np.float32), [1] * (31 * seconds)) for seconds in (2, 1)]


class Transcriber(HttpPeer):
    """Server that answers with the seconds of audio that it got, after some failures."""

    def __init__(self, *failures: int) -> None:
        self._failures = list(failures)
        self.fields: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/audio/transcriptions", self._transcribe)]

    async def _transcribe(self, request: web.Request) -> web.Response:
        form = await request.post()
        if request.headers["authorization"] != f"Bearer {KEY}":
            return web.json_response({"detail": "Unauthorized"}, status=401)
        if self._failures:
            return web.json_response({}, status=self._failures.pop(), headers={"retry-after-ms": "1"})
        self.fields = {name: value for name, value in form.items() if isinstance(value, str)}
        upload = form["file"]
        assert isinstance(upload, web.FileField)
        with wave.open(io.BytesIO(upload.file.read())) as file:
            assert (file.getnchannels(), file.getframerate()) == (1, 16_000)
            seconds = file.getnframes() // 16_000
        return web.json_response({"model": "voxtral", "text": f" It was {seconds} s. ", "language": None})


async def transcribed(server: Transcriber, **settings: object) -> list[PieceTranscript]:
    url = f"http://127.0.0.1:{server.port}/v1"
    engine = MistralRecordings(MistralRecordingsSettings.model_validate({"url": url, **settings}))
    return await asyncio.to_thread(engine.transcribe, PIECES)


async def test_each_piece_is_a_request_and_failures_are_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    async with Transcriber(429, 503) as server:
        found = await transcribed(server, language="en")
        assert server.fields == {"model": "voxtral-mini-latest", "language": "en"}
    assert [each.written for each in found] == ["It was 2 s.", "It was 1 s."]
    assert [word.text for word in found[1].words] == ["it", "was", "1", "s"]
    assert all(word.estimated and word.end_ms <= 1_000 for word in found[1].words)


async def test_a_request_that_fails_again_is_an_error_and_a_refused_key_one_of_the_deployment(
    monkeypatch: pytest.MonkeyPatch,
):
    with pytest.raises(ConfigError, match="MISTRAL_API_KEY"):
        MistralRecordingsSettings().check()
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    async with Transcriber(500, 500) as server:
        with pytest.raises(EngineError, match="status 500"):
            await transcribed(server, retries=0)
    monkeypatch.setenv("MISTRAL_API_KEY", "another")
    async with Transcriber() as server:
        with pytest.raises(ConfigError, match="is refused .401"):
            await transcribed(server)
