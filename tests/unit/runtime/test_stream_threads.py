"""A thread for each stream: the loop's view of an engine whose calls block."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.core.errors import EngineBusyError, EngineError
from parley.models.stt import Transcript
from parley.runtime.stream_threads import StreamThreads, StreamThreadSettings, ThreadStream
from tests.fakes.slow_streams import GatedStream, GatedStt

QUIET = bytes(1_280)
HELD = b"\1" + bytes(1_279)


@pytest.fixture
def engine():
    made = GatedStt()
    yield made
    made.gate.set()


class Caller:
    """A stream and its reports."""

    def __init__(self, threads: StreamThreads[Transcript]) -> None:
        self._threads = threads
        self.partials: list[str] = []
        self.failures: list[EngineError] = []
        self.stream: ThreadStream[Transcript]

    async def open(self) -> None:
        self.stream = await self._threads.open_stream(
            lambda partial: self.partials.append(partial.text), self.failures.append
        )


@asynccontextmanager
async def caller(engine: GatedStt, **limits: float) -> AsyncIterator[Caller]:
    settings = StreamThreadSettings.model_validate(limits)
    made = Caller(StreamThreads(engine, name="gated", limits=settings))
    await made.open()
    try:
        yield made
    finally:
        made.stream.close()


async def until(holds, within_s: float = 5) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


async def test_audio_is_heard_in_order_and_the_final_holds_it_all(engine: GatedStt) -> None:
    async with caller(engine) as call:
        call.stream.start()
        for _ in range(3):
            call.stream.feed(QUIET)
            await until(lambda: not call.stream._is_calling)
        final = await call.stream.finish()
        assert final.text == "1280 1280 1280" and call.partials[-1] == final.text
    await until(lambda: engine.open == 0)


async def test_small_pieces_are_gathered_and_a_backlog_is_handed_over_in_large_ones(engine: GatedStt) -> None:
    async with caller(engine, piece_ms=40, most_ms=100) as call:
        call.stream.start()
        call.stream.feed(bytes(640))
        call.stream.feed(bytes(640))
        await until(lambda: call.partials)
        assert call.partials == ["1280"]
        engine.gate.clear()
        call.stream.feed(HELD)
        await asyncio.to_thread(engine.entered.wait, 5)
        for _ in range(5):
            call.stream.feed(QUIET)
        engine.gate.set()
        assert (await call.stream.finish()).text == "1280 1280 3200 3200"


async def test_the_loop_waits_for_nothing_while_the_engine_does(engine: GatedStt) -> None:
    async with caller(engine) as call:
        engine.gate.clear()
        call.stream.start()
        call.stream.feed(HELD)
        await asyncio.to_thread(engine.entered.wait, 5)
        # The engine waits for its gate: whatever waited for the engine would never return.
        for _ in range(200):
            call.stream.feed(QUIET)
        final = call.stream.finish()
        assert not final.done()
        engine.gate.set()
        assert sum(map(int, (await final).text.split())) == 201 * 1_280


async def test_audio_beyond_the_backlog_is_dropped_oldest_first_and_counted(engine: GatedStt) -> None:
    async with caller(engine, backlog_ms=500) as call:
        engine.gate.clear()
        call.stream.start()
        call.stream.feed(HELD)
        await asyncio.to_thread(engine.entered.wait, 5)
        for _ in range(20):
            call.stream.feed(QUIET)
        assert call.stream.dropped_ms == 20 * 40 - 500
        engine.gate.set()
        assert sum(map(int, (await call.stream.finish()).text.split())) == 1_280 + 16_000


async def test_a_result_that_does_not_come_fails_the_stream_at_the_deadline(engine: GatedStt) -> None:
    async with caller(engine, request_timeout_s=0.2) as call:
        engine.gate.clear()
        call.stream.start()
        call.stream.feed(HELD)
        with pytest.raises(EngineError, match="no result within 0.2 s"):
            await call.stream.finish()
        assert len(call.failures) == 1
        with pytest.raises(EngineError):
            call.stream.start()
        engine.gate.set()
    await until(lambda: engine.open == 0)


async def test_an_error_of_a_call_fails_everything_that_waits_and_is_told_once(engine: GatedStt) -> None:
    async with caller(engine) as call:
        call.stream.start()
        call.stream.feed(b"\2" + bytes(1_279))
        final = call.stream.finish()
        with pytest.raises(EngineError, match="a defect of the engine"):
            await final
        assert len(call.failures) == 1
    await until(lambda: engine.open == 0)


async def test_a_final_that_fails_is_an_error_and_not_a_wait(engine: GatedStt) -> None:
    class Fails(GatedStt):
        def open_stream(self) -> GatedStream:
            stream = super().open_stream()

            def finish() -> Transcript:
                raise EngineError("gone", engine="gated")

            stream.finish = finish  # type: ignore[method-assign]
            return stream

    async with caller(Fails(), request_timeout_s=30) as call:
        call.stream.start()
        with pytest.raises(EngineError, match="gone"):
            await call.stream.finish()


async def test_what_was_discarded_says_nothing_and_the_next_utterance_begins_anew(engine: GatedStt) -> None:
    async with caller(engine) as call:
        engine.gate.clear()
        call.stream.start()
        call.stream.feed(HELD)
        await asyncio.to_thread(engine.entered.wait, 5)
        call.stream.discard()
        call.stream.start()
        call.stream.feed(bytes(1_600))
        final = call.stream.finish()
        engine.gate.set()
        assert (await final).text == "1600"
        # The first utterance's partial came after that utterance had ended.
        assert "1280" not in call.partials


async def test_an_engine_that_gives_no_stream_is_an_error(engine: GatedStt) -> None:
    class Full(GatedStt):
        def open_stream(self) -> GatedStream:
            raise EngineBusyError("all are taken", engine="gated")

    with pytest.raises(EngineBusyError, match="all are taken"):
        await Caller(StreamThreads(Full(), name="gated")).open()


async def test_a_stream_that_opens_too_late_for_a_caller_who_wanted_it_is_closed(engine: GatedStt) -> None:
    class Slow(GatedStt):
        def open_stream(self) -> GatedStream:
            assert self.gate.wait(10)
            return super().open_stream()

        def closed(self) -> None:
            super().closed()
            closed.append(True)

    closed: list[bool] = []
    slow = Slow()
    slow.gate.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await Caller(StreamThreads(slow, name="gated")).open()
    slow.gate.set()
    await until(lambda: closed and slow.open == 0)
