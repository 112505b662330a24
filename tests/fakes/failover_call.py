"""Pipeline of a call whose service voices have an embedded one after them, with a paced output."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from pipecat.frames.frames import (
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection

from parley.core.call_events import CallEvent, EngineFailedOver
from parley.core.failover import FailoverReason
from parley.models.tts import TextToSpeech
from parley.processors.speech.failover_tts import FailoverTtsService
from parley.processors.speech.service_voice import ServiceVoice
from parley.runtime.event_stream import CallEvents
from tests.fakes.executor import InlineExecutor
from tests.fakes.paced_output import Collector, PacedOutput
from tests.fakes.pipecat_clock import PipecatClock
from tests.fakes.pipeline_run import run_pipeline
from tests.fakes.spoken_call import SpokenCall

RATE_HZ = 16_000
MOST_S = 200


class FailoverCall(SpokenCall):
    """Call with a voice that has another one after it.

    Args:
        services: service voices at ``RATE_HZ``.
        embedded: the voice after them.
        speaks_on: see ``FailoverVoices``.

    Attributes:
        published: events of the call.
    """

    def __init__(
        self, services: Sequence[ServiceVoice], embedded: TextToSpeech, *, speaks_on: bool = True
    ) -> None:
        self.embedded = embedded
        events = CallEvents()
        self.published: list[CallEvent] = []
        events.subscribe(CallEvent, self.published.append)
        self.service = FailoverTtsService(
            services,
            embedded,
            last_name="embedded",
            executor=InlineExecutor(),
            events=events,
            speaks_on=speaks_on,
        )
        self.upstream = Collector(FrameDirection.UPSTREAM)
        self.made = Collector(FrameDirection.DOWNSTREAM)
        self.output = PacedOutput()
        self.heard = Collector(FrameDirection.DOWNSTREAM)
        self.asked_s: list[float] = []
        worker = PipelineWorker(
            Pipeline([self.upstream, self.service, self.made, self.output, self.heard]),
            params=PipelineParams(audio_out_sample_rate=RATE_HZ),
            clock=PipecatClock(),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        super().__init__(worker)

    async def says(self, *pieces: str) -> None:
        self.asked_s.append(asyncio.get_running_loop().time())
        await super().says(*pieces)

    def words(self) -> list[str]:
        return [frame.text for frame in self.heard.of(TTSTextFrame)]

    def tones(self) -> list[str]:
        """Return the voices that sounded, in order: by the pitch of each stretch of 20 ms."""
        audio = self.output.audio()
        audio = audio[: len(audio) // 320 * 320].reshape(-1, 320)
        found: list[str] = []
        for piece in audio:
            if np.abs(piece).max() < 1_000:
                continue
            hz = np.fft.rfft(piece * np.hanning(320)).__abs__().argmax() * RATE_HZ / 320
            voice = "service" if hz > 660 else "embedded"
            if not found or found[-1] != voice:
                found.append(voice)
        return found

    def changes(self) -> list[tuple[str, str, FailoverReason]]:
        return [
            (each.engine, each.successor, each.reason)
            for each in self.published
            if isinstance(each, EngineFailedOver)
        ]

    def first_sound_s(self) -> float:
        """Return the seconds from the last reply to its first audio."""
        asked_s = self.asked_s[-1]
        audio = (at for at, frame in self.made.frames if isinstance(frame, TTSAudioRawFrame))
        return next(at for at in audio if at >= asked_s) - asked_s

    async def hold(self, script: Callable[[], Awaitable[None]]) -> None:
        """Run the pipeline until the script is over."""
        await run_pipeline(self.worker, script, within_s=MOST_S)
