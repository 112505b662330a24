"""A full-duplex line of the measurement: a mocked engine in the real processor, audio every 20 ms, a sink.

The engine has configured costs, during which its thread sleeps. Everything else is as in a call: Pipecat's
pipeline and its queues, the processor, its ticker, an engine thread for each session. On a virtual clock
nothing sleeps and jobs run where they are submitted.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pipecat.frames.frames import Frame, InputAudioRawFrame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import UnitTaken
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.units import Tick, Vote
from parley.models.omni import OmniEngine, Preparation, UnitResult
from parley.models.omni.phases import EngineCall, Phases, checked_audio
from parley.processors.duplex.omni import DuplexOmniProcessor
from parley.processors.duplex.settings import DuplexTuning
from parley.processors.duplex.succession import EngineSource
from parley.processors.duplex.tick import TickSettings
from parley.runtime.engine_thread import EngineThread
from parley.runtime.event_stream import CallEvents

RATE_HZ = 16_000
FRAME_MS = 20
FRAME = bytes(RATE_HZ * FRAME_MS // 1000 * PCM_BYTES_PER_SAMPLE)


async def _prepare() -> Preparation:
    return Preparation()


@dataclass(frozen=True)
class Mock:
    """Behaviour of the mocked engine.

    Attributes:
        unit_ms: of a unit.
        cost_ms: duration of ``generate``.
        finalize_ms: duration of ``finalize``.
        speaks: returns true when it speaks in unit n.
        sleeps: true when its costs are real. False on a virtual clock.
    """

    unit_ms: int = 80
    cost_ms: float = 0.0
    finalize_ms: float = 0.0
    speaks: Callable[[int], bool] = lambda _unit: False
    sleeps: bool = True


class MockHost:
    """Host of mocked engines; see ``OmniHost``.

    Args:
        mock: behaviour of its engines.
    """

    sessions: int | None = None
    takes_frames = False

    def __init__(self, mock: Mock) -> None:
        self._mock = mock

    def open_engine(self) -> OmniEngine:
        """Open a mocked engine."""
        return _MockEngine(self._mock)

    def close(self) -> None:
        """Do nothing: the host holds no resources."""


class _MockEngine:
    """Engine that costs the configured time and speaks a tone; see ``OmniEngine``."""

    input_rate_hz = output_rate_hz = RATE_HZ
    context_units: int | None = None
    takes_frames = False

    def __init__(self, mock: Mock) -> None:
        self.unit_ms = self.first_unit_ms = mock.unit_ms
        self._mock = mock
        self._phases = Phases()
        self._unit = 0
        samples = RATE_HZ * mock.unit_ms // 1000
        self._tone = (0.2 * np.sin(2 * np.pi * 440 * np.arange(samples) / RATE_HZ)).astype(np.float32)

    def prepare(self, preparation: Preparation) -> None:
        self._phases.enter(EngineCall.PREPARE)
        self._unit = 0

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        self._phases.enter(EngineCall.PREFILL)
        checked_audio(audio, len(self._tone), frames=len(frames))

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        active = self._phases.enter(EngineCall.GENERATE)
        self._cost(self._mock.cost_ms)
        unit, self._unit = self._unit, self._unit + 1
        if not active or force_listen or not self._mock.speaks(unit):
            return UnitResult(Vote.LISTEN)
        return UnitResult(Vote.SPEAK, " word", self._tone, end_of_turn=not self._mock.speaks(unit + 1))

    def finalize(self) -> None:
        self._phases.enter(EngineCall.FINALIZE)
        self._cost(self._mock.finalize_ms)

    def stop(self) -> None:
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        self._phases.enter(EngineCall.CLEANUP)

    def _cost(self, cost_ms: float) -> None:
        if cost_ms and self._mock.sleeps:
            time.sleep(cost_ms / 1000)


class Here(Executor):
    """Executor that runs jobs where they are submitted: a thread would not follow a virtual clock."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the job; return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Sink(FrameProcessor):
    """Recorder of the engine's output: times and lengths of the audio.

    Attributes:
        pieces: loop time in seconds and samples of each piece.
    """

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.pieces: list[tuple[float, int]] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            at_s = asyncio.get_running_loop().time()
            self.pieces.append((at_s, len(frame.audio) // PCM_BYTES_PER_SAMPLE))
        await self.push_frame(frame, direction)


@dataclass
class Line:
    """Data of one session.

    Attributes:
        ticks: of all units.
        pieces: see ``Sink``.
        made: number of samples that the engine made.
        lost: number of samples of speech that were dropped because too many waited.
        holes: number of times that speech went on later than it was due.
        lead_ms: time before its due time at which a piece leaves.
    """

    ticks: list[Tick] = field(default_factory=list)
    pieces: list[tuple[float, int]] = field(default_factory=list)
    made: int = 0
    lost: int = 0
    holes: int = 0
    lead_ms: int = 0


async def hold(mock: Mock, duration_s: float, *, offset_s: float = 0.0, deferred: bool = True) -> Line:
    """Run one session for ``duration_s``, with silence from the caller in real time of the running loop."""
    line, sink = Line(), Sink()
    settings = DuplexTuning(tick=TickSettings(deferred_finalize=deferred))
    line.lead_ms = settings.voice.lead_ms

    def on_unit_taken(event: UnitTaken) -> None:
        line.ticks.append(event.tick)
        line.made += event.tick.said_ms * RATE_HZ // 1000

    events = CallEvents()
    events.subscribe(UnitTaken, on_unit_taken)
    omni = DuplexOmniProcessor(
        EngineSource([MockHost(mock)], _prepare, (lambda: EngineThread("omni")) if mock.sleeps else Here),
        events,
        settings=settings,
    )
    worker = PipelineWorker(
        Pipeline([omni, sink]),
        params=PipelineParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ),
        enable_turn_tracking=False,
        enable_rtvi=False,
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.sleep(offset_s)
    running = asyncio.create_task(runner.run(), name="line")
    try:
        await _feed(worker, duration_s)
        # The output of the last unit still leaves.
        await asyncio.sleep(mock.unit_ms / 1000 + 0.2)
        if omni.paced is not None:
            line.lost, line.holes = omni.paced.lost_samples, omni.paced.holes
    finally:
        await runner.cancel(reason="the measurement is over")
        await asyncio.wait({running}, timeout=5)
        running.cancel()
    line.pieces = sink.pieces
    return line


async def _feed(worker: PipelineWorker, duration_s: float) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(int(duration_s * 1000 / FRAME_MS)):
        frame = InputAudioRawFrame(audio=FRAME, sample_rate=RATE_HZ, num_channels=1)
        await worker.queue_frame(frame)
        left_s = began_s + (number + 1) * FRAME_MS / 1000 - loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
