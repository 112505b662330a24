"""Echo control and voice activity in a real process of their own: the same as here, and when it dies."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from pipecat.audio.vad.vad_analyzer import VADState

from core.errors import EngineError
from core.media import float_to_pcm16, pcm16_to_float
from models.echo.control import EchoControl, EchoControlSettings
from models.echo.webrtc import WebRtcEcho, WebRtcEchoSettings
from models.front_end import EnginePart, FrontEndSettings, Piece, controlled
from models.vad.meter import VoiceMeter, Window
from models.vad.silero import SileroSettings, SileroVad
from processors.front_end.hosted import HostedFrontEnd
from processors.front_end.vad import SharedVadAnalyzer, VadSettings
from runtime.engine_process import EngineProcess, EngineProcessSettings
from tests.speakerphone import RATE_HZ, echo, spoken
from tests.voices import say, silence

PIECE = 320
LEAST_DB = VadSettings().ears().least_db


@asynccontextmanager
async def hosting() -> AsyncIterator[EngineProcess[object]]:
    settings = FrontEndSettings(
        vad=EnginePart.of("silero", SileroSettings()),
        least_db=LEAST_DB,
        echo=EnginePart.of("webrtc", WebRtcEchoSettings()),
    )
    process: EngineProcess[object] = EngineProcess(
        "models.front_end:FrontEnd",
        settings,
        decode=dict,
        limits=EngineProcessSettings(request_timeout_s=2.0, restart_min_ms=10),
        name="front_end",
    )
    await process.start()
    try:
        yield process
    finally:
        await process.close()


async def killed(process: EngineProcess[object], caller: HostedFrontEnd) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while caller.failure is None or not process.is_ready:
            await asyncio.sleep(0.01)


def meter(vad: SileroVad) -> VoiceMeter:
    return VoiceMeter(vad.open_stream(), vad.window_samples, rate_hz=RATE_HZ, least_db=LEAST_DB)


async def test_a_caller_on_a_speakerphone_is_heard_as_in_this_process():
    far = spoken(5)
    near = echo(far, 90.0)
    voice_over = pcm16_to_float(say("no wait i meant something else", "rms"))[: 2 * RATE_HZ]
    near[3 * RATE_HZ :][: len(voice_over)] += voice_over
    played, heard = float_to_pcm16(far), float_to_pcm16(near)
    control, vad = EchoControl(WebRtcEcho()), SileroVad()
    here = meter(vad)
    pieces: list[tuple[Piece, Piece]] = []
    voice = bytearray()
    hosted_windows: list[Window] = []
    async with hosting() as process:
        caller = HostedFrontEnd(process)
        await caller.open_echo(EchoControlSettings())
        for at in range(0, len(heard) - 2 * PIECE + 1, 2 * PIECE):
            at_us = 3_000_000 + (at // 2 + PIECE) * 1_000_000 // RATE_HZ
            for side in (caller, control):
                side.played(played[at : at + 2 * PIECE], RATE_HZ, at_us - 20_000)
            there = await caller.process(heard[at : at + 2 * PIECE], at_us, wants_cancelled=True)
            pieces.append(
                (there, controlled(control, heard[at : at + 2 * PIECE], at_us, wants_cancelled=True))
            )
            voice += there.pcm
            hosted_windows += await caller.measure(b"", len(there.windows))
        caller.close()
        caller.close()
    for there, locally in pieces:
        assert (there.pcm, there.cancelled, there.knowledge) == (
            locally.pcm,
            locally.cancelled,
            locally.knowledge,
        )
        assert np.allclose(there.levels, locally.levels, atol=1e-3)
        assert there.delay_ms == pytest.approx(locally.delay_ms)
    whole = len(voice) // (2 * vad.window_samples) * 2 * vad.window_samples
    assert np.allclose(hosted_windows, here.measure(bytes(voice[:whole])), atol=1e-6)
    assert max(probability for probability, _ in hosted_windows) > 0.9


async def test_a_caller_whose_process_dies_is_heard_on():
    async with hosting() as process:
        caller = HostedFrontEnd(process)
        analyzer = SharedVadAnalyzer(SileroVad(), executor=None, params=VadSettings().params(), hosted=caller)
        analyzer.set_sample_rate(RATE_HZ)
        speech = silence(500) + say("hello i would like to ask about my card please", "rms") + silence(800)

        async def states() -> set[VADState]:
            return {await analyzer.analyze_audio(speech[at : at + 640]) for at in range(0, len(speech), 640)}

        assert VADState.SPEAKING in await states()
        assert caller.failure is None
        await killed(process, caller)
        assert VADState.SPEAKING in await states()
        await analyzer.cleanup()
        # The next caller has the new one.
        again = HostedFrontEnd(process)
        assert len(await again.measure(silence(64), 2)) == 2
        again.close()


async def test_a_caller_who_is_gone_leaves_nothing_behind_and_is_no_error():
    async with hosting() as process:
        caller = HostedFrontEnd(process)
        await caller.open_echo(EchoControlSettings())
        asked = asyncio.ensure_future(caller.process(silence(20), 0, wants_cancelled=False))
        await asyncio.sleep(0)
        caller.close()
        with pytest.raises(EngineError, match="closed"):
            await asked
        assert process.load == 0
        # One that stands for a moment is waited for.
        late = HostedFrontEnd(process)
        assert process.pid is not None
        pid = process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = asyncio.ensure_future(late.measure(silence(32), 1))
            await asyncio.sleep(0.5)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(await waiting) == 1 and process.pid == pid


async def test_an_answer_that_is_there_when_a_loop_that_stood_goes_on_is_taken():
    async with hosting() as process:
        caller = HostedFrontEnd(process)
        waiting = asyncio.ensure_future(caller.measure(silence(32), 1))
        await asyncio.sleep(0)
        time.sleep(process.limits.request_timeout_s + 0.2)  # noqa: ASYNC251
        assert len(await waiting) == 1 and caller.failure is None


async def test_a_question_to_a_dead_process_fails_and_so_does_one_of_other_audio():
    async with hosting() as process:
        first, second = HostedFrontEnd(process), HostedFrontEnd(process)
        for each in (first, second):
            await each.open_echo(EchoControlSettings())
        with pytest.raises(EngineError, match="other audio"):
            await first.measure(silence(32), 1)
        assert first.failure is not None
        await killed(process, second)
        with pytest.raises(EngineError, match="ended"):
            await second.process(silence(20), 0, wants_cancelled=False)
