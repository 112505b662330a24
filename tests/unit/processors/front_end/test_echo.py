"""The echo processor in a running pipeline, on virtual time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pipecat.frames.frames import ErrorFrame, Frame, InputAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.echo import EchoCanceller
from parley.models.echo.control import EchoControl
from parley.models.echo.webrtc import WebRtcEcho
from parley.processors.front_end.echo import EchoProcessor
from parley.turn_taking.barge_in.self_voice import SelfVoice
from tests import virtual_time
from tests.fakes.echo import FailingEcho, HalvingEcho, PassingEcho
from tests.speakerphone import RATE_HZ, echo, spoken

PIECE_SAMPLES = 320


class Ear(FrameProcessor):
    """Recorder in the place of voice activity."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = bytearray()
        self.texts: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            assert frame.num_frames * 2 == len(frame.audio)
            self.heard += frame.audio
        elif isinstance(frame, TTSSpeakFrame):
            self.texts.append(frame.text)
        await self.push_frame(frame, direction)


class Mouth(FrameProcessor):
    """Processor before the echo processor that records the errors from it."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[ErrorFrame] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame)
        await self.push_frame(frame, direction)


def microphone(pcm: bytes, rate_hz: int = RATE_HZ) -> InputAudioRawFrame:
    return InputAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1)


async def call(processor: EchoProcessor, near: np.ndarray, far: np.ndarray) -> tuple[Ear, Mouth]:
    """Run a call: the bot's packets and the microphone's pieces, each at its time."""
    ear, mouth = Ear(), Mouth()
    worker = PipelineWorker(
        Pipeline([mouth, processor, ear]),
        enable_rtvi=False,
        enable_turn_tracking=False,
        idle_timeout_secs=None,
    )
    heard, played = float_to_pcm16(near), float_to_pcm16(far)

    async def talk() -> None:
        for at in range(0, len(near) - PIECE_SAMPLES + 1, PIECE_SAMPLES):
            span = slice(2 * at, 2 * (at + PIECE_SAMPLES))
            processor.played(played[span], RATE_HZ)
            await asyncio.sleep(PIECE_SAMPLES / RATE_HZ)
            await worker.queue_frame(microphone(heard[span]))
        await worker.queue_frame(TTSSpeakFrame("the end"))
        await worker.stop_when_done()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), talk())
    return ear, mouth


def loss_db(near: np.ndarray, left: np.ndarray) -> float:
    return 10 * float(np.log10(np.mean(near**2) / max(float(np.mean(left**2)), 1e-12)))


def test_what_stands_after_hears_no_bot() -> None:
    far = spoken(5)
    near = echo(far, 150.0)
    voice = SelfVoice()
    processor = EchoProcessor(EchoControl(WebRtcEcho()), executor=None, self_voice=voice)
    ear, mouth = virtual_time.run(call(processor, near, far))
    left = pcm16_to_float(bytes(ear.heard))
    assert len(left) == len(near) // PIECE_SAMPLES * PIECE_SAMPLES
    assert loss_db(near[3 * RATE_HZ :], left[3 * RATE_HZ :]) > 35
    assert mouth.errors == []
    assert voice.return_db < SelfVoice().return_db - 5


def test_the_work_runs_in_the_executor_and_keeps_its_order() -> None:
    near = 0.1 * np.random.default_rng(1).standard_normal(RATE_HZ).astype(np.float32)
    far = np.zeros_like(near)
    control = EchoControl(PassingEcho())
    with ThreadPoolExecutor(1) as executor:
        ear, _ = virtual_time.run(call(EchoProcessor(control, executor=executor), near, far))
    assert bytes(ear.heard) == float_to_pcm16(near)
    assert ear.texts == ["the end"]


def test_a_failing_engine_is_told_once_and_the_caller_is_heard_as_recorded() -> None:
    near = 0.1 * np.random.default_rng(2).standard_normal(RATE_HZ).astype(np.float32)
    control = EchoControl(FailingEcho(20))
    ear, mouth = virtual_time.run(call(EchoProcessor(control, executor=None), near, np.zeros_like(near)))
    assert len(mouth.errors) == 1
    assert bytes(ear.heard) == float_to_pcm16(near)


@pytest.mark.parametrize(
    ("engine", "left"), [(HalvingEcho(), 0.5), (FailingEcho(20), 1.0)], ids=["works", "fails"]
)
def test_the_cancellers_own_signal_is_shown_and_the_microphone_when_it_fails(
    engine: EchoCanceller, left: float
) -> None:
    near = 0.1 * np.random.default_rng(3).standard_normal(RATE_HZ).astype(np.float32)
    shown = bytearray()
    processor = EchoProcessor(EchoControl(engine), executor=None, on_cancelled=shown.extend)
    virtual_time.run(call(processor, near, np.zeros_like(near)))
    assert bytes(shown) == float_to_pcm16(left * pcm16_to_float(float_to_pcm16(near)))


def test_after_a_failed_engine_no_voice_is_the_bots_own() -> None:
    far = spoken(3)
    near = echo(far, 100.0)
    voice = SelfVoice()
    processor = EchoProcessor(EchoControl(FailingEcho(200)), executor=None, self_voice=voice)
    own: list[bool] = []

    async def look() -> None:
        # At 1.9 s the microphone has the bot only; the engine fails at 2.0 s.
        for _ in range(2):
            await asyncio.sleep(1.9 if not own else 0.5)
            own.append(voice.is_own())

    async def both() -> None:
        await asyncio.gather(call(processor, near, far), look())

    virtual_time.run(both())
    assert own == [True, False]


def test_a_packet_of_unknown_rate_is_no_reference() -> None:
    control = EchoControl(PassingEcho())
    processor = EchoProcessor(control, executor=None)

    async def tell() -> None:
        processor.played(bytes(640), 0)
        processor.played(float_to_pcm16(np.full(320, 0.5, np.float32)), RATE_HZ)

    virtual_time.run(tell())
    _, levels = control.process(bytes(640), 1_000_020_000)
    assert max(level.far_db for level in levels) == pytest.approx(-6.0, abs=0.1)


def test_a_packet_may_be_told_later_than_it_left() -> None:
    control = EchoControl(PassingEcho())
    processor = EchoProcessor(control, executor=None)
    processor.played(float_to_pcm16(np.full(320, 0.5, np.float32)), RATE_HZ, 5_000_000)
    _, levels = control.process(bytes(2 * 960), 5_040_000)
    # 60 ms that end 20 ms after the packet, which lasted for 20 ms.
    assert [round(level.far_db) for level in levels] == [-100, -100, -6, -6, -100, -100]


def test_a_call_that_ends_with_its_process_ends_all_the_same() -> None:
    control = EchoControl(PassingEcho())
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    asyncio.run(EchoProcessor(control, executor=executor).cleanup())
    assert control.is_closed


@pytest.mark.parametrize(("rate_hz", "channels"), [(8_000, 1), (16_000, 2)])
def test_another_rate_is_a_wrong_configuration(rate_hz: int, channels: int) -> None:
    processor = EchoProcessor(EchoControl(PassingEcho()), executor=None)
    frame = InputAudioRawFrame(audio=bytes(640), sample_rate=rate_hz, num_channels=channels)
    assert not processor.accepts(frame)


def test_the_canceller_is_released_with_the_call() -> None:
    control = EchoControl(PassingEcho())
    quiet = np.zeros(3_200, np.float32)
    virtual_time.run(call(EchoProcessor(control, executor=None), quiet, quiet))
    assert control.is_closed
