"""A recogniser without partial texts and without a fallback, against a local server of Groq's endpoint."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InterimTranscriptionFrame,
    MetricsFrame,
    STTMuteFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import STTUsageMetricsData

from parley.evals.harness.services.cloud_recognisers import KEY, WORD_MS, WORDS
from parley.processors.perception.hosted_words import hosted_words
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.segment_stt import BEFORE_MS, MOST_SEGMENT_MS, MOST_WAITING, PADDING_MS
from parley.processors.perception.services import STT_SERVICES, GroqSttSettings
from parley.processors.service_rows import Shared
from tests.fakes.service_line import END_MS, HearingLine
from tests.fakes.transcription_servers import TranscriptionFault, TranscriptionServer
from tests.voices import tone


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def server() -> AsyncIterator[TranscriptionServer]:
    async with TranscriptionServer() as running:
        yield running


def line_of(url: str, http: aiohttp.ClientSession, **settings: object) -> HearingLine:
    fields = {"base_url": url, "request_timeout_ms": 1_000, **settings}
    row = STT_SERVICES.create("groq", GroqSttSettings(**fields))  # type: ignore[arg-type]
    return HearingLine(row.build(Shared(http=http)))


async def test_a_voice_is_sent_as_a_whole_when_it_is_over(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    line = line_of(server.url, http, prompt="Parley, Kyutai.")

    async def script() -> None:
        await line.speaks(3, after_ms=1_000, onset_ms=120)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    [final] = line.finals()
    assert final.text == " ".join(WORDS[:3]) and final.finalized
    assert line.heard.of(InterimTranscriptionFrame) == []
    assert line.order() == [True, " ".join(WORDS[:3]), False]
    assert server.requests == [
        {
            **{"model": "whisper-large-v3-turbo", "response_format": "verbose_json", "temperature": "0"},
            **{"language": "en", "prompt": "Parley, Kyutai."},
        }
    ]
    assert server.heard_ms == [pytest.approx(BEFORE_MS + 3 * WORD_MS + END_MS + PADDING_MS, abs=20)]
    usage = [each for frame in line.heard.of(MetricsFrame) for each in frame.data]
    assert [each.value.audio_seconds for each in usage if isinstance(each, STTUsageMetricsData)] == [
        pytest.approx((BEFORE_MS + 3 * WORD_MS + END_MS) / 1000, abs=0.02)
    ]


async def test_a_language_that_is_not_named_is_detected(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    line = line_of(server.url, http, language=None)

    async def script() -> None:
        await line.speaks(1)
        await line.until(TranscriptionFrame, 1)

    await line.hold(script)
    assert "language" not in server.requests[0] and "prompt" not in server.requests[0]


async def test_words_have_the_times_of_the_callers_audio(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    line = line_of(server.url, http)
    await line.hold_two_voices()
    first, second = (hosted_words(final.result) for final in line.finals())
    for words, began_ms in ((first, 400), (second, 2_000)):
        assert words[0].start_ms == pytest.approx(began_ms, abs=30)
        assert words[0].end_ms <= words[1].start_ms
        assert words[1].end_ms == pytest.approx(began_ms + 400, abs=30)


@pytest.mark.parametrize("time", [str(10**400), f"-{10**400}", "1e308", "1e999", "NaN", '"0"', "null"])
async def test_times_that_are_none_are_estimated(
    time: str, server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.times = (time, time)
    line = line_of(server.url, http)

    async def script() -> None:
        await line.speaks(2, after_ms=400)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    [final] = line.finals()
    first, last = hosted_words(final.result)
    # From the beginning of the audio that was sent, to the end of the voice.
    assert first.start_ms == pytest.approx(400 - BEFORE_MS, abs=30)
    assert first.end_ms <= last.start_ms
    assert last.end_ms == pytest.approx(400 + 2 * WORD_MS, abs=30)


async def test_words_of_voices_leave_in_the_order_in_which_they_were_said(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.delay_s = [0.4, 0.0]
    line = line_of(server.url, http)

    async def script() -> None:
        await line.speaks(2)
        async with asyncio.timeout(5):
            while len(server.requests) < 1:
                await asyncio.sleep(0.005)
        await line.speaks(1)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.order() == [True, " ".join(WORDS[:2]), WORDS[2], False]
    assert len(server.requests) == 2


async def test_a_noise_owes_no_words(server: TranscriptionServer, http: aiohttp.ClientSession):
    line = line_of(server.url, http)

    async def script() -> None:
        await line.worker.queue_frame(VADUserStartedSpeakingFrame())
        await line.sends(tone(600, level=0.002))
        await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.order() == [True, False] and line.errors() == []


@pytest.mark.parametrize(("no_speech", "words"), [((0.9, -1.3), 0), ((0.9, -0.3), 1), ((0.2, -1.3), 1)])
async def test_words_that_whisper_writes_for_a_noise_are_left_out(
    no_speech: tuple[float, float], words: int, server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.said, server.no_speech = ("Thank", "you."), no_speech
    line = line_of(server.url, http)

    async def script() -> None:
        await line.speaks(2)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.texts() == ["Thank you."] * words


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (TranscriptionFault.UNAUTHORIZED, "status 401: Invalid API Key"),
        (TranscriptionFault.TOO_MANY, "status 429: Rate limit reached for model `whisper-large-v3-turbo`"),
        (TranscriptionFault.BROKEN, "status 503"),
        (TranscriptionFault.HANGS, "no transcript within 1 s"),
        (TranscriptionFault.DROPS, "the connection failed: ServerDisconnectedError"),
        (TranscriptionFault.CUT, "the answer was cut off"),
        (TranscriptionFault.GARBAGE, "the answer is no JSON"),
        (TranscriptionFault.OTHER_JSON, "the answer is no transcript"),
        (TranscriptionFault.OTHER_STRETCHES, "the answer is no transcript"),
        (TranscriptionFault.ENDLESS, "the answer is over 1000000 bytes"),
        (TranscriptionFault.DEEP, "the answer is no JSON"),
        (TranscriptionFault.DEEP_ERROR, "status 503"),
    ],
)
async def test_every_fault_is_reported_once_without_a_repetition_and_the_next_voice_is_heard(
    fault: TranscriptionFault, message: str, server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.fault = fault
    line = line_of(server.url, http)

    async def script() -> None:
        await line.speaks(2)
        await line.until(WordsOwedFrame, 2)
        server.fault = TranscriptionFault.NONE
        if fault is not TranscriptionFault.UNAUTHORIZED:
            await line.speaks(3)
            await line.until(WordsOwedFrame, 4)

    await line.hold(script)
    assert line.errors() == [f"no transcript: {message}"]
    is_refused = fault is TranscriptionFault.UNAUTHORIZED
    assert line.texts() == ([] if is_refused else [" ".join(WORDS[:3])])
    assert len(server.requests) == (1 if is_refused else 2)
    assert [each for each in line.order() if isinstance(each, bool)] == [True, False] * (
        1 if is_refused else 2
    )


async def test_an_unexpected_failure_of_a_request_is_reported_and_those_after_it_are_delivered(
    server: TranscriptionServer,
):
    async with aiohttp.ClientSession() as http:
        line = line_of(server.url, http)

        async def script() -> None:
            await line.speaks(2)
            await line.until(WordsOwedFrame, 2)
            # No request of a closed session is possible, which aiohttp reports as a fault of the program.
            await http.close()
            for count in (1, 2):
                await line.speaks(3)
                await line.until(WordsOwedFrame, 2 + 2 * count)

        await line.hold(script)
    assert line.order() == [True, " ".join(WORDS[:2]), False, True, False, True, False]
    assert line.errors() == ["no transcript: an unexpected RuntimeError"] * 2


async def test_a_voice_without_an_end_is_cut_into_parts(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    line = line_of(server.url, http, request_timeout_ms=10_000)
    words = (MOST_SEGMENT_MS + 2_000) // WORD_MS

    async def script() -> None:
        await line.speaks(words)
        await line.until(TranscriptionFrame, 2)

    await line.hold(script)
    assert [len(text.split()) for text in line.texts()] == [MOST_SEGMENT_MS // WORD_MS, 2_000 // WORD_MS]


async def test_when_too_many_voices_wait_the_oldest_is_given_up(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.fault = TranscriptionFault.HANGS
    line = line_of(server.url, http, request_timeout_ms=10_000)

    async def script() -> None:
        for count in range(MOST_WAITING + 1):
            await line.speaks(1)
            async with asyncio.timeout(5):
                while len(server.requests) <= count:
                    await asyncio.sleep(0.005)
        await line.until(ErrorFrame, 1, upstream=True)
        async with asyncio.timeout(5):
            while not server.left:
                await asyncio.sleep(0.005)

    await line.hold(script)
    assert line.errors() == [f"words of a voice are lost: {MOST_WAITING} wait for the server"]


async def test_audio_of_a_muted_caller_is_not_sent(server: TranscriptionServer, http: aiohttp.ClientSession):
    line = line_of(server.url, http)

    async def script() -> None:
        await line.worker.queue_frame(STTMuteFrame(mute=True))
        await line.speaks(2)
        await line.worker.queue_frame(STTMuteFrame(mute=False))
        await line.speaks(1)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.texts() == [WORDS[0]] and len(server.requests) == 1


async def test_the_last_words_come_before_the_end_of_a_call(
    server: TranscriptionServer, http: aiohttp.ClientSession
):
    server.delay_s = [0.3]
    line = line_of(server.url, http)
    await line.hold(lambda: line.speaks(2), ends=True)
    assert line.texts() == [" ".join(WORDS[:2])]
