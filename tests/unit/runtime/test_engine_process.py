"""Real child processes with the scripted engine."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.errors import EngineError
from models.stt import Transcript
from processors.perception.engine_stt import transcript_from_fields
from runtime.engine_process import (
    EnginePool,
    EngineProcess,
    EngineProcessSettings,
    InPlaceEngine,
    ProcessStream,
    UtteranceEngine,
)
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.voices import silence, tone

FACTORY = "tests.fakes.stt:ScriptedStt"
QUICK = EngineProcessSettings(request_timeout_s=0.5, restart_min_ms=10, close_timeout_s=1)


def process(
    settings: ScriptedSttSettings | None = None, limits: EngineProcessSettings = QUICK
) -> EngineProcess[Transcript]:
    return EngineProcess(FACTORY, settings, decode=transcript_from_fields, limits=limits, name="scripted")


@asynccontextmanager
async def running(
    settings: ScriptedSttSettings | None = None, limits: EngineProcessSettings = QUICK
) -> AsyncIterator[EngineProcess[Transcript]]:
    engine = process(settings, limits)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


class Caller:
    """One stream and what it reported."""

    def __init__(self) -> None:
        self.partials: list[str] = []
        self.failures: list[EngineError] = []

    async def open(self, engine: UtteranceEngine[Transcript]) -> ProcessStream[Transcript]:
        return await engine.open_stream(lambda t: self.partials.append(t.text), self.failures.append)  # type: ignore[return-value]


def speak(stream: ProcessStream[Transcript], duration_ms: int = 600) -> None:
    audio = tone(duration_ms)
    for at in range(0, len(audio), 640):
        stream.feed(audio[at : at + 640])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("where", ["child", "in place"])
async def test_words_come_back_with_times_and_partials(where: str) -> None:
    async with running() as child:
        here = InPlaceEngine(ScriptedStt(), lambda result: result)
        engine = child if where == "child" else here
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        speak(stream)
        await until(lambda: caller.partials[-1:] == ["one two three"])
        heard = await stream.finish()
        assert heard.text == "one two three"
        assert heard.final
        assert [(word.start_ms, word.end_ms) for word in heard.words] == [(0, 200), (200, 400), (400, 600)]
        assert caller.partials[0] == "one"
        stream.close()
        assert caller.failures == []


async def test_many_callers_share_one_child() -> None:
    async with running() as engine:
        streams = [await Caller().open(engine) for _ in range(8)]
        for count, stream in enumerate(streams):
            stream.start()
            speak(stream, 200 * (count % 4 + 1))
        heard = await asyncio.gather(*(stream.finish() for stream in streams))
        assert [len(one.words) for one in heard] == [1, 2, 3, 4] * 2
        assert engine.load == 8
        for stream in streams:
            stream.close()
        assert engine.load == 0


async def test_utterances_follow_each_other_without_waiting() -> None:
    async with running() as engine:
        stream = await Caller().open(engine)
        finals = []
        for duration_ms in (200, 400, 600):
            stream.start()
            speak(stream, duration_ms)
            finals.append(stream.finish())
        assert [len((await final).words) for final in finals] == [1, 2, 3]


async def test_a_discarded_utterance_leaves_nothing_behind() -> None:
    async with running() as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        speak(stream)
        stream.discard()
        stream.start()
        stream.feed(silence(100))
        assert (await stream.finish()).text == ""
        assert caller.partials == []


async def test_finishing_outside_an_utterance_is_an_error() -> None:
    async with running() as engine:
        stream = await Caller().open(engine)
        with pytest.raises(EngineError):
            await stream.finish()


async def test_a_killed_child_fails_what_is_pending_and_is_replaced() -> None:
    async with running() as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        speak(stream)
        await until(lambda: caller.partials != [])
        final = stream.finish()
        dead = engine.pid
        assert dead is not None
        os.kill(dead, signal.SIGKILL)
        with pytest.raises(EngineError, match="ended"):
            await final
        assert len(caller.failures) == 1
        with pytest.raises(EngineError):
            stream.start()
        second = await Caller().open(engine)
        second.start()
        speak(second)
        assert (await second.finish()).text == "one two three"
        assert engine.pid != dead
        assert engine.restarts == 1


async def test_a_hung_child_misses_the_deadline_and_is_replaced() -> None:
    async with running() as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stuck = engine.pid
        assert stuck is not None
        os.kill(stuck, signal.SIGSTOP)
        stream.start()
        speak(stream)
        began_s = time.monotonic()
        with pytest.raises(EngineError, match="within"):
            await stream.finish()
        assert time.monotonic() - began_s < 2 * QUICK.request_timeout_s
        assert len(caller.failures) == 1
        await until(lambda: engine.is_ready and engine.pid not in (None, stuck))
        assert is_gone(stuck)
        second = await Caller().open(engine)
        second.start()
        speak(second)
        assert (await second.finish()).text == "one two three"


async def test_a_child_hung_in_the_middle_of_an_utterance_is_noticed_before_its_end() -> None:
    async with running() as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)

        def failed_while_speaking() -> bool:
            stream.feed(tone(20))
            return caller.failures != []

        await until(failed_while_speaking)


async def test_a_slow_result_of_one_caller_does_not_end_the_others() -> None:
    slow = ScriptedSttSettings(work_ms=100)
    async with running(slow, QUICK.model_copy(update={"in_flight_ms": 10_000})) as engine:
        busy, patient = Caller(), Caller()
        stream, other = await busy.open(engine), await patient.open(engine)
        stream.start()
        other.start()
        # 1.2 s of work against a deadline of 0.5 s, but the child answers all the time.
        speak(stream, 1_200)
        with pytest.raises(EngineError, match="within"):
            await stream.finish()
        assert len(busy.failures) == 1
        assert patient.failures == []
        assert engine.restarts == 0


async def test_a_full_backlog_drops_the_oldest_audio_and_counts_it() -> None:
    limits = QUICK.model_copy(update={"in_flight_ms": 40, "backlog_ms": 500, "request_timeout_s": 5})
    async with running(ScriptedSttSettings(work_ms=50), limits) as engine:
        stream = await Caller().open(engine)
        stream.start()
        speak(stream, 2_000)
        assert 1_400 <= stream.dropped_ms <= 1_500
        assert 500 <= (await stream.finish()).words[-1].end_ms + 200 <= 800


async def test_an_engine_error_ends_one_stream_only() -> None:
    async with running(ScriptedSttSettings(raise_after_ms=500)) as engine:
        caller, other = Caller(), Caller()
        stream, healthy = await caller.open(engine), await other.open(engine)
        stream.start()
        speak(stream, 600)
        with pytest.raises(EngineError, match="scripted failure"):
            await stream.finish()
        healthy.start()
        speak(healthy, 400)
        assert (await healthy.finish()).text == "one two"
        assert engine.restarts == 0


async def test_a_bug_of_the_engine_ends_one_stream_only() -> None:
    async with running(ScriptedSttSettings(bug_after_ms=500)) as engine:
        stream, healthy = await Caller().open(engine), await Caller().open(engine)
        stream.start()
        speak(stream, 600)
        with pytest.raises(EngineError, match="unexpected"):
            await stream.finish()
        healthy.start()
        speak(healthy, 400)
        assert (await healthy.finish()).text == "one two"


async def test_an_engine_that_ends_its_process_is_restarted() -> None:
    async with running(ScriptedSttSettings(exit_after_ms=500)) as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        speak(stream, 600)
        with pytest.raises(EngineError):
            await stream.finish()
        await caller.open(engine)
        assert engine.restarts == 1


async def test_an_engine_that_does_not_load_says_why() -> None:
    engine = process(ScriptedSttSettings(load_error=True))
    with pytest.raises(EngineError, match="no weights") as caught:
        await engine.start()
    assert not caught.value.retryable
    assert engine.pid is None


async def test_an_unknown_factory_says_why() -> None:
    engine = EngineProcess("no.such.module:Engine", None, decode=transcript_from_fields, limits=QUICK)
    with pytest.raises(EngineError, match="ModuleNotFoundError"):
        await engine.start()


async def test_closing_leaves_no_process_and_fails_what_is_open() -> None:
    async with running() as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        final = stream.finish()
        pid = engine.pid
        assert pid is not None
    with pytest.raises(EngineError):
        await final
    assert is_gone(pid)
    with pytest.raises(EngineError):
        await caller.open(engine)


async def test_closing_kills_a_child_that_does_not_leave() -> None:
    async with running() as engine:
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 2
    assert is_gone(pid)


async def test_the_child_yields_to_pacing_and_knows_no_secrets() -> None:
    os.environ["EXAMPLE_API_KEY"] = "secret"
    try:
        async with running() as engine:
            assert engine.pid is not None
            assert os.getpriority(os.PRIO_PROCESS, engine.pid) == QUICK.nice + os.getpriority(
                os.PRIO_PROCESS, 0
            )
            environment = Path(f"/proc/{engine.pid}/environ").read_bytes()
            assert b"EXAMPLE_API_KEY" not in environment
    finally:
        del os.environ["EXAMPLE_API_KEY"]


async def test_a_pool_gives_a_new_caller_to_the_least_loaded_child() -> None:
    pool = EnginePool([process(), process()])
    await pool.start()
    try:
        streams = [await Caller().open(pool) for _ in range(4)]
        assert [one.load for one in pool.processes] == [2, 2]
        streams[0].close()
        streams[2].close()
        await Caller().open(pool)
        assert sorted(one.load for one in pool.processes) == [1, 2]
        assert pool.rate_hz == 16_000
    finally:
        await pool.close()


async def test_a_pool_prefers_a_child_that_lives() -> None:
    pool = EnginePool([process(), process(limits=QUICK.model_copy(update={"restart_min_ms": 5_000}))])
    await pool.start()
    try:
        living, dying = pool.processes
        await Caller().open(living)
        assert dying.pid is not None
        os.kill(dying.pid, signal.SIGKILL)
        await until(lambda: not dying.is_ready)
        await Caller().open(pool)
        assert living.load == 2
    finally:
        await pool.close()


def test_the_child_ends_with_its_parent() -> None:
    script = """
import asyncio, os
from tests.unit.runtime.test_engine_process import process
async def main():
    engine = process()
    await engine.start()
    print(engine.pid, flush=True)
    os._exit(0)
asyncio.run(main())
"""
    parent = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    pid = int(parent.stdout)
    deadline_s = time.monotonic() + 5
    while not is_gone(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert is_gone(pid)
