"""Line of a call whose recogniser is a service with an embedded one after it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import CallEvent, EngineFailedOver
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.evals.harness.services.cloud_recognisers import WORD_MS
from parley.models.stt import RecogniserTraits, Transcript
from parley.processors.perception.engine_stt import EngineSttService
from parley.processors.perception.failover_stt import FailoverSttService
from parley.runtime.event_stream import CallEvents
from tests.fakes.paced_output import Collector
from tests.fakes.pipecat_clock import PipecatClock
from tests.fakes.stt import ScriptedStt
from tests.in_place_engine import InPlaceEngine
from tests.voices import silence, tone

RATE_HZ = 16_000
FRAME_BYTES = 640
ONSET_MS, END_MS = 120, 200
# Words of the embedded recogniser in each utterance.
EMBEDDED = ("one", "two", "three", "four", "five")


def accept(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result


class RecogniserLine:
    """Call with a service and an embedded recogniser after it, which writes a word each 200 ms.

    Args:
        name: name of the service's row.
        build: returns a new service.
        breaker: circuit breaker of the row.
        traits: properties of the service.
        answer_s: deadline of its words after a voice, where it has one of its own.

    Attributes:
        published: events of the call.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Awaitable[FrameProcessor]],
        breaker: CircuitBreaker,
        *,
        traits: RecogniserTraits | None = None,
        answer_s: float | None = None,
    ) -> None:
        events = CallEvents()
        self.breaker = breaker
        self.published: list[CallEvent] = []
        events.subscribe(CallEvent, self.published.append)

        self.recogniser = FailoverSttService(
            name,
            build,
            self.breaker,
            fallback="scripted",
            build_fallback=lambda: EngineSttService(InPlaceEngine(ScriptedStt(), accept)),
            events=events,
            rate_hz=RATE_HZ,
            traits=traits,
            answer_s=answer_s,
            audio_passthrough=False,
        )
        self.upstream = Collector(FrameDirection.UPSTREAM)
        self.heard = Collector(FrameDirection.DOWNSTREAM)
        self.worker = PipelineWorker(
            Pipeline([self.upstream, self.recogniser, self.heard]),
            params=PipelineParams(audio_in_sample_rate=RATE_HZ),
            clock=PipecatClock(),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def sends(self, pcm: bytes) -> None:
        """Send audio in real time."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number, start in enumerate(range(0, len(pcm), FRAME_BYTES)):
            await asyncio.sleep(max(0.0, began_s + number * 0.02 - loop.time()))
            await self.worker.queue_frame(InputAudioRawFrame(pcm[start : start + FRAME_BYTES], RATE_HZ, 1))

    async def speaks(self, words: int, *, pause_ms: int = 1_500) -> None:
        """Say some words and pause; voice activity reports it as Silero does."""
        voice = tone(words * WORD_MS)
        await self.sends(voice[: ONSET_MS * 32])
        await self.worker.queue_frame(VADUserStartedSpeakingFrame(start_secs=ONSET_MS / 1000))
        await self.sends(voice[ONSET_MS * 32 :] + silence(END_MS))
        await self.worker.queue_frame(VADUserStoppedSpeakingFrame(stop_secs=END_MS / 1000))
        await self.sends(silence(pause_ms))

    async def hold(self, script: Any) -> None:
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)

        async def run_script() -> None:
            await script()
            await self.worker.queue_frame(EndFrame())

        async with asyncio.timeout(60):
            await asyncio.gather(runner.run(), run_script())

    def finals(self) -> list[str]:
        return [word for frame in self.heard.of(TranscriptionFrame) for word in frame.text.split()]

    def reasons(self) -> list[FailoverReason]:
        return [each.reason for each in self.published if isinstance(each, EngineFailedOver)]
