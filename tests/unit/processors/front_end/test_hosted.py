"""Echo control and voice activity in a real process: the same results, and recovery when it dies."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.echo.control import EchoControl, EchoControlSettings
from parley.models.echo.webrtc import WebRtcEcho, WebRtcEchoSettings
from parley.models.front_end import EchoResult, FrontEndEngines, FrontEndSettings, controlled
from parley.models.vad.meter import VoiceMeter, Window
from parley.models.vad.silero import SileroSettings, SileroVad
from parley.processors.front_end.hosted import MOST_CHILDREN, HostedFrontEnd, LocalFrontEnd
from parley.processors.front_end.vad import VadSettings
from parley.runtime.engine_hosting.messages import EngineSpec
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcess, EngineProcessSettings
from tests.speakerphone import RATE_HZ, echo, spoken
from tests.voices import say, silence

PIECE = 320
LEAST_DB = VadSettings().as_speech_input().least_db


def child() -> EngineProcess[object]:
    settings = FrontEndSettings(
        vad=EngineSpec.of("silero", SileroSettings()),
        least_db=LEAST_DB,
        echo=EngineSpec.of("webrtc", WebRtcEchoSettings()),
    )
    return EngineProcess(
        "parley.models.front_end:load_front_end",
        settings,
        decode=dict,
        limits=EngineProcessSettings(request_timeout_s=2.0, restart_min_ms=10),
        name="front_end",
    )


@asynccontextmanager
async def hosting() -> AsyncIterator[EngineProcess[object]]:
    process = child()
    await process.start()
    try:
        yield process
    finally:
        await process.close()


def without_echo() -> EngineProcess[object]:
    """Return a process that is not started and has no echo control."""
    settings = FrontEndSettings(vad=EngineSpec.of("silero", SileroSettings()), least_db=LEAST_DB)
    return EngineProcess("parley.models.front_end:load_front_end", settings, decode=dict, name="front_end")


@asynccontextmanager
async def hosting_with_a_spare() -> AsyncIterator[EnginePool[object]]:
    pool = EnginePool([child()], spares=[child()])
    await pool.start()
    pool.start_spares()
    try:
        async with asyncio.timeout(20):
            while not all(one.is_ready for one in pool.spares):
                await asyncio.sleep(0.01)
        yield pool
    finally:
        await pool.close()


def hosted(engine: EngineProcess[object] | EnginePool[object]) -> HostedFrontEnd:
    here = FrontEndEngines(SileroVad(), WebRtcEcho(), least_db=LEAST_DB)
    pool = engine if isinstance(engine, EnginePool) else EnginePool([engine])
    return HostedFrontEnd(pool, LocalFrontEnd(here, executor=None))


def kill(process: EngineProcess[object]) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


async def restarted(process: EngineProcess[object], times: int) -> None:
    async with asyncio.timeout(20):
        while process.restarts < times or not process.is_ready:
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
    pieces: list[tuple[EchoResult, EchoResult]] = []
    voice = bytearray()
    hosted_windows: list[Window] = []
    async with hosting() as process:
        caller = hosted(process)
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


async def until_hosted(caller: HostedFrontEnd) -> None:
    async with asyncio.timeout(10):
        while caller.is_in_threads:
            assert len(await caller.measure(silence(32), 1)) == 1
            await asyncio.sleep(0.005)


def windows_of(speech: bytes) -> list[bytes]:
    """Return whole windows of voice activity."""
    return [speech[at : at + 1024] for at in range(0, len(speech) - 1023, 1024)]


async def test_voice_activity_goes_on_when_the_process_dies_in_mid_word_and_returns_to_the_new_one():
    speech = silence(500) + 3 * (say("hello i would like to ask about my card please", "rms") + silence(600))
    windows = windows_of(speech)
    undisturbed = meter(SileroVad()).measure(b"".join(windows))
    voiced = [probability > 0.7 for probability, _ in undisturbed]
    dies_at = voiced.index(True) + 8
    measured: list[Window] = []
    threads: list[bool] = []
    async with hosting() as process:
        caller = hosted(process)
        for number, window in enumerate(windows):
            if number == dies_at:
                kill(process)
            measured += await caller.measure(window, 1)
            threads.append(caller.is_in_threads)
            if caller.is_in_threads:
                # At the pace of real audio: the new process needs a moment.
                await asyncio.sleep(0.032)
        assert threads[-1] is False and any(threads[dies_at : dies_at + 3])
        assert not any(threads[: dies_at - 1])
        assert process.load == 1
        caller.close()
    # The ends of the voices, from which an endpoint waits, are unchanged.
    assert [probability > 0.7 for probability, _ in measured] == voiced


async def test_echo_control_goes_on_with_the_same_frames_and_windows_when_the_process_dies():
    far = spoken(9)
    near = echo(far, 90.0)
    voice_over = pcm16_to_float(say("no wait i meant something else", "rms"))[: 2 * RATE_HZ]
    near[7 * RATE_HZ :][: len(voice_over)] += voice_over
    played, heard = float_to_pcm16(far), float_to_pcm16(near)
    # Not a whole number of frames, as a socket's client may send.
    step = 2 * 250
    dies_at = 3 * RATE_HZ * 2 // step
    voice, windows, taken = bytearray(), 0, 0
    found: list[float | None] = []
    threads: list[bool] = []
    probabilities: list[float] = []
    async with hosting() as process:
        caller = hosted(process)
        await caller.open_echo(EchoControlSettings())
        for number, at in enumerate(range(0, len(heard) - step + 1, step)):
            at_us = 3_000_000 + (at + step) // 2 * 1_000_000 // RATE_HZ
            caller.played(played[at : at + step], RATE_HZ, at_us - 20_000)
            if number == dies_at:
                kill(process)
            piece = await caller.process(heard[at : at + step], at_us, wants_cancelled=False)
            voice += piece.pcm
            whole = len(voice) // (2 * 512)
            measured = await caller.measure(b"", whole - windows)
            probabilities += [probability for probability, _ in measured]
            taken, windows = taken + len(measured), whole
            found.append(piece.delay_ms)
            threads.append(caller.is_in_threads)
            if caller.is_in_threads:
                await asyncio.sleep(step / 2 / RATE_HZ)
        assert threads[dies_at + 1] and not threads[-1]
        caller.close()
    assert len(voice) // 320 == len(heard) // step * step // 320 and taken == windows
    # The echo is found again within a second, by the engines in threads and by the new process.
    assert found[dies_at - 1] is not None and found[-1] == pytest.approx(found[dies_at - 1], abs=2)
    # The bot's voice is not a caller's; the other voice is.
    second = RATE_HZ // 512
    assert max(probabilities[5 * second : 6 * second]) < 0.7 < max(probabilities[7 * second : 9 * second])


async def test_a_caller_goes_over_to_the_spare_while_the_dead_process_loads_and_returns_when_that_dies_too():
    async with hosting_with_a_spare() as pool:
        (first,), (second,) = pool.processes, pool.spares
        caller = hosted(pool)
        for times, (dying, spare) in enumerate([(first, second), (second, first)], start=1):
            assert len(await caller.measure(silence(32), 1)) == 1
            assert not caller.is_in_threads and (dying.load, spare.load) == (1, 0)
            kill(dying)
            # Threads answer the question that fails; the next one goes to the spare as well.
            while not caller.is_in_threads:
                assert len(await caller.measure(silence(32), 1)) == 1
            assert len(await caller.measure(silence(32), 1)) == 1
            assert not dying.is_ready
            assert pool.processes == (spare,) and pool.spares == (dying,)
            await until_hosted(caller)
            assert spare.load == 1
            # The dead process is the next spare.
            await restarted(dying, 1)
            assert (first.restarts, second.restarts) == (1, times - 1)
        caller.close()


async def test_a_caller_with_whom_children_keep_dying_stays_in_threads():
    async with hosting() as process:
        caller = hosted(process)
        for times in range(1, MOST_CHILDREN + 1):
            await until_hosted(caller)
            kill(process)
            await restarted(process, times)
            assert len(await caller.measure(silence(32), 1)) == 1
        for _ in range(10):
            assert len(await caller.measure(silence(32), 1)) == 1
        assert caller.is_in_threads and process.load == 0
        # Another caller has the new process.
        assert not hosted(process).is_in_threads


async def test_children_that_died_long_ago_do_not_keep_a_caller_in_threads():
    async with hosting() as process:
        here = FrontEndEngines(SileroVad(), WebRtcEcho(), least_db=LEAST_DB)
        caller = HostedFrontEnd(EnginePool([process]), LocalFrontEnd(here, executor=None), forget_s=0)
        for times in range(1, MOST_CHILDREN + 2):
            kill(process)
            await restarted(process, times)
            assert len(await caller.measure(silence(32), 1)) == 1
            await until_hosted(caller)
        assert process.load == 1
        caller.close()


async def test_a_caller_returns_to_a_child_that_has_not_answered_the_last_questions_yet():
    process = without_echo()
    caller = hosted(process)
    assert len(await caller.measure(silence(32), 1)) == 1 and caller.is_in_threads
    await process.start()
    try:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            # The child receives the earlier question again, and this one.
            assert len(await caller.measure(silence(32), 1)) == 1 and caller.is_in_threads
            waiting = asyncio.ensure_future(caller.measure(silence(32), 1))
            await asyncio.sleep(0)
            assert not caller.is_in_threads
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert len(await waiting) == 1 and not caller.is_in_threads
        caller.close()
    finally:
        await process.close()


async def test_a_process_that_stands_is_left_within_its_deadline_and_the_question_is_answered():
    async with hosting() as process:
        caller = hosted(process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert len(await caller.measure(silence(64), 2)) == 2
        assert caller.is_in_threads


async def test_a_call_that_begins_before_the_process_is_ready_goes_over_to_it():
    process = without_echo()
    caller = hosted(process)
    assert len(await caller.measure(silence(32), 1)) == 1 and caller.is_in_threads
    await process.start()
    try:
        await until_hosted(caller)
    finally:
        await process.close()


async def test_a_caller_who_is_gone_leaves_nothing_after_and_is_no_error():
    async with hosting() as process:
        caller = hosted(process)
        await caller.open_echo(EchoControlSettings())
        asked = asyncio.ensure_future(caller.process(silence(20), 0, wants_cancelled=False))
        await asyncio.sleep(0)
        caller.close()
        with pytest.raises(EngineError, match="closed"):
            await asked
        assert process.load == 0
        # A process that stands still for a moment is waited for.
        late = hosted(process)
        assert process.pid is not None
        pid = process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = asyncio.ensure_future(late.measure(silence(32), 1))
            await asyncio.sleep(0.3)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(await waiting) == 1 and process.pid == pid


async def test_an_answer_that_is_there_when_a_loop_that_stood_goes_on_is_taken():
    async with hosting() as process:
        caller = hosted(process)
        waiting = asyncio.ensure_future(caller.measure(silence(32), 1))
        await asyncio.sleep(0)
        time.sleep(process.limits.request_timeout_s + 0.2)  # noqa: ASYNC251
        assert len(await waiting) == 1 and caller.failure is None


async def test_a_question_about_other_audio_fails_and_so_does_every_later_one():
    async with hosting() as process:
        caller = hosted(process)
        await caller.open_echo(EchoControlSettings())
        with pytest.raises(EngineError, match="other audio"):
            await caller.measure(silence(32), 1)
        with pytest.raises(EngineError, match="other audio"):
            await caller.process(silence(20), 0, wants_cancelled=False)
        assert process.load == 0
