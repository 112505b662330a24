"""The recogniser's process is killed while a caller speaks: real pocketsphinx, real processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pipecat.frames.frames import TranscriptionFrame
from pipecat.tests.utils import run_test

from parley.models.stt import Transcript
from parley.processors.perception.engine_stt import EngineSttService
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcess
from tests.peers.pocketsphinx_call import QUESTIONS, child, spoken


@asynccontextmanager
async def recogniser(spares: int) -> AsyncIterator[EnginePool[Transcript]]:
    pool = EnginePool([child()], spares=[child() for _ in range(spares)])
    await pool.start()
    pool.start_spares()
    try:
        async with asyncio.timeout(60):
            while not all(one.is_ready for one in pool.spares):
                await asyncio.sleep(0.01)
        yield pool
    finally:
        await pool.close()


async def heard(pool: EnginePool[Transcript], question: str) -> list[str]:
    # In real time, as a caller speaks.
    frames = spoken(question, frame_s=0.02, rest_s=3)
    down, _ = await run_test(EngineSttService(pool), frames_to_send=frames)
    return [frame.text for frame in down if isinstance(frame, TranscriptionFrame)]


async def dies_in_mid_word(victim: EngineProcess[Transcript], how: signal.Signals) -> None:
    async with asyncio.timeout(60):
        while not victim.utterances or victim.work.real_time_factor is None:
            await asyncio.sleep(0.01)
    assert victim.pid is not None
    os.kill(victim.pid, how)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
async def test_the_words_of_the_utterance_under_way_come_from_the_spare_process(how: signal.Signals) -> None:
    async with recogniser(spares=1) as pool:
        (victim,), (spare,) = pool.processes, pool.spares
        killing = asyncio.create_task(dies_in_mid_word(victim, how))
        assert await heard(pool, QUESTIONS[0]) == [QUESTIONS[0]]
        await killing
        # The spare received the whole utterance; the dead process was restarted and is the spare now.
        assert pool.processes == (spare,) and pool.spares == (victim,)
        assert victim.restarts == 1
        assert await heard(pool, QUESTIONS[1]) == [QUESTIONS[1]]


async def test_without_a_spare_the_words_are_late_and_the_next_call_hears() -> None:
    async with recogniser(spares=0) as pool:
        killing = asyncio.create_task(dies_in_mid_word(pool.processes[0], signal.SIGKILL))
        assert await heard(pool, QUESTIONS[0]) == [QUESTIONS[0]]
        await killing
        assert await heard(pool, QUESTIONS[1]) == [QUESTIONS[1]]
