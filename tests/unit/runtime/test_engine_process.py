"""Real child processes with the scripted engine."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from loguru import logger

from parley.core.errors import ConfigError, EngineBusyError, EngineError
from parley.models.stt import Transcript
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_hosting.child import waits_for_processor
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcess, EngineProcessSettings, ProcessStream
from parley.runtime.utterances import UtteranceEngine
from tests.fakes.crowded_stt import CrowdedSttSettings
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.stuck_stt import StuckSttSettings
from tests.in_place_engine import InPlaceEngine
from tests.voices import silence, tone

if TYPE_CHECKING:
    from loguru import Message

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
    """Stream and its reports."""

    def __init__(self) -> None:
        self.partials: list[str] = []
        self.failures: list[EngineError] = []
        self._news = asyncio.Event()

    async def open(self, engine: UtteranceEngine[Transcript]) -> ProcessStream[Transcript]:
        return await engine.open_stream(self._on_partial, self._on_failure)  # type: ignore[return-value]

    def _on_partial(self, transcript: Transcript) -> None:
        self.partials.append(transcript.text)
        self._news.set()

    def _on_failure(self, error: EngineError) -> None:
        self.failures.append(error)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` holds; it is evaluated whenever something is reported."""
        async with asyncio.timeout(5):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_failed(self) -> None:
        await self.until(lambda: self.failures != [])


def speak(stream: ProcessStream[Transcript], duration_ms: int = 600) -> None:
    audio = tone(duration_ms)
    for at in range(0, len(audio), 640):
        stream.feed(audio[at : at + 640])


async def kill(engine: EngineProcess[Transcript]) -> None:
    """Kill the child; return when its parent has noticed and notified the callers."""
    witness = Caller()
    stream = await witness.open(engine)
    stream.start()
    # With an answer the child has read everything: its socket is closed, not reset.
    await stream.finish()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    await witness.until_failed()


@contextmanager
def errors_logged(on_line: Callable[[], None] = lambda: None) -> Iterator[list[str]]:
    """Collect messages of level ERROR and above."""
    lines: list[str] = []

    def take(line: "Message") -> None:
        lines.append(line.record["message"])
        on_line()

    sink = logger.add(take, level="ERROR")
    try:
        yield lines
    finally:
        logger.remove(sink)


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
        await caller.until(lambda: caller.partials[-1:] == ["one two three"])
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
        await caller.until(lambda: caller.partials != [])
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
        caller, witness = Caller(), Caller()
        stream = await caller.open(engine)
        await witness.open(engine)
        stuck = engine.pid
        assert stuck is not None
        os.kill(stuck, signal.SIGSTOP)
        stream.start()
        speak(stream)
        with pytest.raises(EngineError, match="within"):
            await stream.finish()
        assert len(caller.failures) == 1
        await witness.until_failed()
        second = await Caller().open(engine)
        assert engine.is_ready and engine.pid not in (None, stuck)
        assert is_gone(stuck)
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

        failed = asyncio.create_task(caller.until_failed())
        while not failed.done():
            # A live caller: 20 ms of speech every 20 ms.
            stream.feed(tone(20))
            await asyncio.wait({failed}, timeout=0.02)
        await failed


async def test_a_child_that_stands_while_nothing_is_asked_of_it_is_replaced() -> None:
    async with running(limits=QUICK.model_copy(update={"hung_ms": 100})) as engine:
        witness = Caller()
        await witness.open(engine)
        stuck = engine.pid
        assert stuck is not None
        os.kill(stuck, signal.SIGSTOP)
        await witness.until_failed()
        second = await Caller().open(engine)
        second.start()
        speak(second)
        assert (await second.finish()).text == "one two three"
        assert engine.pid != stuck


async def test_a_child_whose_callers_are_silent_is_left_alone() -> None:
    async with running(limits=QUICK.model_copy(update={"hung_ms": 100})) as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        stream.discard()
        # Ten times as long as a child may be silent.
        await asyncio.sleep(1)
        assert caller.failures == [] and engine.restarts == 0


