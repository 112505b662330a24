"""A full-duplex engine that plays a script, with the playout clock and a track, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

import numpy as np
from pipecat.frames.frames import EndFrame, Frame, InputAudioRawFrame, InputImageRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import CallEvent, EnginesGivenUp, PauseExpired, ReplyFinished, UnitTaken
from parley.core.timeline import HeardReply
from parley.core.units import Tick, Vote
from parley.models.omni import Preparation
from parley.processors.duplex.contents import Contents
from parley.processors.duplex.omni import DuplexOmniProcessor
from parley.processors.duplex.outlet import Outlet
from parley.processors.duplex.settings import DuplexTuning
from parley.processors.duplex.succession import EngineSource
from parley.processors.playout.playout import Playout
from parley.runtime.event_stream import CallEvents
from tests import virtual_time
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.track_output import RATE_HZ, TrackOutput


def script(votes: str, **changes: object) -> OmniScript:
    """Return a script of one letter for each unit: l, s, b, y; the last one goes on."""
    kinds = {"l": Vote.LISTEN, "s": Vote.SPEAK, "b": Vote.BACKCHANNEL, "y": Vote.YIELD}
    return OmniScript(
        votes=lambda unit: kinds[votes[min(unit, len(votes) - 1)]],
        output_rate_hz=RATE_HZ,
        **changes,  # type: ignore[arg-type]
    )


class Watch(FrameProcessor):
    """Processor that records the frames that pass."""

    def __init__(self) -> None:
        # In the product nothing waits between the output and the tap after it.
        super().__init__(enable_direct_mode=True)
        self.frames: list[Frame] = []
        self.at_s: list[float] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self.at_s.append(asyncio.get_running_loop().time())
        await self.push_frame(frame, direction)


class Call:
    """A call of full duplex: the duplex processor, entry, output and exit.

    ``costs_ms`` is the time of each engine call, by name; None never returns. ``executors`` makes the
    engine's thread in place of one with these costs.
    """

    def __init__(
        self,
        *scripts: OmniScript,
        costs_ms: dict[str, float | None] | None = None,
        executors: Callable[[], Executor] | None = None,
        has_voice: bool = False,
        holds_first: bool = False,
        reports_units: bool = False,
        uses_pipeline_audio: bool = True,
        **changes: object,
    ) -> None:
        self.hosts = [ScriptedOmniHost(each) for each in scripts]
        self.replies: list[HeardReply] = []
        self.ticks: list[Tick] = []
        self.apologies: list[float] = []
        self.given_up = self.pauses_expired = 0
        self.history: tuple[tuple[str, str], ...] = ()
        self.began_s = 0.0
        self.events = events = CallEvents()
        events.subscribe(ReplyFinished, self._on_finished)
        events.subscribe(EnginesGivenUp, self._on_given_up)
        events.subscribe(PauseExpired, self._on_pause_expired)
        events.subscribe(UnitTaken, lambda event: self.ticks.append(event.tick))
        self.playout = Playout(events=events)
        costs = costs_ms or {}

        async def prepare() -> Preparation:
            return Preparation("Be kind.", history=self.history)

        def took_s(name: str) -> float | None:
            ms = costs.get(name.strip("_"), 0.0)
            return None if ms is None else ms / 1000

        self.duplex = DuplexOmniProcessor(
            EngineSource(self.hosts, prepare, executors or (lambda: TimedExecutor(took_s))),
            events,
            outlet=Outlet(
                playout=self.playout,
                contents=Contents(RATE_HZ, lambda _content: None) if has_voice else None,
                holds_first=holds_first,
                reports_units=reports_units,
            ),
            settings=DuplexTuning.model_validate(changes),
            apologise=self._apologise,
            uses_pipeline_audio=uses_pipeline_audio,
        )
        _, entry, exit_ = self.playout.taps()
        self.output, self.taken, self.watch = TrackOutput(self.playout.played), Watch(), Watch()
        self.worker = PipelineWorker(
            Pipeline([self.duplex, entry, self.output, self.taken, exit_, self.watch]),
            params=PipelineParams(audio_in_sample_rate=16_000, audio_out_sample_rate=RATE_HZ),
            enable_rtvi=False,
            enable_turn_tracking=False,
            idle_timeout_secs=None,
        )

    async def give(self, frame: Frame) -> None:
        await self.worker.queue_frame(frame)

    async def talk(self, seconds: float, *, rate_hz: int = 16_000, image: bytes | None = None) -> None:
        for _ in range(round(seconds * 50)):
            await self.give(InputAudioRawFrame(bytes(rate_hz // 50 * 2), rate_hz, 1))
            if image is not None:
                await self.give(InputImageRawFrame(image, (0, 0), "JPEG"))
            await asyncio.sleep(0.02)

    def sounds_ms(self) -> list[tuple[int, int]]:
        """Return the audible intervals at the peer, in ms from the start of the call."""
        spans: list[tuple[int, int]] = []
        for at_s, pcm in self.output.sent:
            if not np.frombuffer(pcm, np.int16).any():
                continue
            at_ms, length_ms = round((at_s - self.began_s) * 1000), len(pcm) // 2 * 1000 // RATE_HZ
            if spans and at_ms - spans[-1][1] <= 1:
                spans[-1] = spans[-1][0], at_ms + length_ms
            else:
                spans.append((at_ms, at_ms + length_ms))
        return spans

    def _on_finished(self, event: ReplyFinished) -> None:
        if event.heard.is_known:
            self.replies.append(event.heard)

    async def _apologise(self) -> None:
        self.apologies.append(asyncio.get_running_loop().time())

    def _on_given_up(self, _event: CallEvent) -> None:
        self.given_up += 1

    def _on_pause_expired(self, _event: CallEvent) -> None:
        self.pauses_expired += 1


def play(call: Call, caller: Callable[[Call], Awaitable[None]]) -> Call:
    """Run a call to its end."""

    async def run() -> Call:
        call.began_s = asyncio.get_running_loop().time()
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(call.worker)

        async def work() -> None:
            try:
                await caller(call)
            finally:
                await call.give(EndFrame())

        task = asyncio.create_task(work())
        await runner.run()
        await task
        return call

    return virtual_time.run(run())
