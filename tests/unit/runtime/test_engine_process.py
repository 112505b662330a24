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

from core.errors import ConfigError, EngineBusyError, EngineError
from models.stt import Transcript
from models.stt.pocketsphinx import PocketsphinxSettings
from processors.perception.engine_stt import transcript_from_fields
from runtime.engine_pool import EnginePool
from runtime.engine_process import EngineProcess, EngineProcessSettings, ProcessStream
from runtime.in_place_engine import InPlaceEngine
from runtime.utterances import UtteranceEngine
from tests.fakes.crowded_stt import CrowdedSttSettings
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


def crowded_process() -> EngineProcess[Transcript]:
    """One seat."""
    return EngineProcess(
        "tests.fakes.crowded_stt:CrowdedStt",
        CrowdedSttSettings(seats=1),
        decode=transcript_from_fields,
        limits=QUICK,
        name="crowded",
    )


async def test_an_engine_without_room_is_busy_until_somebody_finishes() -> None:
    crowded = crowded_process()
    await crowded.start()
    try:
        first, refused = Caller(), Caller()
        speaking, other = await first.open(crowded), await refused.open(crowded)
        speaking.start()
        speak(speaking, 400)
        await until(lambda: first.partials != [])
        other.start()
        speak(other, 400)
        with pytest.raises(EngineBusyError, match="every seat is taken"):
            await other.finish()
        assert [type(error) for error in refused.failures] == [EngineBusyError]
        assert refused.failures[0].retryable
        assert (await speaking.finish()).text == "one two"
        again = await refused.open(crowded)
        again.start()
        speak(again, 200)
        assert (await again.finish()).text == "one"
        assert first.failures == []
        assert crowded.restarts == 0
    finally:
        await crowded.close()


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


def recogniser(settings: PocketsphinxSettings) -> EngineProcess[Transcript]:
    return EngineProcess(
        "models.stt.pocketsphinx:PocketsphinxStt",
        settings,
        decode=transcript_from_fields,
        limits=QUICK.model_copy(update={"request_timeout_s": 10}),
        name="pocketsphinx",
    )


async def test_a_wrong_setting_that_only_the_child_notices_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    settings = PocketsphinxSettings(
        cache_dir=tmp_path / "file" / "cache", language_model="documents", sentences=("block my card",)
    )
    engine = recogniser(settings)
    with pytest.raises(ConfigError, match="cannot write the speech recognition cache"):
        await engine.start()
    assert engine.pid is None


async def test_what_becomes_wrong_while_serving_is_an_engine_error_to_a_call(tmp_path: Path) -> None:
    documents = tmp_path / "cards.txt"
    documents.write_text("block my card")
    engine = recogniser(
        PocketsphinxSettings(cache_dir=tmp_path, language_model="documents", documents=documents)
    )
    await engine.start()
    try:
        documents.unlink()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: not engine.is_ready)
        with pytest.raises(EngineError, match=r"cards\.txt") as caught:
            await Caller().open(engine)
        assert not caught.value.retryable
    finally:
        await engine.close()


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


async def test_a_child_that_is_closed_leaves_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    limits = QUICK.model_copy(update={"close_timeout_s": 60})
    async with running(ScriptedSttSettings(work_ms=20), limits) as engine:
        pid = engine.pid
        assert pid is not None
        stream = await Caller().open(engine)
        stream.start()
        # The end is noticed between two pieces of work, not after all of it.
        speak(stream, 2_000)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 10
    assert is_gone(pid)
    assert "Traceback" not in capfd.readouterr().err


async def test_a_signal_to_the_whole_group_leaves_the_child_to_its_parent() -> None:
    async with running() as engine:
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        stream = await Caller().open(engine)
        stream.start()
        speak(stream, 400)
        assert (await stream.finish()).text == "one two"
        assert engine.pid == pid
        assert engine.restarts == 0


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
            ours = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, engine.pid) == min(19, ours + QUICK.nice)
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


async def test_a_caller_refused_by_a_full_child_goes_to_another_one() -> None:
    pool = EnginePool([crowded_process(), crowded_process()])
    await pool.start()
    try:
        full, roomy = pool.processes
        refused = Caller()
        speaking, _, unlucky, _ = [await refused.open(pool) for _ in range(4)]
        speaking.start()
        unlucky.start()
        await until(lambda: refused.failures != [])
        # One stream less than the other child has, and still not the better choice.
        assert (full.load, roomy.load) == (1, 2)
        second = await refused.open(pool)
        assert (full.load, roomy.load) == (1, 3)
        second.start()
        speak(second, 400)
        assert (await second.finish()).text == "one two"
    finally:
        await pool.close()


def parent_process(body: str, settings: str = "None") -> "subprocess.Popen[str]":
    """A process group of its own that runs ``body`` with a started ``engine``; its first line is the pid."""
    script = f"""
import asyncio, os, signal
from tests.fakes.stt import ScriptedSttSettings
from tests.unit.runtime.test_engine_process import Caller, process, tone
async def main():
    engine = process({settings})
    await engine.start()
    {body}
asyncio.run(main())
"""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def first_line(parent: "subprocess.Popen[str]") -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 5
    while not is_gone(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert is_gone(pid)


def test_the_child_ends_with_its_parent() -> None:
    with parent_process("print(engine.pid, flush=True); os._exit(0)") as parent:
        wait_until_gone(first_line(parent))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child first ends its call")
def test_a_killed_parent_leaves_no_child_even_in_the_middle_of_a_call() -> None:
    body = """
    stream = await Caller().open(engine)
    stream.start()
    stream.feed(tone(100))
    # Until the child is inside the call, which lasts a minute.
    await asyncio.sleep(0.2)
    print(engine.pid, flush=True)
    await asyncio.sleep(60)
"""
    with parent_process(body, "ScriptedSttSettings(work_ms=60_000)") as parent:
        pid = first_line(parent)
        parent.kill()
        wait_until_gone(pid)


def test_a_terminated_group_ends_in_order() -> None:
    body = """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(engine.pid, flush=True)
    await stop.wait()
    # A server lets calls end first: their last words must still be understood.
    stream = await Caller().open(engine)
    stream.start()
    stream.feed(tone(400))
    print((await stream.finish()).text, engine.restarts, flush=True)
    await engine.close()
"""
    with parent_process(body) as parent:
        pid = first_line(parent)
        os.killpg(parent.pid, signal.SIGTERM)
        out, err = parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert out == "one two 0\n"
    assert "engine process" not in err
    assert is_gone(pid)