async def test_a_child_that_works_without_a_sign_is_left_alone() -> None:
    limits = QUICK.model_copy(update={"hung_ms": 100, "request_timeout_s": 5})
    async with running(ScriptedSttSettings(busy_ms=1_000), limits) as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        stream.feed(tone(200))
        assert (await stream.finish()).text == "one"
        assert caller.failures == [] and engine.restarts == 0


# clone(CLONE_VFORK | SIGCHLD): the parent waits without signals, as for a disk, until its child ends.
VFORK = """
import ctypes, os, platform
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
if ctypes.CDLL(None).syscall(number, 0x4000 | 17, 0, 0, 0, 0) == 0:
    os.read(0, 1)
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_process_that_waits_for_a_disk_is_not_taken_for_hung() -> None:
    waiting = await asyncio.create_subprocess_exec(sys.executable, "-c", VFORK, stdin=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(20):
            while psutil.Process(waiting.pid).status() != psutil.STATUS_DISK_SLEEP:
                await asyncio.sleep(0.01)
        assert waits_for_processor(waiting.pid)
    finally:
        await waiting.communicate(b"1")


async def test_the_first_restart_is_made_at_once_and_later_ones_are_put_off() -> None:
    restarts: list[str] = []
    sink = logger.add(lambda line: restarts.append(line.record["message"]), level="WARNING")
    try:
        async with running(limits=QUICK.model_copy(update={"restart_min_ms": 40})) as engine:
            for _ in range(3):
                await kill(engine)
                await Caller().open(engine)
    finally:
        logger.remove(sink)
    ends = [line.rpartition("restarting it ")[2] for line in restarts if "restarting it" in line]
    assert ends == ["at once", "in 40 ms", "in 80 ms"]


async def test_an_engine_says_how_long_it_works_on_a_second_of_audio() -> None:
    async with running(ScriptedSttSettings(work_ms=20)) as engine:
        assert engine.work.real_time_factor is None
        stream = await Caller().open(engine)
        stream.start()
        assert engine.utterances == 1
        speak(stream, 1_000)
        await stream.finish()
        # Pieces of 40 to 100 ms of audio take 20 ms each.
        assert engine.utterances == 0
        factor = engine.work.real_time_factor
        assert factor is not None and factor >= 0.2


async def test_a_result_of_a_child_that_works_on_comes_late_and_is_not_lost() -> None:
    async with running(
        ScriptedSttSettings(work_ms=100), QUICK.model_copy(update={"in_flight_ms": 10_000})
    ) as engine:
        caller = Caller()
        stream = await caller.open(engine)
        stream.start()
        # 1.2 s of work against a deadline of 0.5 s, but the child reports progress all the time.
        speak(stream, 1_200)
        assert len((await stream.finish()).words) == 6
        assert caller.failures == [] and engine.restarts == 0


async def test_a_slow_result_of_one_caller_does_not_end_the_others() -> None:
    slow = ScriptedSttSettings(work_ms=100)
    limits = QUICK.model_copy(update={"in_flight_ms": 10_000, "late_timeout_s": 0.5})
    async with running(slow, limits) as engine:
        busy, patient = Caller(), Caller()
        stream, other = await busy.open(engine), await patient.open(engine)
        stream.start()
        other.start()
        # 1.2 s of work against a bound of 0.5 s, but the child answers all the time.
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
    """Return a process whose engine has one seat."""
    return EngineProcess(
        "tests.fakes.crowded_stt:CrowdedStt",
        CrowdedSttSettings(seats=1),
        decode=transcript_from_fields,
        limits=QUICK,
        name="crowded",
    )


async def test_an_engine_without_room_is_busy_until_someone_finishes() -> None:
    crowded = crowded_process()
    await crowded.start()
    try:
        first, refused = Caller(), Caller()
        speaking, other = await first.open(crowded), await refused.open(crowded)
        speaking.start()
        speak(speaking, 400)
        await first.until(lambda: first.partials != [])
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
        "parley.models.stt.pocketsphinx:PocketsphinxStt",
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
    with errors_logged() as logged:
        with pytest.raises(ConfigError, match="cannot write the speech recognition cache"):
            await engine.start()
    assert engine.pid is None
    # The error was raised to the caller of ``start``, which reports it.
    assert logged == []


@asynccontextmanager
async def running_on_documents(documents: Path) -> AsyncIterator[EngineProcess[Transcript]]:
    documents.write_text("block my card")
    engine = recogniser(
        PocketsphinxSettings(cache_dir=documents.parent, language_model="documents", documents=documents)
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def test_what_becomes_wrong_while_serving_is_an_engine_error_to_a_call(tmp_path: Path) -> None:
    documents = tmp_path / "cards.txt"
    async with running_on_documents(documents) as engine:
        documents.unlink()
        await kill(engine)
        with errors_logged() as logged, pytest.raises(EngineError, match=r"cards\.txt") as caught:
            await Caller().open(engine)
        assert not caught.value.retryable
        assert logged == []


async def test_an_engine_that_could_not_load_for_a_while_serves_later_calls(tmp_path: Path) -> None:
    documents = tmp_path / "cards.txt"
    async with running_on_documents(documents) as engine:
        text = documents.read_text()
        documents.unlink()
        await kill(engine)
        with pytest.raises(EngineError, match=r"cards\.txt"):
            await Caller().open(engine)
        documents.write_text(text)
        async with asyncio.timeout(30):
            while not engine.is_ready:
                with suppress(EngineError):
                    await Caller().open(engine)
                await asyncio.sleep(0.01)


async def test_what_becomes_wrong_while_no_one_waits_is_logged_once(tmp_path: Path) -> None:
    documents = tmp_path / "cards.txt"
    async with running_on_documents(documents) as engine:
        documents.unlink()
        line = asyncio.Event()
        with errors_logged(line.set) as logged:
            await kill(engine)
            await asyncio.wait_for(line.wait(), 10)
            # The next call receives the error at once, and nothing more is written.
            with pytest.raises(EngineError, match=r"cards\.txt"):
                await Caller().open(engine)
        assert len(logged) == 1
        assert "cards.txt" in logged[0]


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
    # The end is noticed between two pieces of work, not after all of it, which takes longer than this.
    async with asyncio.timeout(30), running(ScriptedSttSettings(work_ms=20), limits) as engine:
        pid = engine.pid
        assert pid is not None
        stream = await Caller().open(engine)
        stream.start()
        speak(stream, 2_000)
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
    async with asyncio.timeout(30), running() as engine:
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
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


async def test_the_child_uses_as_many_blas_threads_as_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    async with running() as engine:
        assert engine.pid is not None
        assert b"OPENBLAS_NUM_THREADS=1" in Path(f"/proc/{engine.pid}/environ").read_bytes().split(b"\0")


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
        await kill(dying)
        assert not dying.is_ready
        await Caller().open(pool)
        assert living.load == 2
    finally:
        await pool.close()


async def test_a_spare_takes_the_place_of_a_dead_child_before_that_one_has_loaded_again() -> None:
    pool = EnginePool([process()], spares=[process()])
    await pool.start()
    pool.start_spares()
    try:
        (spare,) = pool.spares
        async with asyncio.timeout(10):
            await until_ready(spare)
        (dying,) = pool.processes
        caller = Caller()
        assert (await caller.open(pool)) is not None
        assert (dying.load, spare.load) == (1, 0)
        await kill(dying)
        assert not dying.is_ready and pool.is_ready
        stream = await Caller().open(pool)
        stream.start()
        speak(stream)
        assert (await stream.finish()).text == "one two three"
        assert pool.processes == (spare,) and pool.spares == (dying,)
        await until_ready(dying)
        await kill(spare)
        await Caller().open(pool)
        assert pool.processes == (dying,)
    finally:
        await pool.close()


async def test_a_stream_opened_at_once_goes_to_the_spare_of_a_child_that_is_not_ready() -> None:
    pool = EnginePool([process()], spares=[process()])
    with pytest.raises(EngineError, match="not ready"):
        pool.open_now(lambda _: None)
    await pool.start()
    pool.start_spares()
    try:
        (dying,), (spare,) = pool.processes, pool.spares
        async with asyncio.timeout(10):
            await until_ready(spare)
        pool.open_now(lambda _: None)
        assert (dying.load, spare.load) == (1, 0)
        await kill(dying)
        pool.open_now(lambda _: None)
        assert pool.processes == (spare,) and spare.load == 1
    finally:
        await pool.close()


async def test_a_spare_begins_to_load_when_the_other_children_have_loaded() -> None:
    pool = EnginePool([process()], spares=[process()])
    pool.start_spares()
    try:
        (spare,) = pool.spares
        await pool.start()
        assert spare.pid is None
        async with asyncio.timeout(10):
            await until_ready(spare)
    finally:
        await pool.close()


async def until_ready(engine: EngineProcess[Transcript]) -> None:
    while not engine.is_ready:
        with suppress(EngineError):
            await engine.wait_ready()
        await asyncio.sleep(0.01)


async def test_a_caller_refused_by_a_full_child_goes_to_another_one() -> None:
    pool = EnginePool([crowded_process(), crowded_process()])
    await pool.start()
    try:
        full, roomy = pool.processes
        refused = Caller()
        speaking, _, unlucky, _ = [await refused.open(pool) for _ in range(4)]
        speaking.start()
        unlucky.start()
        await refused.until_failed()
        # One stream less than the other child has, and still not the better choice.
        assert (full.load, roomy.load) == (1, 2)
        second = await refused.open(pool)
        assert (full.load, roomy.load) == (1, 3)
        second.start()
        speak(second, 400)
        assert (await second.finish()).text == "one two"
    finally:
        await pool.close()


def parent_process(body: str, engine: str = "process()") -> "subprocess.Popen[str]":
    """Run ``body`` with a started ``engine`` in a process group of its own."""
    script = f"""
