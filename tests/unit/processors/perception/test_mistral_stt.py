"""Mistral's recogniser without a fallback, against a local server of its protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pipecat.frames.frames import (
    CancelFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection
from pipecat.workers.runner import WorkerRunner

from parley.processors.perception.hosted_words import hosted_words
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.services import STT_SERVICES, MistralSettings
from tests.fakes.cloud_recognisers import KEY, WORD_MS, WORDS, RecogniserFault, running_recogniser
from tests.fakes.mistral_server import MistralServer
from tests.fakes.paced_output import Collector
from tests.voices import silence, tone

RATE_HZ = 16_000
END_MS = 200


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)


@pytest.fixture
async def server() -> AsyncIterator[MistralServer]:
    async with running_recogniser(MistralServer) as running:
        yield running


class Line:
    """Call with the recogniser alone."""

    def __init__(self, url: str, **settings: object) -> None:
        fields = {"url": url, "final_timeout_ms": 500, **settings}
        row = STT_SERVICES.create("mistral", MistralSettings(**fields))  # type: ignore[arg-type]
        self.upstream, self.heard = Collector(FrameDirection.UPSTREAM), Collector(FrameDirection.DOWNSTREAM)
        self.worker = PipelineWorker(
            Pipeline([self.upstream, row.build(), self.heard]),
            params=PipelineParams(audio_in_sample_rate=RATE_HZ),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def speaks(self, words: int, *, after_ms: int = 0) -> None:
        """Say words of 200 ms after a silence, at once; no audio comes after the end of the voice."""
        await self.sends(silence(after_ms))
        await self.worker.queue_frame(VADUserStartedSpeakingFrame(start_secs=0.0))
        await self.sends(tone(words * WORD_MS) + silence(END_MS))
        await self.worker.queue_frame(VADUserStoppedSpeakingFrame(stop_secs=END_MS / 1000))

    async def sends(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), 640):
            await self.worker.queue_frame(InputAudioRawFrame(pcm[start : start + 640], RATE_HZ, 1))

    async def until(self, kind: type[Frame], count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard.of(kind)) < count:
                await asyncio.sleep(0.005)

    async def hold(self, script: Callable[[], Awaitable[None]]) -> None:
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)

        async def run_script() -> None:
            try:
                await script()
            finally:
                await self.worker.queue_frame(CancelFrame())

        async with asyncio.timeout(30):
            await asyncio.gather(runner.run(), run_script())

    def finals(self) -> list[TranscriptionFrame]:
        return self.heard.of(TranscriptionFrame)

    def order(self) -> list[bool | str]:
        """Return reports of owed words, and the words, in their order."""
        return [
            frame.is_owed if isinstance(frame, WordsOwedFrame) else frame.text
            for _, frame in self.heard.frames
            if isinstance(frame, WordsOwedFrame | TranscriptionFrame)
        ]


@pytest.mark.parametrize("tells_all", [False, True])
async def test_the_rest_of_a_text_comes_at_the_end_of_a_voice_and_each_text_once(
    tells_all: bool, server: MistralServer
):
    server.tells_all = tells_all
    line = Line(server.url, delay_ms=480)

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
    line = Line(server.url)

    async def script() -> None:
        for place, voice in enumerate(voices, start=1):
            await line.speaks(len(voice.split()))
            await line.until(WordsOwedFrame, 2 * place)

    await line.hold(script)
    assert [final.text for final in line.finals()] == list(voices)


async def test_words_that_come_only_with_the_end_of_a_text_are_heard(server: MistralServer):
    server.tells_all = server.holds_last = True
    line = Line(server.url)

    async def script() -> None:
        await line.speaks(5)
        await line.until(WordsOwedFrame, 2)
        await line.speaks(4)
        await line.until(WordsOwedFrame, 4)

    await line.hold(script)
    assert [final.text for final in line.finals()] == [" ".join(WORDS[:5]), " ".join(WORDS[5:9])]


async def test_words_have_the_times_of_their_voices(server: MistralServer):
    line = Line(server.url)

    async def script() -> None:
        await line.speaks(2, after_ms=400)
        await line.until(TranscriptionFrame, 1)
        await line.speaks(2, after_ms=1_000)
        await line.until(TranscriptionFrame, 2)

    await line.hold(script)
    first, second = (hosted_words(final.result) for final in line.finals())
    for words, began_ms in ((first, 400), (second, 2_000)):
        assert (words[0].start_ms, len(words)) == (began_ms, 2)
        assert words[0].end_ms <= words[1].start_ms
        assert words[1].end_ms == pytest.approx(began_ms + 2 * WORD_MS, abs=60)


async def test_text_whose_end_the_server_does_not_report_is_final_by_a_deadline():
    async with running_recogniser(MistralServer, RecogniserFault.NO_FINALS) as server:
        line = Line(server.url)

        async def script() -> None:
            await line.speaks(3)
            await line.until(WordsOwedFrame, 2)
            await line.speaks(2)
            await line.until(WordsOwedFrame, 4)

        await line.hold(script)
    first, second = " ".join(WORDS[:3]), " ".join(WORDS[3:5])
    assert line.order() == [True, first, False, True, second, False]


async def test_a_noise_owes_no_words(server: MistralServer):
    line = Line(server.url)

    async def script() -> None:
        await line.worker.queue_frame(VADUserStartedSpeakingFrame())
        await line.sends(tone(600, level=0.002))
        await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
        await line.until(WordsOwedFrame, 2)

    await line.hold(script)
    assert line.order() == [True, False]


async def test_a_lost_connection_is_opened_again_and_owes_no_words_of_the_last_one():
    async with running_recogniser(MistralServer, RecogniserFault.NO_FINALS) as server:
        line = Line(server.url, final_timeout_ms=5_000)

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
        line = Line(server.url)

        async def script() -> None:
            async with asyncio.timeout(10):
                while not line.upstream.of(ErrorFrame):
                    await line.sends(silence(60))
                    await asyncio.sleep(0.02)

        await line.hold(script)
    assert line.finals() == [] and server.connections > 1
