"""Voices behind HTTP servers that fail in many ways, with an embedded voice after them: who says what."""

import asyncio
import base64
import io
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
from pipecat.frames.frames import ErrorFrame, InterruptionFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.failover import CircuitBreaker, FailoverReason
from parley.processors.service_rows import ServiceRow, Shared
from parley.processors.speech.service_voice import ServiceVoice
from parley.processors.speech.services import (
    TTS_SERVICES,
    OpenAiSpeechSettings,
    XttsSettings,
    audio_deadlines,
)
from tests.fakes.failover_call import RATE_HZ, FailoverCall
from tests.fakes.speech_servers import (
    KEY,
    WORD_MS,
    OpenAiSpeechServer,
    SpeechFault,
    SpeechServer,
    XttsServer,
    closed_port,
)
from tests.fakes.tts import ToneTts
from tests.peers.spoken_greeting import GREETING, hear_greeting, tone_s
from tests.voices import bot_says

REPLY = "Our shop is open until nine today."
WORDS = REPLY.split()
FIRST_S, NEXT_S = 0.8, 0.6
DEADLINES = {"first_audio_ms": 800, "next_audio_ms": 600}
# Time of an idle machine's loop, and more on a busy one.
SLACK_S = 0.5


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", KEY)


def row_of(server: SpeechServer, *, port: int | None = None) -> ServiceRow[Any]:
    """Return the row of the service that speaks to a server, or to another port."""
    url = f"http://127.0.0.1:{port or server.port}"
    if isinstance(server, XttsServer):
        voice = XttsSettings(base_url=url, voice="Claribel Dervla", **DEADLINES)
        return TTS_SERVICES.create("xtts", voice)
    settings = OpenAiSpeechSettings(
        base_url=f"{url}/v1", model="kokoro", voice="af_heart", api_key_env="SPEECH_KEY", **DEADLINES
    )
    return TTS_SERVICES.create("openai_speech", settings)


def call_with(
    row: ServiceRow[Any], http: aiohttp.ClientSession, *, cool_down_ms: int = 60_000
) -> FailoverCall:
    """Return a call with a service, and an embedded voice after it."""

    async def build() -> FrameProcessor:
        return row.build(Shared(http=http))

    breaker = CircuitBreaker(max_failures=1, cool_down_ms=cool_down_ms)
    voice = ServiceVoice(row.name, build, breaker, rate_hz=RATE_HZ, deadlines=audio_deadlines(row))
    return FailoverCall([voice], ToneTts(word_ms=WORD_MS))


async def one_reply(call: FailoverCall) -> None:
    """Have the call say a reply, and wait until it has been heard."""
    await call.says(REPLY)
    await until(lambda: len(" ".join(call.words()).split()) >= len(WORDS))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


KINDS = [OpenAiSpeechServer, XttsServer]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [False, True])
async def test_a_server_that_works_says_the_whole_reply(kind: type[SpeechServer], odd: bool):
    async with kind(odd=odd) as server, aiohttp.ClientSession() as http:
        call = call_with(row_of(server), http)

        async def script() -> None:
            await one_reply(call)
            # The end of the last word is heard after it counts.
            await until(lambda: len(call.output.audio()) >= len(WORDS) * WORD_MS * 16 - 2)

        await call.hold(script)
    assert " ".join(call.words()) == REPLY and call.tones() == ["service"] and call.changes() == []
    assert len(server.texts) == 1


