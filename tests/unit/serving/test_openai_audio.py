"""Speech and transcriptions for OpenAI's clients: places, slow senders and slow readers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from loguru import logger

from parley.core.speech_formats import SpeechFormat
from parley.protocols.openai_http import RecordingText
from parley.serving.gateway.app import create_app
from parley.serving.gateway.openai_http.audio import SPEECH_PATH, TRANSCRIPTIONS_PATH
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.webrtc.signaling import Signaling
from tests.peers.session_gateway import no_call

SPEECH = {"model": "parley", "voice": "parley", "input": "Hi", "response_format": "pcm"}
FORM = "multipart/form-data; boundary=x"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    yield opened
    await opened.close()


async def spoken(_text: str, _kind: SpeechFormat, _voice: str) -> AsyncGenerator[bytes, None]:
    for _ in range(3):
        yield b"speech"
        await asyncio.sleep(0.05)


async def transcribed(_pcm: bytes) -> RecordingText:
    return RecordingText("words", (), 1.0, "en")


def gateway(store: SessionStore, **settings: float) -> FastAPI:
    return create_app(
        ServerTuning(**settings),
        run_call=no_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
        conversations=Conversations(store, compactor=Compactor()),
        speak=spoken,
        transcribe=transcribed,
        language="en",
        modes=("cascade",),
    )


def client_at(app: FastAPI, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None)


async def slow_upload(app: FastAPI, address: str, begun: asyncio.Event, rest: asyncio.Event) -> int:
    async def body() -> AsyncIterator[bytes]:
        yield b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nparley\r\n'
        begun.set()
        await rest.wait()
        yield b"--x--\r\n"

    async with client_at(app, address) as client:
        return (
            await client.post(TRANSCRIPTIONS_PATH, content=body(), headers={"content-type": FORM})
        ).status_code


async def test_slow_uploads_hold_no_place_for_speech(store: SessionStore):
    app = gateway(store, audio_jobs=2, body_s=60)
    rest = asyncio.Event()
    begun = [asyncio.Event() for _ in range(2)]
    uploads = [
        asyncio.create_task(slow_upload(app, f"10.0.0.{number}", each, rest))
        for number, each in enumerate(begun)
    ]
    await asyncio.gather(*(each.wait() for each in begun))
    async with client_at(app, "10.0.0.7") as client:
        answer = await client.post(SPEECH_PATH, json=SPEECH)
        assert (answer.status_code, answer.content) == (200, b"speech" * 3)
    async with client_at(app, "10.0.0.1") as client:
        # One recording of each client is received at a time.
        second = await client.post(TRANSCRIPTIONS_PATH, content=b"", headers={"content-type": FORM})
        assert second.status_code == 429
    rest.set()
    # A form without a file.
    assert await asyncio.gather(*uploads) == [400, 400]


async def test_a_sender_of_a_byte_at_a_time_is_ended(store: SessionStore):
    app = gateway(store, body_s=0.3)

    async def body() -> AsyncIterator[bytes]:
        yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        while True:
            yield b"a"
            await asyncio.sleep(0.02)

    async with asyncio.timeout(60), client_at(app, "10.0.0.1") as client:
        answer = await client.post(TRANSCRIPTIONS_PATH, content=body(), headers={"content-type": FORM})
    assert answer.status_code == 408 and "bytes/s" in answer.json()["error"]["message"]


async def test_a_reader_that_is_too_slow_for_a_speech_is_no_failure_of_the_server(store: SessionStore):
    logged: list[str] = []
    watching = logger.add(lambda message: logged.append(str(message)), level="DEBUG")
    try:
        async with client_at(gateway(store, audio_job_s=0.01), "10.0.0.1") as client:
            # That of httpx, which has seen no end of the answer: it breaks off.
            with pytest.raises(AssertionError):
                await client.post(SPEECH_PATH, json=SPEECH)
    finally:
        logger.remove(watching)
    assert any("closing an event stream" in line for line in logged)
    assert not any("Traceback" in line or "request failed" in line for line in logged)
