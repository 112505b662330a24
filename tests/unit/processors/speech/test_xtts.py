"""A voice of an XTTS server without a fallback, against a local server of its protocol."""

import asyncio
import io
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from pipecat.frames.frames import TTSAudioRawFrame
from pydantic import ValidationError

from parley.evals.harness.services.tone import tone
from parley.processors.service_rows import Shared
from parley.processors.speech.services import TTS_SERVICES, Xtts, XttsSettings
from parley.serving.gateway.reference_voices.voices import StoredVoices, Voices
from tests.fakes.speech_servers import RATE_HZ, WORD_MS, CloneFault, SpeechFault, XttsServer, closed_port
from tests.fakes.voice_line import VoiceLine
from tests.voices import bot_says, silence

TEXT = "One two three."
REFERENCE = (
    "Good morning, I am the voice of this shop, and I can tell you everything about our opening hours."
)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def wav(pcm: bytes) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(pcm)
    return written.getvalue()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Return a folder with the reference voice ``ada``, a short one and a silent one."""
    voices = Voices(tmp_path / "ref_audio")
    await voices.add("ada", wav(bot_says(REFERENCE)))
    await voices.add("short", wav(bot_says("Good morning.")[:25_600]))
    await voices.add("silent", wav(silence(3_000)))
    return tmp_path / "ref_audio"


def row_for(url: str, **fields: Any) -> Xtts:
    chosen = {"first_audio_ms": 300, "next_audio_ms": 200, "base_url": url, **fields}
    row = TTS_SERVICES.create("xtts", XttsSettings(**chosen))
    assert isinstance(row, Xtts)
    return row


def line_of(row: Xtts, http: aiohttp.ClientSession, folder: Path | None = None) -> VoiceLine:
    """Return a call with the voice of a row."""
    voices = None if folder is None else StoredVoices(folder)
    return VoiceLine(row.build(Shared(http=http, reference_voices=voices)), rate_hz=RATE_HZ)


@pytest.mark.parametrize(("name", "place"), [("Claribel Dervla", 0), ("Luís Moray", 1)])
@pytest.mark.parametrize("odd", [False, True])
async def test_a_speaker_of_the_server_says_a_text(
    name: str, place: int, odd: bool, http: aiohttp.ClientSession
):
    async with XttsServer(odd=odd) as server:
        line = line_of(row_for(server.url, voice=name, language="de-AT"), http)
        await line.hold(lambda: line.says(TEXT))
    assert line.audio().tobytes() == tone(0, 3 * WORD_MS, RATE_HZ)
    assert line.errors() == [] and server.spoken_with == [place]
    [request] = server.requests
    assert (request["language"], request["stream_chunk_size"]) == ("de", "20")
    assert request["speaker_embedding"][1] == pytest.approx(0.0123457)
    assert len(line.heard.of(TTSAudioRawFrame)) > 5


async def test_a_reference_voice_is_imitated_and_its_arrays_are_requested_once_for_all_calls(
    folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer() as server:
        row = row_for(server.url, reference_voice="ada")
        first, second = line_of(row, http, folder), line_of(row, http, folder)

        async def script() -> None:
            await first.says(TEXT)
            await first.says("Four.")

        await first.hold(script)
        await second.hold(lambda: second.says("Five."))
    assert server.spoken_with == [100, 100, 100]
    assert len(server.cloned) == 1
    with wave.open(io.BytesIO(server.cloned[0])) as file:
        assert (file.getframerate(), file.getnframes()) == (16_000, len(bot_says(REFERENCE)) // 2)


async def test_what_the_calls_share_is_requested_before_the_first_one(
    folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer() as server:
        row = row_for(server.url, reference_voice="ada")
        await row.prepare(Shared(http=http, reference_voices=StoredVoices(folder)))
        assert len(server.cloned) == 1
        server.clone_fault = CloneFault.HANGS
        line = line_of(row, http, folder)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [] and server.spoken_with == [100]


@pytest.mark.parametrize(
    "fault", [CloneFault.BROKEN, CloneFault.DEEP, CloneFault.DEEP_ERROR, CloneFault.HUGE]
)
async def test_a_server_that_fails_at_the_start_is_asked_again_in_a_call(
    fault: CloneFault, folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer(clone_fault=fault) as server:
        row = row_for(server.url, reference_voice="ada")
        await row.prepare(Shared(http=http, reference_voices=StoredVoices(folder)))
        server.clone_fault = CloneFault.NONE
        line = line_of(row, http, folder)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [] and server.spoken_with == [101]


async def test_a_request_for_the_speaker_outlives_the_call_that_made_it(
    folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer(may_clone=asyncio.Event()) as server:
        row = row_for(server.url, reference_voice="ada")
        first = line_of(row, http, folder)
        # Its first text is late, because the server does not answer.
        await first.hold(lambda: first.says(TEXT))
        second = line_of(row, http, folder)

        async def script() -> None:
            # One request is on its way already, and none of its own.
            server.may_clone.set()
            await second.says(TEXT)

        await second.hold(script)
    assert first.errors() == ["no speech: no audio within 0.3 s"]
    assert second.errors() == [] and len(server.cloned) == 1


async def test_another_recording_of_a_name_replaces_the_one_before(folder: Path, http: aiohttp.ClientSession):
    async with XttsServer() as server:
        row = row_for(server.url, reference_voice="ada")
        line = line_of(row, http, folder)

        async def script() -> None:
            await line.says(TEXT)
            voices = Voices(folder)
            await voices.remove(StoredVoices(folder).find("ada"))
            await line.says(TEXT)
            await voices.add("ada", wav(bot_says(REFERENCE + " Welcome.")))
            await line.says(TEXT)

        await line.hold(script)
    # A voice that was deleted says nothing more, although its arrays are known.
    assert line.errors() == ["no speech: there is no reference voice 'ada': upload it first"]
    assert server.spoken_with == [100, 101]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("eve", "there is no reference voice 'eve': upload it first"),
        ("short", "the reference voice 'short': it is 0.8 s long; XTTS needs at least 2 s"),
        ("silent", "the reference voice 'silent': it is silent"),
    ],
)
async def test_a_reference_that_is_missing_or_bad_is_refused_in_plain_words(
    wanted: str, message: str, folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer() as server:
        line = line_of(row_for(server.url, reference_voice=wanted), http, folder)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [f"no speech: {message}"]
    assert server.cloned == [] and server.requests == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (CloneFault.BROKEN, "the server does not imitate the reference voice 'ada': status 500"),
        (CloneFault.HANGS, "no audio within 0.3 s"),
        (CloneFault.GARBAGE, "the answer is no speaker"),
        (CloneFault.OTHER_JSON, "the answer is no speaker"),
        (CloneFault.NOT_FINITE, "the answer is no speaker"),
        (CloneFault.DEEP, "the answer is no speaker"),
        (CloneFault.DEEP_ERROR, "the server does not imitate the reference voice 'ada': status 500"),
        (CloneFault.HUGE, "the answer is no speaker"),
    ],
)
async def test_a_server_that_gives_no_arrays_is_reported(
    fault: CloneFault, message: str, folder: Path, http: aiohttp.ClientSession
):
    async with XttsServer(clone_fault=fault) as server:
        line = line_of(row_for(server.url, reference_voice="ada"), http, folder)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [f"no speech: {message}"]
    assert server.requests == []


async def test_a_speaker_that_the_server_does_not_have_is_refused_with_those_it_has(
    http: aiohttp.ClientSession,
):
    async with XttsServer() as server:
        line = line_of(row_for(server.url, voice="Ada"), http)
        await line.hold(lambda: line.says(TEXT))
    assert line.errors() == [
        "no speech: the server has no speaker 'Ada' (known: Claribel Dervla, Luís Moray)"
    ]


async def test_a_process_without_reference_voices_says_so(http: aiohttp.ClientSession):
    line = line_of(row_for(f"http://127.0.0.1:{closed_port()}", reference_voice="ada"), http)
    await line.hold(lambda: line.says(TEXT))
    assert line.errors() == ["no speech: this process has no reference voices"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (SpeechFault.TOO_MANY, "status 429: Rate limit reached"),
        (SpeechFault.HANGS, "no audio within 0.3 s"),
        (SpeechFault.CUT, "the answer was cut off"),
        (SpeechFault.STALLS, "no more audio for 0.2 s"),
        (SpeechFault.GARBAGE, "the answer is 'text/html', not PCM or WAV"),
    ],
)
async def test_every_fault_is_reported_and_the_next_text_is_asked_for(
    fault: SpeechFault, message: str, http: aiohttp.ClientSession
):
    async with XttsServer(fault=fault, cut_ms=400) as server:
        line = line_of(row_for(server.url, voice="Claribel Dervla"), http)

        async def script() -> None:
            await line.says(TEXT)
            server.fault = SpeechFault.NONE
            await line.says("Four.")

        await line.hold(script)
    assert line.errors() == [f"no speech: {message}"]
    assert line.audio()[-24 * WORD_MS :].tobytes() == tone(0, WORD_MS, RATE_HZ)
    assert server.studio_requests == 1


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("It is 3.5 km. *Really* far.", "It is 3.5 km Really far"),
        ("What? Yes!", "What? Yes!"),
    ],
)
async def test_full_stops_are_not_read_aloud(text: str, sent: str, http: aiohttp.ClientSession):
    async with XttsServer() as server:
        line = line_of(row_for(server.url, voice="Claribel Dervla"), http)
        await line.hold(lambda: line.says(text))
    assert server.texts == [sent]


@pytest.mark.parametrize(
    ("fault", "status"),
    [(SpeechFault.QUOTES, 400), (SpeechFault.SPELLS, 500), (SpeechFault.QUOTES_TOO_MANY, 429)],
)
async def test_no_error_quotes_the_text_in_any_form(
    fault: SpeechFault, status: int, http: aiohttp.ClientSession
):
    async with XttsServer(fault=fault) as server:
        line = line_of(row_for(server.url, voice="Claribel Dervla"), http)
        # It is sent without its full stop and its asterisks.
        await line.hold(lambda: line.says("My number is *1 2 3 4*."))
    assert line.errors() == [f"no speech: status {status}"]


async def test_a_text_without_any_word_is_silence_and_no_request(http: aiohttp.ClientSession):
    async with XttsServer() as server:
        line = line_of(row_for(server.url, voice="Claribel Dervla"), http)
        await line.hold(lambda: line.says("..."))
    assert server.requests == [] and line.errors() == []
    assert len(line.audio()) and not np.any(line.audio())


@pytest.mark.parametrize("fields", [{}, {"voice": "a", "reference_voice": "b"}])
def test_settings_name_one_kind_of_voice(fields: dict[str, str]):
    with pytest.raises(ValidationError, match="either a voice of the server or a reference_voice"):
        XttsSettings(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("language", "code"), [("en", "en"), ("en-US", "en"), ("zh-CN", "zh-cn"), ("pt-BR", "pt")]
)
def test_the_server_has_no_regions(language: str, code: str):
    assert XttsSettings(voice="v", language=language).server_language == code
