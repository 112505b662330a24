"""Kyutai's recogniser without a fallback, against a local server of its protocol."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InterimTranscriptionFrame,
    MetricsFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import STTUsageMetricsData

from parley.evals.harness.services.cloud_recognisers import KEY, WORDS, RecogniserFault, running_recogniser
from parley.processors.perception.hosted_words import HostedWord, hosted_words
from parley.processors.perception.kyutai_stt import KyutaiSttService, StreamTimes
from parley.processors.perception.owed_words import WordsOwedFrame
from tests.fakes.moshi_server import DELAY_STEPS, STEP_MS, MoshiServer
from tests.fakes.service_line import END_MS, HearingLine
from tests.voices import silence, tone


def line_of(url: str) -> HearingLine:
    return HearingLine(KyutaiSttService(url, KEY, delay_ms=500))


@pytest.fixture
async def server() -> AsyncIterator[MoshiServer]:
    async with running_recogniser(MoshiServer) as running:
        yield running


async def test_the_last_words_come_although_no_audio_follows_the_voice(server: MoshiServer):
    line = line_of(server.url)

    async def script() -> None:
        await line.speaks(3)
        await line.until(TranscriptionFrame, 1)

    await line.hold(script)
    [final] = line.finals()
    assert final.text == " ".join(WORDS[:3]) and final.finalized
    assert [frame.text for frame in line.heard.of(InterimTranscriptionFrame)][-1] == final.text
    # The audio of the voice, and no more silence than the delay of the model and two steps.
    assert server.steps <= (600 + END_MS) / STEP_MS + DELAY_STEPS + 3
    usage = [each for frame in line.heard.of(MetricsFrame) for each in frame.data]
    assert [each.value.audio_seconds for each in usage if isinstance(each, STTUsageMetricsData)] == [
        pytest.approx(0.8)
    ]


async def test_a_turn_waits_for_the_words_of_a_voice_that_is_over(server: MoshiServer):
    line = line_of(server.url)

    async def script() -> None:
        await line.speaks(2)
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    order = [each for _, each in line.heard.frames if isinstance(each, WordsOwedFrame | TranscriptionFrame)]
    assert [type(frame) for frame in order] == [WordsOwedFrame, TranscriptionFrame, WordsOwedFrame]
    assert [frame.is_owed for frame in line.heard.of(WordsOwedFrame)] == [True, False]


async def test_times_of_words_are_those_of_the_callers_audio(server: MoshiServer):
    line = line_of(server.url)
    await line.hold_two_voices()
    first, second = (hosted_words(final.result) for final in line.finals())
    # The server finds words in steps of 80 ms.
    for word, began_ms in zip((*first, *second), (400, 600, 2_000, 2_200), strict=True):
        assert word.start_ms == pytest.approx(began_ms, abs=2 * STEP_MS)
        assert word.end_ms == pytest.approx(began_ms + 200, abs=2 * STEP_MS)


async def test_a_noise_owes_no_words(server: MoshiServer):
    line = line_of(server.url)

    async def script() -> None:
        await line.worker.queue_frame(VADUserStartedSpeakingFrame())
        await line.sends(tone(600, level=0.002))
        await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.finals() == []
    assert [frame.is_owed for frame in line.heard.of(WordsOwedFrame)] == [True, False]


async def test_a_lost_connection_is_opened_again_and_owes_no_words_of_the_last_one():
    async with running_recogniser(MoshiServer, RecogniserFault.NO_FINALS) as server:
        line = line_of(server.url)

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
    assert [frame.is_owed for frame in line.heard.of(WordsOwedFrame)][:2] == [True, False]


async def test_a_server_without_a_free_place_is_an_error():
    async with running_recogniser(MoshiServer, RecogniserFault.LIMITED) as server:
        line = line_of(server.url)

        async def script() -> None:
            async with asyncio.timeout(10):
                while not line.upstream.of(ErrorFrame):
                    await asyncio.sleep(0.005)

        await line.hold(script)
    assert line.finals() == []


def test_silence_that_was_sent_is_taken_out_of_times():
    times = StreamTimes()
    times.sent = 24_000
    times.add_silence(12_000)
    times.sent += 24_000
    assert [times.caller_ms(at_s) for at_s in (0.5, 1.0, 1.25, 1.5, 2.0, 9.0)] == [
        500,
        1000,
        1000,
        1000,
        1500,
        2000,
    ]
    for _ in range(200):
        times.add_silence(1_000)
    assert times.caller_ms(times.sent / 24_000) == 2_000


def test_words_of_the_service_are_read():
    words = (HostedWord("Hello,", 100, 300, None), HostedWord("there.", 320, 500, None))
    assert hosted_words(words) == words
