"""Calls whose recogniser and voice are in the deployment's own workers, some of which are killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame, run_test

from parley.configs.deployment import Choice, Deployment, Hearing, Speaking
from parley.core.errors import ConfigError
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import plan as plan_of
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from tests.voices import say, silence

pytestmark = pytest.mark.paired

QUESTION = "how much is a replacement card"
AUDIO = silence(400) + say(QUESTION) + silence(200)
EARS: dict[str, Any] = {
    "engine": "pocketsphinx",
    "settings": {"cache_dir": "out/test-cache"},
    "limits": {"streams": 4},
}
MOUTH: dict[str, Any] = {"engine": "flite"}
POOL = Choice(name="pool", settings={"request_timeout_s": 1.5})


def deployment(*workers: WorkerSpec, **speaking: Any) -> Deployment:
    return Deployment(
        hearing=Hearing(stt=POOL),
        speaking=Speaking(tts=POOL, **speaking),
        workers=PoolTuning(workers=workers, silent_ms=400, dead_ms=2_000, retry_ms=50),
    )


@asynccontextmanager
async def engines(**speaking: Any) -> AsyncIterator[Engines]:
    workers = [WorkerSpec(name=name, **EARS) for name in ("ears0", "ears1")]
    chosen = deployment(*workers, WorkerSpec(name="mouth", **MOUTH), **speaking)
    async with await Engines.load(chosen) as loaded:
        await until(lambda: are_there(loaded), 30)
        yield loaded


def are_there(loaded: Engines) -> bool:
    assert loaded.pool is not None
    return all(facts.get("state") in ("idle", "busy") for facts in loaded.pool.workers().values())


def pid(loaded: Engines, worker: str) -> int:
    assert loaded.pool is not None
    process = loaded.pool.process(worker)
    assert process is not None and process.pid is not None
    return process.pid


def busy(loaded: Engines) -> str:
    """Return the recogniser that holds a stream; empty while none does."""
    assert loaded.pool is not None
    workers = loaded.pool.workers().items()
    return next((name for name, facts in workers if name != "mouth" and facts.get("streams")), "")


async def until(holds: Callable[[], object], within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def turning(at_most_ms: float) -> AsyncIterator[None]:
    """Assert that the loop keeps turning: nothing on it waits for a worker."""
    loop, late_s = asyncio.get_running_loop(), [0.0]

    async def pace() -> None:
        while True:
            due_s = loop.time() + 0.01
            await asyncio.sleep(0.01)
            late_s.append(loop.time() - due_s)

    pacing = asyncio.create_task(pace())
    try:
        yield
    finally:
        pacing.cancel()
    assert max(late_s) * 1000 < at_most_ms


async def asked(loaded: Engines, signal_number: int | None, rest_s: float) -> tuple[list[str], int]:
    """Ask one question and signal its worker in the middle; return the transcript and the errors."""
    frames = [InputAudioRawFrame(AUDIO[at : at + 640], 16_000, 1) for at in range(0, len(AUDIO), 640)]
    middle = len(frames) // 2

    async def trouble() -> None:
        if signal_number is not None:
            await until(lambda: busy(loaded), 10)
            await asyncio.sleep(0.3)
            os.kill(pid(loaded, busy(loaded)), signal_number)

    (down, up), _ = await asyncio.gather(
        run_test(
            await loaded.build_stt(),
            frames_to_send=[
                *frames[:20],
                VADUserStartedSpeakingFrame(start_secs=0.128),
                *frames[20:middle],
                SleepFrame(1.0),
                *frames[middle:],
                VADUserStoppedSpeakingFrame(stop_secs=0.2),
                SleepFrame(rest_s),
            ],
        ),
        trouble(),
    )
    heard = [frame.text for frame in down if isinstance(frame, TranscriptionFrame)]
    return heard, sum(isinstance(frame, ErrorFrame) for frame in up)


async def spoken(loaded: Engines, text: str) -> float:
    """Return the seconds of speech of one clause, by the pipeline's voice."""
    down, _ = await run_test(await loaded.build_tts(), frames_to_send=[TTSSpeakFrame(text), SleepFrame(0.5)])
    return sum(len(frame.audio) for frame in down if isinstance(frame, TTSAudioRawFrame)) / 32_000


async def test_a_call_is_heard_and_answered_by_workers() -> None:
    async with engines() as loaded:
        assert (await asked(loaded, None, 1.5)) == ([QUESTION], 0)
        assert await spoken(loaded, "It is five dollars and fifty cents.") > 1
        # The call has ended, and nothing of it is left.
        await until(lambda: not busy(loaded))


@pytest.mark.parametrize(("sent", "rest_s"), [(signal.SIGKILL, 8.0), (signal.SIGSTOP, 12.0)])
async def test_a_call_survives_the_loss_of_its_recogniser_in_the_middle_of_a_question(
    sent: int, rest_s: float
) -> None:
    async with engines() as loaded, turning(at_most_ms=750):
        heard, errors = await asked(loaded, sent, rest_s)
        assert (heard, errors) == ([QUESTION], 1)
        # The lost worker is there again.
        await until(lambda: are_there(loaded), 20)


async def test_a_call_has_its_answer_from_the_voice_after_while_its_worker_is_gone() -> None:
    async with engines(fallback=Choice(name="flite")) as loaded:
        assert await spoken(loaded, "It is five dollars and fifty cents.") > 1
        os.kill(pid(loaded, "mouth"), signal.SIGKILL)
        assert await spoken(loaded, "And that is all that there is to say.") > 1
        await until(lambda: are_there(loaded), 20)
        assert await spoken(loaded, "Now it is there again.") > 1


@pytest.mark.parametrize(
    ("choice", "workers", "message"),
    [
        (Choice(name="pool"), (), "hearing.stt: 'pool' means workers of this deployment"),
        (
            Choice(name="pool", settings={"workers": ["nobody"]}),
            (WorkerSpec(name="ears0", engine="pocketsphinx"),),
            "no worker is named 'nobody' .known: ears0.",
        ),
        (Choice(name="pool", settings={"colour": "red"}), (WorkerSpec(name="a", engine="x"),), "colour"),
    ],
)
def test_a_deployment_that_is_wrong_is_told(
    choice: Choice, workers: tuple[WorkerSpec, ...], message: str
) -> None:
    wrong = Deployment(hearing=Hearing(stt=choice), workers=PoolTuning(workers=workers))
    with pytest.raises(ConfigError, match=message):
        plan_of(wrong)
