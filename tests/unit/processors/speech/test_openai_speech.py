"""A voice of OpenAI's speech endpoint without a fallback, against a local server of that endpoint."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InterruptionFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.metrics.metrics import TTSUsageMetricsData
from pipecat.utils.errors import ErrorCategory
from pydantic import ValidationError

from parley.core.errors import ConfigError
from parley.evals.harness.services.tone import tone
from parley.processors.service_answers import ServiceAnswerError
from parley.processors.service_rows import Shared
from parley.processors.speech.http_voice import MOST_AUDIO_S
from parley.processors.speech.services import TTS_SERVICES, OpenAiSpeechSettings
from tests.fakes.speech_servers import KEY, RATE_HZ, WORD_MS, OpenAiSpeechServer, SpeechFault, closed_port
from tests.fakes.voice_line import VoiceLine

TEXT = "One two three."
FIRST_MS, NEXT_MS = 300, 200


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", KEY)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def settings_for(url: str, **more: Any) -> OpenAiSpeechSettings:
    fields = {
        **{"base_url": url, "model": "kokoro", "voice": "af_heart", "api_key_env": "SPEECH_KEY"},
        **{"first_audio_ms": FIRST_MS, "next_audio_ms": NEXT_MS},
        **more,
    }
    return OpenAiSpeechSettings(**fields)


def line_to(url: str, http: aiohttp.ClientSession, *, pipeline_hz: int = RATE_HZ, **more: Any) -> VoiceLine:
    """Return a call whose voice asks a server."""
    row = TTS_SERVICES.create("openai_speech", settings_for(url, **more))
    return VoiceLine(row.build(Shared(http=http)), rate_hz=pipeline_hz)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("wav", [False, True])
async def test_every_sample_of_a_text_is_passed_on_as_it_comes(
    odd: bool, wav: bool, http: aiohttp.ClientSession
):
    async with OpenAiSpeechServer(odd=odd, wav=wav) as server:
        line = line_to(server.url, http)
        await line.hold(lambda: line.says(TEXT))
    assert line.audio().tobytes() == tone(0, 3 * WORD_MS, RATE_HZ)
    assert server.texts == [TEXT] and line.errors() == []
    pieces = [at for at, frame in line.heard.frames if isinstance(frame, TTSAudioRawFrame)]
    assert len(pieces) > 5 and pieces[-1] - pieces[0] > 0.1
    usage = [each for frame in line.heard.of(MetricsFrame) for each in frame.data]
    assert [each.value for each in usage if isinstance(each, TTSUsageMetricsData)] == [len(TEXT)]


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
async def test_audio_has_the_rate_of_the_pipeline_and_its_whole_length(
    rate_hz: int, http: aiohttp.ClientSession
):
    async with OpenAiSpeechServer(odd=True) as server:
        line = line_to(server.url, http, pipeline_hz=rate_hz)
        await line.hold(lambda: line.says(TEXT))
    audio = line.audio()
    assert len(audio) == pytest.approx(3 * WORD_MS * rate_hz / 1000, abs=2)
    # The tone of the server, at the times of these samples.
    times_s = np.arange(len(audio)) / rate_hz + 0.5 / RATE_HZ
    expected = 0.5 * 32_768 * np.sin(2 * np.pi * 880 * times_s)
    inner = slice(rate_hz // 100, -rate_hz // 100)
    assert np.abs(audio - expected)[inner].max() < 50


@pytest.mark.parametrize(("wav", "length_ms"), [(True, 3 * WORD_MS), (False, 3 * WORD_MS // 2)])
async def test_the_rate_is_that_of_the_header_and_else_that_of_the_settings(
    wav: bool, length_ms: int, http: aiohttp.ClientSession
):
    async with OpenAiSpeechServer(wav=wav) as server:
        line = line_to(server.url, http, rate_hz=2 * RATE_HZ)
        await line.hold(lambda: line.says(TEXT))
    assert len(line.audio()) == pytest.approx(length_ms * RATE_HZ / 1000, abs=2)


async def test_a_server_is_asked_for_pcm_with_the_voice_the_key_and_the_further_fields(
    http: aiohttp.ClientSession,
):
    async with OpenAiSpeechServer() as server:
        line = line_to(server.url + "/", http, extra_body={"stream": True, "speed": 1.1})
        await line.hold(lambda: line.says(TEXT))
    assert server.requests == [
        {
            **{"model": "kokoro", "voice": "af_heart", "response_format": "pcm"},
            **{"stream": True, "speed": 1.1, "input": TEXT},
        }
    ]


async def test_a_server_without_keys_is_sent_none(http: aiohttp.ClientSession):
    async with OpenAiSpeechServer(key=None) as server:
        line = line_to(server.url, http, api_key_env=None)
        await line.hold(lambda: line.says(TEXT))
    assert len(line.audio()) and line.errors() == []


async def test_texts_of_a_call_share_a_connection(http: aiohttp.ClientSession):
    async with OpenAiSpeechServer() as server:
        line = line_to(server.url, http)

        async def script() -> None:
            await line.says(TEXT)
            await line.says("Four.")

        await line.hold(script)
    assert server.texts == [TEXT, "Four."] and server.connections == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (SpeechFault.UNAUTHORIZED, "status 401: Incorrect API key provided"),
        (SpeechFault.TOO_MANY, "status 429: Rate limit reached"),
        (SpeechFault.HANGS, "no audio within 0.3 s"),
        (SpeechFault.HEADERS_ONLY, "no audio within 0.3 s"),
        (SpeechFault.CUT, "the answer was cut off"),
        (SpeechFault.STALLS, "no more audio for 0.2 s"),
        (SpeechFault.GARBAGE, "the answer is 'text/html', not PCM or WAV"),
        (SpeechFault.JSON, "the answer is 'application/json', not PCM or WAV"),
        (SpeechFault.MP3, "the answer is 'audio/mpeg', not PCM or WAV"),
        (SpeechFault.MULAW, "the answer is 'audio/basic', not PCM or WAV"),
        (SpeechFault.BIG_ENDIAN, "the answer is 'audio/l16', not PCM or WAV"),
        (SpeechFault.ENDLESS, f"more than {MOST_AUDIO_S} s of audio for one text"),
    ],
)
async def test_every_fault_is_reported_and_the_next_text_is_asked_for(
    fault: SpeechFault, message: str, http: aiohttp.ClientSession
):
    async with OpenAiSpeechServer(fault=fault, cut_ms=400) as server:
        line = line_to(server.url, http)

        async def script() -> None:
            await line.says(TEXT)
            server.fault = SpeechFault.NONE
            if fault is not SpeechFault.UNAUTHORIZED:
                await line.says("Four.")

        await line.hold(script)
    assert line.errors() == [f"no speech: {message}"]
    if fault is not SpeechFault.UNAUTHORIZED:
        assert server.texts[-1] == "Four."
        assert line.audio()[-24 * WORD_MS :].tobytes() == tone(0, WORD_MS, RATE_HZ)


async def test_an_answer_without_audio_is_an_error(http: aiohttp.ClientSession):
    async with OpenAiSpeechServer(fault=SpeechFault.EMPTY) as server:
        line = line_to(server.url, http)
        await line.hold(lambda: line.says(TEXT))
    [reported] = line.upstream.of(ErrorFrame)
    assert "no audio" in reported.error


async def test_nothing_listens_at_its_address(http: aiohttp.ClientSession):
    line = line_to(f"http://127.0.0.1:{closed_port()}/v1", http)
    await line.hold(lambda: line.says(TEXT))
    assert line.errors() == ["no speech: the connection failed: ClientConnectorError"]


async def test_a_connection_that_the_server_has_just_closed_is_opened_again(http: aiohttp.ClientSession):
    async with OpenAiSpeechServer(fault=SpeechFault.DISCONNECTS_ONCE) as server:
        line = line_to(server.url, http)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [] and server.texts == [TEXT]
    assert line.audio().tobytes() == tone(0, 3 * WORD_MS, RATE_HZ)


@pytest.mark.parametrize("fields", [{"voice": "unknown"}, {"voice": "unlisted"}])
async def test_no_error_quotes_the_text(fields: dict[str, Any], http: aiohttp.ClientSession):
    async with OpenAiSpeechServer() as server:
        line = line_to(server.url, http, **fields)
        await line.hold(lambda: line.says("My number is 1 2 3 4."))
    [error] = line.errors()
    assert error.startswith("no speech: status 4") and "1 2 3 4" not in error


@pytest.mark.parametrize(
    ("fault", "status"),
    [(SpeechFault.QUOTES, 400), (SpeechFault.SPELLS, 500), (SpeechFault.QUOTES_TOO_MANY, 429)],
)
async def test_no_error_quotes_the_text_in_any_form(
    fault: SpeechFault, status: int, http: aiohttp.ClientSession
):
    async with OpenAiSpeechServer(fault=fault) as server:
        line = line_to(server.url, http)
        await line.hold(lambda: line.says("My number is 1 2 3 4."))
    assert line.errors() == [f"no speech: status {status}"]


async def test_an_interruption_ends_the_answer_at_the_server(http: aiohttp.ClientSession):
    async with OpenAiSpeechServer() as server:
        line = line_to(server.url, http)

        async def script() -> None:
            await line.worker.queue_frame(TTSSpeakFrame("one two three four five six seven eight nine ten."))
            await line.until(TTSAudioRawFrame, 3)
            await line.worker.queue_frame(InterruptionFrame())
            async with asyncio.timeout(5):
                while not server.left:
                    await asyncio.sleep(0.005)
            heard = len(line.audio())
            await line.says("Four.")
            assert len(line.audio()) == heard + 24 * WORD_MS

        await line.hold(script)
    assert line.errors() == [] and len(line.heard.of(TTSStoppedFrame)) == 1


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (None, ErrorCategory.CONNECTIVITY),
        (200, ErrorCategory.UNKNOWN),
        # One text may be refused, and the next one accepted.
        (400, ErrorCategory.UNKNOWN),
        (422, ErrorCategory.UNKNOWN),
        (401, ErrorCategory.AUTHENTICATION),
        (404, ErrorCategory.INVALID_REQUEST),
        (429, ErrorCategory.RATE_LIMIT),
        (503, ErrorCategory.SERVER),
    ],
)
def test_only_what_every_request_meets_is_permanent(status: int | None, category: ErrorCategory):
    assert ServiceAnswerError("", status=status).category is category


def test_settings_refuse_another_scheme_and_fields_that_are_sent_anyway():
    with pytest.raises(ValidationError, match="base_url"):
        settings_for("ws://localhost/v1")
    with pytest.raises(ValidationError, match="input, voice"):
        settings_for("http://localhost/v1", extra_body={"voice": "v", "input": "i"})


def test_a_key_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPEECH_KEY")
    with pytest.raises(ConfigError, match="SPEECH_KEY"):
        TTS_SERVICES.create("openai_speech", settings_for("http://localhost/v1")).check()
