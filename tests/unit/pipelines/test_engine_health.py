"""Health of the embedded engines of a server: their pace, and engines that cannot work."""

import asyncio
import os
import signal

import psutil
import pytest

from parley.configs.deployment import Choice, Deployment, Duplex, Hearing, Speaking
from parley.pipelines.engines.engines import Engines
from parley.processors.perception.engine_stt import EngineSttService
from parley.runtime.engine_pool import EnginePool
from parley.turn_taking.clarification import AskBackSettings

# The voice that loads soonest: none is heard here.
FLITE = Speaking(tts=Choice(name="flite"))


async def test_the_pace_of_the_recogniser_is_known_before_the_first_call():
    async with await Engines.load(Deployment(speaking=FLITE)) as engines:
        hearing = engines.hearing()
        assert hearing is not None and hearing.real_time_factor is None
        async with asyncio.timeout(30):
            # A busy machine may need more than one utterance.
            while hearing.real_time_factor is None:
                await engines.measure_hearing()
                hearing = engines.hearing()
                assert hearing is not None
        assert hearing.processes == 1 and hearing.speaking == 0 and hearing.real_time_factor > 0


async def test_a_realtime_service_leaves_the_recogniser_to_other_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-used")
    found = []
    for engine in ("two_tier", "openai_realtime"):
        deployment = Deployment(speaking=FLITE, duplex=Duplex(engine=Choice(name=engine)))
        async with await Engines.load(deployment, duplex=True) as engines:
            found.append((engines.uses_recogniser("cascade"), engines.uses_recogniser("duplex")))
    assert found == [(True, True), (True, False)]


async def test_a_dead_recogniser_is_named_until_there_is_one_again():
    async with await Engines.load(
        Deployment(speaking=FLITE, hearing=Hearing(spare_processes=False))
    ) as engines:
        recogniser = engines.recogniser
        assert isinstance(recogniser, EnginePool) and engines.health() == []
        engines.stand_by()
        (process,) = recogniser.processes
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while not engines.health():
                await asyncio.sleep(0.001)
            assert engines.health() == ["speech recognition (moonshine_tiny) has no process that works"]
            while engines.health():
                await asyncio.sleep(0.01)


async def test_a_second_recogniser_has_a_process_of_its_own_that_ends_with_the_others():
    before = {child.pid for child in psutil.Process().children()}
    hearing = Hearing(
        stt=Choice(name="pocketsphinx"),
        ask_back=AskBackSettings(below=1.0),
        second_opinion=Choice(name="pocketsphinx"),
    )
    async with await Engines.load(Deployment(speaking=FLITE, hearing=hearing)) as engines:
        named = [each.engine for each in engines.processes() if each.is_ready]
        assert named.count("pocketsphinx") == 2
        assert isinstance(await engines.build_stt(), EngineSttService)
        assert {child.pid for child in psutil.Process().children()} > before
    assert {child.pid for child in psutil.Process().children()} <= before


async def test_a_server_has_a_spare_recogniser_and_ends_it():
    before = {child.pid for child in psutil.Process().children()}
    async with await Engines.load(Deployment(speaking=FLITE)) as engines:
        recogniser = engines.recogniser
        assert isinstance(recogniser, EnginePool)
        engines.stand_by()
        (process,), (spare,) = recogniser.processes, recogniser.spares
        async with asyncio.timeout(30):
            while not spare.is_ready:
                await asyncio.sleep(0.01)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while process.is_ready:
                await asyncio.sleep(0.001)
        assert engines.health() == []
    ended = [child for child in psutil.Process().children() if child.pid not in before]
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in ended)
