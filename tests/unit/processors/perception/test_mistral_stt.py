"""Mistral's recogniser without a fallback, against a local server of its protocol."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.evals.harness.services.cloud_recognisers import (
    KEY,
    WORD_MS,
    WORDS,
    RecogniserFault,
    running_recogniser,
)
from parley.processors.perception.hosted_words import hosted_words
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.services import STT_SERVICES, MistralSettings
from tests.fakes.mistral_server import MistralServer
from tests.fakes.service_line import HearingLine
from tests.voices import silence, tone


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)


@pytest.fixture
async def server() -> AsyncIterator[MistralServer]:
    async with running_recogniser(MistralServer) as running:
        yield running


def line_of(url: str, **settings: object) -> HearingLine:
    fields = {"url": url, "final_timeout_ms": 500, **settings}
    row = STT_SERVICES.create("mistral", MistralSettings(**fields))  # type: ignore[arg-type]
    return HearingLine(row.build())


@pytest.mark.parametrize("tells_all", [False, True])
async def test_the_rest_of_a_text_comes_at_the_end_of_a_voice_and_each_text_once(
    tells_all: bool, server: MistralServer
):
    server.tells_all = tells_all
    line = line_of(server.url, delay_ms=480)

    async def script() -> None:
        await line.speaks(5)
        await line.until(WordsOwedFrame, 2)
        await line.speaks(2)
        await line.until(WordsOwedFrame, 4)

    await line.hold(script)
    first, second = " ".join(WORDS[:5]), " ".join(WORDS[5:7])
    assert line.order() == [True, first, False, True, second, False]
    assert all(final.finalized for final in line.finals())
    partials = [frame.text for frame in line.heard.of(InterimTranscriptionFrame)]
    assert partials[:5] == [" ".join(WORDS[: count + 1]) for count in range(5)]
    assert server.flushes == 2
    assert server.sessions == [
        {
            "audio_format": {"encoding": "pcm_s16le", "sample_rate": 16_000},
            "target_streaming_delay_ms": 480,
        }
    ]


@pytest.mark.parametrize("tells_all", [False, True])
@pytest.mark.parametrize(
    "voices", [("yes", "yes", "yes"), ("yes", "yes yes", "yes"), ("no", "no yes", "no no")]
)
async def test_a_voice_that_begins_like_the_session_is_said_once(
    voices: tuple[str, ...], tells_all: bool, server: MistralServer
):
    server.said, server.tells_all = tuple(" ".join(voices).split()), tells_all
    line = line_of(server.url)

    async def script() -> None:
        for place, voice in enumerate(voices, start=1):
            await line.speaks(len(voice.split()))
            await line.until(WordsOwedFrame, 2 * place)

    await line.hold(script)
    assert [final.text for final in line.finals()] == list(voices)


async def test_words_that_come_only_with_the_end_of_a_text_are_heard(server: MistralServer):
    server.tells_all = server.holds_last = True
    line = line_of(server.url)

    async def script() -> None:
        await line.speaks(5)
        await line.until(WordsOwedFrame, 2)
        await line.speaks(4)
        await line.until(WordsOwedFrame, 4)

    await line.hold(script)
    assert [final.text for final in line.finals()] == [" ".join(WORDS[:5]), " ".join(WORDS[5:9])]


async def test_words_have_the_times_of_their_voices(server: MistralServer):
    line = line_of(server.url)
    await line.hold_two_voices()
    first, second = (hosted_words(final.result) for final in line.finals())
    for words, began_ms in ((first, 400), (second, 2_000)):
        assert (words[0].start_ms, len(words)) == (began_ms, 2)
        assert words[0].end_ms <= words[1].start_ms
        assert words[1].end_ms == pytest.approx(began_ms + 2 * WORD_MS, abs=60)


async def test_text_whose_end_the_server_does_not_report_is_final_by_a_deadline():
    async with running_recogniser(MistralServer, RecogniserFault.NO_FINALS) as server:
        line = line_of(server.url)

        async def script() -> None:
            await line.speaks(3)
            await line.until(WordsOwedFrame, 2)
            await line.speaks(2)
            await line.until(WordsOwedFrame, 4)

        await line.hold(script)
    first, second = " ".join(WORDS[:3]), " ".join(WORDS[3:5])
    assert line.order() == [True, first, False, True, second, False]


async def test_a_noise_owes_no_words(server: MistralServer):
    line = line_of(server.url)

    async def script() -> None:
        await line.worker.queue_frame(VADUserStartedSpeakingFrame())
        await line.sends(tone(600, level=0.002))
        await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.order() == [True, False]


async def test_a_lost_connection_is_opened_again_and_owes_no_words_of_the_last_one():
    async with running_recogniser(MistralServer, RecogniserFault.NO_FINALS) as server:
        line = line_of(server.url, final_timeout_ms=5_000)

        async def script() -> None:
            await line.speaks(3)
            await line.until(WordsOwedFrame, 1)
            server.fault, server.cut_words = RecogniserFault.CUT, 1
            await line.sends(silence(100))
            await line.until(WordsOwedFrame, 2)
            server.fault = RecogniserFault.NONE
            await line.speaks(2)
            await line.until(TranscriptionFrame, 1)

        await line.hold(script)
    assert [final.text for final in line.finals()] == [" ".join(WORDS[:2])]
    assert server.connections == 2


@pytest.mark.parametrize("fault", [RecogniserFault.LIMITED, RecogniserFault.GARBAGE])
async def test_a_server_that_goes_on_to_refuse_is_an_error(fault: RecogniserFault):
    async with running_recogniser(MistralServer, fault) as server:
        line = line_of(server.url)

        async def script() -> None:
            async with asyncio.timeout(10):
                while not line.upstream.of(ErrorFrame):
                    await line.sends(silence(60))
                    await asyncio.sleep(0.02)

        await line.hold(script)
    assert line.finals() == [] and server.connections > 1
