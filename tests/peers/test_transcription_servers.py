"""Recognisers without partial texts, against servers that fail in many ways: whose words count."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from pipecat.frames.frames import ErrorFrame, TranscriptionFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.failover import CircuitBreaker, FailoverReason
from parley.evals.harness.services.cloud_recognisers import KEY, WORDS
from parley.models.stt import recogniser_traits
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.services import STT_SERVICES, GroqSttSettings, answer_deadline_s
from parley.processors.service_rows import ServiceRow, Shared
from tests.fakes.recogniser_line import EMBEDDED, RecogniserLine
from tests.fakes.speech_servers import closed_port
from tests.fakes.transcription_servers import TranscriptionFault, TranscriptionServer

TIMEOUT_S = 1.2


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def line_to(url: str, http: aiohttp.ClientSession) -> RecogniserLine:
    """Return a call with the service that speaks to a server, and an embedded recogniser after it."""
    settings = GroqSttSettings(base_url=url, request_timeout_ms=round(TIMEOUT_S * 1000))
    row: ServiceRow[Any] = STT_SERVICES.create("groq", settings)

    async def build() -> FrameProcessor:
        return row.build(Shared(http=http))

    breaker = CircuitBreaker(max_failures=1, cool_down_ms=60_000)
    return RecogniserLine(
        row.name, build, breaker, traits=recogniser_traits(row), answer_s=answer_deadline_s(row)
    )


def order(line: RecogniserLine) -> list[bool | str]:
    """Return reports of owed words, and the words, in their order."""
    return [
        frame.is_owed if isinstance(frame, WordsOwedFrame) else frame.text
        for _, frame in line.heard.frames
        if isinstance(frame, WordsOwedFrame | TranscriptionFrame)
    ]


async def test_a_service_that_works_transcribes_everything(http: aiohttp.ClientSession):
    async with TranscriptionServer(delay_s=[0.5]) as server:
        line = line_to(server.url, http)

        async def script() -> None:
            # Longer without words than a streaming recogniser may be.
            await line.speaks(12, pause_ms=400)
            await line.speaks(3)

        await line.hold(script)
    assert line.finals() == [*WORDS, *WORDS[:5]]
    assert order(line) == [True, " ".join([*WORDS, *WORDS[:2]]), False, True, " ".join(WORDS[2:5]), False]
    assert line.reasons() == [] and line.breaker.is_closed


@pytest.mark.parametrize(
    "fault",
    [
        None,
        TranscriptionFault.UNAUTHORIZED,
        TranscriptionFault.TOO_MANY,
        TranscriptionFault.HANGS,
        TranscriptionFault.DROPS,
        TranscriptionFault.CUT,
        TranscriptionFault.GARBAGE,
    ],
)
async def test_the_words_of_every_fault_are_those_of_the_embedded_recogniser_and_each_once(
    fault: TranscriptionFault | None, http: aiohttp.ClientSession
):
    async with TranscriptionServer(fault=fault or TranscriptionFault.NONE) as server:
        line = line_to(f"http://127.0.0.1:{closed_port()}/v1" if fault is None else server.url, http)

        async def script() -> None:
            await line.speaks(5, pause_ms=round(TIMEOUT_S * 1000) + 500)
            await line.speaks(3)

        await line.hold(script)
    assert line.finals() == [*EMBEDDED, *EMBEDDED[:3]]
    # The words of the first voice are owed from its end until the other recogniser has found them.
    assert order(line)[:3] == [True, " ".join(EMBEDDED), False]
    assert line.reasons() == [FailoverReason.ERROR]
    assert not line.breaker.is_closed
    assert not line.upstream.of(ErrorFrame)
    # Nothing is repeated, and the second voice is not sent.
    assert len(server.requests) == (0 if fault is None else 1)


async def test_words_before_a_failure_are_not_heard_again(http: aiohttp.ClientSession):
    async with TranscriptionServer() as server:
        line = line_to(server.url, http)

        async def script() -> None:
            # Two voices of one turn; the second one is refused.
            await line.speaks(4, pause_ms=400)
            server.fault = TranscriptionFault.TOO_MANY
            await line.speaks(4)

        await line.hold(script)
    assert line.finals() == [*WORDS[:4], *EMBEDDED[:4]]
    assert line.reasons() == [FailoverReason.ERROR]


async def test_the_beginning_of_a_voice_is_kept_while_the_words_of_the_one_before_are_owed(
    http: aiohttp.ClientSession,
):
    async with TranscriptionServer(delay_s=[0.9]) as server:
        line = line_to(server.url, http)

        async def script() -> None:
            # The words of the first voice come in the middle of the second one, which is then refused.
            await line.speaks(2, pause_ms=200)
            server.fault = TranscriptionFault.TOO_MANY
            await line.speaks(5)

        await line.hold(script)
    assert line.finals() == [*WORDS[:2], *EMBEDDED]
    assert line.reasons() == [FailoverReason.ERROR]


async def test_a_noise_in_which_the_service_finds_no_words_is_no_failure(http: aiohttp.ClientSession):
    # Whisper writes words for it, and is not sure of them.
    async with TranscriptionServer(no_speech=(0.9, -1.4)) as server:
        line = line_to(server.url, http)

        async def script() -> None:
            await line.speaks(3)
            server.no_speech = (0.0, -0.1)
            await line.speaks(2)

        await line.hold(script)
    assert line.finals() == list(WORDS[3:5])
    assert line.reasons() == [] and line.breaker.is_closed