SAID_BY_BOTH = ["service", "embedded"]
FAULTS = [
    (None, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.UNAUTHORIZED, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.TOO_MANY, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.HANGS, 0, FailoverReason.LATE, ["embedded"], FIRST_S),
    (SpeechFault.HEADERS_ONLY, 0, FailoverReason.LATE, ["embedded"], FIRST_S),
    (SpeechFault.CUT, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.CUT, 600, FailoverReason.ERROR, SAID_BY_BOTH, 0.0),
    (SpeechFault.STALLS, 650, FailoverReason.STALLED, SAID_BY_BOTH, 0.0),
    (SpeechFault.GARBAGE, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.JSON, 0, FailoverReason.ERROR, ["embedded"], 0.0),
    (SpeechFault.SILENT, 0, FailoverReason.SILENT, ["embedded"], 0.6),
    # Pipecat reports it as an error.
    (SpeechFault.EMPTY, 0, FailoverReason.ERROR, ["embedded"], 0.0),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fault", "cut_ms", "reason", "sounds", "within_s"), FAULTS)
async def test_every_fault_is_heard_as_the_whole_reply_and_no_word_twice(
    kind: type[SpeechServer],
    fault: SpeechFault | None,
    cut_ms: int,
    reason: FailoverReason,
    sounds: list[str],
    within_s: float,
):
    async with (
        kind(fault=fault or SpeechFault.NONE, cut_ms=cut_ms) as server,
        aiohttp.ClientSession() as http,
    ):
        row = row_of(server, port=closed_port() if fault is None else None)
        call = call_with(row, http)
        await call.hold(lambda: one_reply(call))
    assert call.words() == WORDS
    assert call.tones() == sounds
    assert call.first_sound_s() <= within_s + SLACK_S
    assert call.changes() == [(row.name, "embedded", reason)]
    # The pipeline was spared: an error frame would be shown to the client.
    assert not call.upstream.of(ErrorFrame)
    pieces = [at for at, _ in call.output.played]
    assert max(np.diff(pieces)) <= NEXT_S + SLACK_S


@pytest.mark.parametrize("kind", KINDS)
async def test_after_an_outage_the_voice_comes_back_without_a_wait(kind: type[SpeechServer]):
    async with kind(fault=SpeechFault.TOO_MANY) as server, aiohttp.ClientSession() as http:
        call = call_with(row_of(server), http, cool_down_ms=500)

        async def script() -> None:
            await one_reply(call)
            server.fault = SpeechFault.NONE
            for _ in range(2):
                said = call.words().count("Yes.")
                await call.says("Yes.")
                await until(lambda said=said: call.words().count("Yes.") > said)
                assert call.first_sound_s() < SLACK_S

        await call.hold(script)
    assert call.words() == [*WORDS, "Yes.", "Yes."]
    assert call.tones() == ["embedded", "service"]
    assert [each[2] for each in call.changes()] == [FailoverReason.ERROR, FailoverReason.RECOVERED]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_interruption_ends_the_answer_at_the_server(kind: type[SpeechServer]):
    async with kind() as server, aiohttp.ClientSession() as http:
        call = call_with(row_of(server), http)

        async def script() -> None:
            await call.says("one two three four five six seven eight nine ten.")
            await until(lambda: call.output.played)
            await call.worker.queue_frame(InterruptionFrame())
            await until(lambda: server.left)
            await call.says("Alpha.")
            await until(lambda: "Alpha." in call.words())

        await call.hold(script)
    assert server.left == 1
    assert call.words()[-1] == "Alpha." and len(call.words()) < 5
    assert call.changes() == []


@pytest.mark.paired
@pytest.mark.parametrize("fault", [SpeechFault.NONE, SpeechFault.CUT])
async def test_a_caller_hears_a_greeting_to_its_end(fault: SpeechFault, tmp_path: Path):
    # Dies within the second clause, about two seconds after the first word.
    async with OpenAiSpeechServer(fault=fault, cut_ms=900) as voices:
        tts = {
            "name": "openai_speech",
            "settings": {
                **{"base_url": voices.url, "model": "kokoro", "voice": "af_heart"},
                "api_key_env": "SPEECH_KEY",
            },
        }
        heard, events = await hear_greeting(tts, tmp_path)
    [reply] = [each["payload"] for each in events if each["kind"] == "bot_turn"]
    assert reply["text"] == GREETING and not reply["truncated"]
    failovers = [each["payload"] for each in events if each["kind"] == "failover"]
    if fault is SpeechFault.NONE:
        assert not failovers
        assert tone_s(heard) > 0.9 * len(GREETING.split()) * WORD_MS / 1000
    else:
        [failover] = failovers
        assert (failover["engine"], failover["successor"]) == ("openai_speech", "flite")
        # The tone of the service voice, and then speech to the end of the greeting.
        assert 0.7 < tone_s(heard) < 1.5
        assert len(heard) / 2 / 16_000 > 5


@pytest.mark.paired
async def test_a_caller_is_greeted_in_an_uploaded_reference_voice(tmp_path: Path):
    async with XttsServer() as voices:
        tts = {"name": "xtts", "settings": {"base_url": voices.url, "reference_voice": "ada"}}
        upload = {"name": "ada", "audio_base64": base64.b64encode(reference()).decode()}

        async def add_voice(client: httpx.AsyncClient) -> None:
            # A server starts without the voice, so that it can be uploaded.
            (await client.post("/api/assets/ref_audio", json=upload)).raise_for_status()

        operations = {"data_dir": str(tmp_path / "data")}
        heard, events = await hear_greeting(tts, tmp_path, prepare=add_voice, operations=operations)
    [reply] = [each["payload"] for each in events if each["kind"] == "bot_turn"]
    assert reply["text"] == GREETING and not reply["truncated"]
    assert not [each for each in events if each["kind"] == "failover"]
    assert tone_s(heard) > 0.9 * len(GREETING.split()) * WORD_MS / 1000
    assert len(voices.cloned) == 1 and set(voices.spoken_with) == {100}


def reference() -> bytes:
    """Return a recording of a voice as a WAV file."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bot_says("Good morning, I am the voice of this shop, and I can tell you all of it."))
    return written.getvalue()