import asyncio, os, signal, sys
from tests.unit.runtime.test_engine_process import Caller, process, stuck_process, tone
async def main():
    engine = {engine}
    await engine.start()
    {body}
asyncio.run(main())
"""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stuck_process(inside: str) -> EngineProcess[Transcript]:
    """Return an engine whose first call lasts a minute; it writes to the pipe ``inside`` at the start."""
    settings = StuckSttSettings(inside=Path(inside))
    return EngineProcess(
        "tests.fakes.stuck_stt:StuckStt",
        settings,
        decode=transcript_from_fields,
        limits=QUICK,
        name="stuck",
    )


def first_line(parent: "subprocess.Popen[str]") -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def test_the_child_ends_with_its_parent() -> None:
    with parent_process("print(engine.pid, flush=True); sys.stdin.readline(); os._exit(0)") as parent:
        child = psutil.Process(first_line(parent))
        assert parent.stdin is not None
        parent.stdin.close()
        child.wait(5)
        assert is_gone(child.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child first ends its call")
def test_a_killed_parent_leaves_no_child_even_in_the_middle_of_a_call(tmp_path: Path) -> None:
    body = """
    stream = await Caller().open(engine)
    stream.start()
    stream.feed(tone(100))
    await asyncio.Event().wait()
"""
    pipe = tmp_path / "inside"
    os.mkfifo(pipe)
    inside = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with parent_process(body, f"stuck_process({str(pipe)!r})") as parent:
            assert select.select([inside], [], [], 30)[0]
            child = psutil.Process(int(os.read(inside, 20)))
            parent.kill()
            child.wait(5)
            assert is_gone(child.pid)
    finally:
        os.close(inside)


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
