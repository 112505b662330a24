"""Calls whose process is stopped by its host: the audio of that time comes at once afterwards."""

import asyncio
from pathlib import Path

import pytest

from parley.core.media import float_to_pcm16
from parley.core.tiers import TierEvent
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from tests import virtual_time
from tests.sim.call import RunningCall, silence, simulate, voice

PIECE_MS, STOP_MS = 20, 2_600
PIECE_BYTES = INPUT_RATE_HZ * PIECE_MS // 1000 * 2


def stop_process(for_ms: int) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualLoop)
    loop.stand_still(for_ms / 1000)


@pytest.mark.parametrize(("stop_ms", "latest_ms"), [(0, 40), (STOP_MS, 250)])
def test_a_human_is_heard_without_the_delay_of_a_stop_a_second_after_it(
    stop_ms: int, latest_ms: int, tmp_path: Path
):
    spoke_ms: list[int] = []
    dropped_ms: list[int] = []

    async def human(running: RunningCall) -> None:
        await asyncio.sleep(1.0)
        running.call.conversation.change_tier(TierEvent.TAKEN)
        bridge = running.engines.bridges.find(running.call.conversation.session_id)
        assert bridge is not None
        loop = asyncio.get_running_loop()
        due_s = loop.time()

        async def speak(pcm: bytes) -> None:
            nonlocal due_s
            for at in range(0, len(pcm), PIECE_BYTES):
                due_s += PIECE_MS / 1000
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                bridge.to_caller.put(pcm[at : at + PIECE_BYTES])

        with bridge.used():
            await speak(float_to_pcm16(silence(1_000)))
            stop_process(stop_ms)
            # The audio of the stop comes at once, that of the next second in its own time.
            await speak(float_to_pcm16(silence(stop_ms + 1_000)))
            spoke_ms.append(round((loop.time() - virtual_time.START_S) * 1000))
            await speak(float_to_pcm16(voice(400)))
            await speak(float_to_pcm16(silence(3_500)))
            dropped_ms.append(bridge.to_caller.dropped_ms)

    call = simulate([silence(9_000)], tmp_path, concurrently=human, tail_ms=500)
    ((began_ms, ended_ms),) = call.bot_spans_ms()
    assert 0 <= began_ms - spoke_ms[0] <= latest_ms
    assert ended_ms - began_ms == 400
    assert dropped_ms == [0] if stop_ms == 0 else STOP_MS - 250 <= dropped_ms[0] <= STOP_MS


@pytest.mark.parametrize("stop_ms", [0, 900, 2_600])
def test_a_stop_within_a_pause_of_the_caller_ends_no_turn(stop_ms: int, tmp_path: Path):
    async def host(_running: RunningCall) -> None:
        # The pause is 100 ms old when voice activity has confirmed it.
        await asyncio.sleep(0.5 + 0.8 + 0.25)
        stop_process(stop_ms)

    caller = [silence(500), voice(800), silence(500), voice(800), silence(4_000)]
    call = simulate(caller, tmp_path, completeness=(0.1, 0.1, 0.95), concurrently=host, talks_over=True)
    assert [turn.user_text for turn in call.turns] == ["what is it what what is it what"]
