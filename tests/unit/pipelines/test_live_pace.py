"""A caller's audio in the call of a human at the desk, after stops of the process, on virtual time."""

import asyncio
from collections.abc import Sequence

import numpy as np
from pipecat.frames.frames import EndFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.workers.runner import WorkerRunner

from parley.pipelines.live_pace import play_live
from parley.pipelines.voice_bridges import VoiceBridge
from tests import virtual_time
from tests.fakes.track_output import RATE_HZ, TrackOutput

PIECE_MS = 20
# What may wait in the bridge (100 ms), and what the output holds.
LATEST_MS = 300
PIECE_SAMPLES = RATE_HZ * PIECE_MS // 1000


async def speak(bridge: VoiceBridge, stops_ms: Sequence[int], *, between_pieces: int) -> list[float]:
    """Speak pieces in their own time; return the time at which each was spoken.

    Pieces of 20 ms, numbered in their samples. The process is stopped after each ``between_pieces``; the
    audio of that time comes at once.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualLoop)
    began_s, spoken_s = loop.time(), list[float]()

    async def take(count: int) -> None:
        for _ in range(count):
            at_s = began_s + len(spoken_s) * PIECE_MS / 1000
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            spoken_s.append(at_s)
            bridge.hear(np.full(PIECE_SAMPLES, len(spoken_s), "<i2").tobytes())

    await take(between_pieces)
    for stop_ms in stops_ms:
        loop.stand_still(stop_ms / 1000)
        await take(stop_ms // PIECE_MS + between_pieces)
    return spoken_s


def delays_ms(stops_ms: Sequence[int], *, between_pieces: int) -> tuple[list[tuple[int, float]], VoiceBridge]:
    """Return the number of each packet that was heard, with its delay, and the bridge."""

    async def scenario() -> tuple[list[tuple[int, float]], VoiceBridge]:
        output, bridge = TrackOutput(lambda _pcm: None), VoiceBridge()
        worker = PipelineWorker(
            Pipeline([output]),
            params=PipelineParams(audio_out_sample_rate=RATE_HZ),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        await asyncio.sleep(0.5)
        playing = asyncio.create_task(play_live(bridge.to_human, output))
        with bridge.used():
            spoken_s = await speak(bridge, stops_ms, between_pieces=between_pieces)
        playing.cancel()
        await worker.queue_frame(EndFrame())
        await running
        heard = [(int(np.frombuffer(pcm, "<i2")[-1]), at_s) for at_s, pcm in output.sent if any(pcm)]
        return [(number, (at_s - spoken_s[number - 1]) * 1000) for number, at_s in heard], bridge

    return virtual_time.run(scenario())


def test_a_caller_is_heard_without_the_delay_of_a_stop_a_second_after_it():
    heard, bridge = delays_ms([2_500], between_pieces=150)
    after = [delay_ms for number, delay_ms in heard if number > 150 + 125 + 50]
    assert max(after) < LATEST_MS
    # The last 100 pieces have no gap.
    assert [number for number, _ in heard][-90:] == list(range(heard[-1][0] - 89, heard[-1][0] + 1))
    assert 2_000 < bridge.to_human.dropped_ms <= 2_500


def test_the_delay_of_many_stops_does_not_add_up():
    heard, _ = delays_ms([900, 250, 150, 2_500, 700, 220, 300, 180, 1_200], between_pieces=60)
    assert max(delay_ms for _, delay_ms in heard[-10:]) < LATEST_MS


def test_nothing_is_dropped_and_nothing_waits_without_a_stop():
    heard, bridge = delays_ms([], between_pieces=250)
    assert max(delay_ms for _, delay_ms in heard) < 60
    assert bridge.to_human.dropped_ms == 0
