"""A recogniser in workers, and the embedded one that goes on when no worker is there."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from parley.core.call_events import EngineFailedOver
from parley.core.errors import EngineBusyError, EngineError
from parley.core.failover import CircuitBreaker
from parley.models.stt import Transcript
from parley.processors.perception.failover_utterances import GRACE_MS, FailoverUtterances
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine, UtteranceStream
from tests import virtual_time
from tests.fakes.dead_engine import DeadEngine
from tests.fakes.late_engine import LateEngine
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.in_place_engine import as_transcript


class FullEngine(DeadEngine):
    """Engine without room."""

    async def open_stream(
        self, _on_partial: Callable[[Transcript], None], _on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        raise EngineBusyError("no room", engine="recogniser")


class Bench:
    """Calls that share the circuit breaker of their workers."""

    def __init__(self, first: UtteranceEngine[Transcript]) -> None:
        self.first = first
        self.breaker = CircuitBreaker(max_failures=1, cool_down_ms=60_000)
        self.following = LateEngine(ScriptedStt(ScriptedSttSettings()), as_transcript, 0)
        self.changes: list[EngineFailedOver] = []

    def call(self) -> FailoverUtterances:
        events = CallEvents()
        events.subscribe(EngineFailedOver, self.changes.append)
        return FailoverUtterances(
            *(self.first, self.following, self.breaker, events), engine="pool", successor="moonshine_tiny"
        )

    @staticmethod
    async def opened(call: FailoverUtterances) -> bool:
        """Return whether a stream opens."""
        try:
            (await call.open_stream(lambda _partial: None, lambda _error: None)).close()
        except EngineError:
            return False
        return True


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario()

    virtual_time.run(whole())


def test_the_embedded_recogniser_goes_on_when_no_worker_has_been_there_for_the_grace_period():
    async def scenario() -> None:
        bench = Bench(DeadEngine())
        call = bench.call()
        assert not await bench.opened(call)
        await asyncio.sleep(GRACE_MS / 1000)
        assert await bench.opened(call)
        [change] = bench.changes
        assert (change.stage, change.engine, change.successor) == ("hearing", "pool", "moonshine_tiny")
        # Another call does not wait.
        assert await bench.opened(bench.call())
        assert len(bench.changes) == 2

    play(scenario)


def test_a_call_stays_with_the_embedded_recogniser_and_asks_no_worker_again():
    async def scenario() -> None:
        first = DeadEngine()
        bench = Bench(first)
        call = bench.call()
        await bench.opened(call)
        await asyncio.sleep(GRACE_MS / 1000)
        await bench.opened(call)
        refused = first.refused
        await asyncio.sleep(120)
        assert await bench.opened(call) and first.refused == refused and len(bench.changes) == 1

    play(scenario)


@pytest.mark.parametrize("waited_s", [0, 60])
def test_workers_without_room_are_waited_for(waited_s: int):
    async def scenario() -> None:
        bench = Bench(FullEngine())
        call = bench.call()
        for _ in range(2):
            assert not await bench.opened(call)
            await asyncio.sleep(waited_s)
        assert bench.changes == []

    play(scenario)


def test_workers_that_are_there_transcribe():
    async def scenario() -> None:
        bench = Bench(LateEngine(ScriptedStt(ScriptedSttSettings()), as_transcript, 0))
        assert await bench.opened(bench.call()) and bench.changes == []

    play(scenario)
