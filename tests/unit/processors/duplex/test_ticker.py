"""An engine that is driven by ticks, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.core.units import Tick, Vote
from parley.models.omni import Preparation, UnitResult
from parley.processors.duplex.tick import TickedCall, TickSettings
from parley.processors.duplex.ticker import TRANSITIONS, Ticker, TickEvent, Ticking
from parley.runtime.engine_thread import EngineThread
from tests import virtual_time
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript, ScriptedOmni

RATE_HZ = 16_000
PIECE_MS = 20


class Bench:
    """A ticker, an engine and a caller who sends 20 ms at a time."""

    def __init__(
        self,
        script: OmniScript,
        *,
        costs_ms: dict[str, float | None] | None = None,
        settings: TickSettings | None = None,
        by_arrival: bool = False,
        **received: object,
    ) -> None:
        costs: dict[str, float | None] = {"finalize": 0.0} | (costs_ms or {})

        def took_s(name: str) -> float | None:
            ms = costs.get(name.strip("_"), 0.0)
            return None if ms is None else ms / 1000

        self.engine = ScriptedOmni(script)
        self.executor = TimedExecutor(took_s)
        self.results: list[tuple[float, UnitResult]] = []
        self.ticks: list[Tick] = []
        call = TickedCall(
            on_result=lambda result: self.results.append((self.now_s, result)),
            on_tick=self.ticks.append,
            **received,  # type: ignore[arg-type]
        )
        self.ticker = Ticker(self.engine, self.executor, call, settings=settings, by_arrival=by_arrival)
        self.sent = 0

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def talk(self, seconds: float, *, speed: float = 1.0) -> None:
        """Send audio for that long: sample n is n, over a million."""
        for _ in range(round(seconds * 1000 / PIECE_MS)):
            await asyncio.sleep(PIECE_MS / 1000 / speed)
            samples = RATE_HZ * PIECE_MS // 1000
            self.ticker.hear((np.arange(samples, dtype=np.float32) + self.sent) / 1e6)
            self.sent += samples


def play(bench: Bench, caller: Callable[[Bench], Awaitable[None]]) -> Bench:
    async def run() -> Bench:
        task = asyncio.create_task(bench.ticker.run(Preparation("Be kind.")))
        work = asyncio.create_task(caller(bench))
        await asyncio.wait({task, work}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            work.cancel()
            await task
        task.cancel()
        await asyncio.wait({task})
        await work
        return bench

    return virtual_time.run(run())


def test_every_unit_is_heard_once_in_order_and_on_time() -> None:
    bench = play(Bench(OmniScript()), lambda bench: bench.talk(60))
    assert [tick.slot for tick in bench.ticks] == list(range(len(bench.ticks)))
    assert len(bench.ticks) in (749, 750)
    assert max(tick.late_us for tick in bench.ticks) <= 1
    assert not any(tick.missed or tick.left_out_ms for tick in bench.ticks)
    # On this clock the last piece of a unit and its time coincide: either may come first.
    assert all(tick.heard_ms >= 60 for tick in bench.ticks)
    assert bench.ticker.buffer.left_out_samples == 0
    assert not bench.engine.is_open


@pytest.mark.parametrize("unit_ms", [80, 1_000])
def test_an_engine_that_is_half_too_slow_is_never_more_than_a_unit_behind(unit_ms: int) -> None:
    bench = Bench(OmniScript(unit_ms=unit_ms), costs_ms={"hear_and_say": 1.5 * unit_ms})
    most = 0

    async def caller(bench: Bench) -> None:
        nonlocal most
        for _ in range(60 * 50):
            await bench.talk(0.02)
            most = max(most, bench.ticker.buffer.held_samples)

    play(bench, caller)
    unit = RATE_HZ * unit_ms // 1000
    # A unit that is being processed, and at most one that waits.
    assert most <= 2 * unit
    assert max(tick.late_us for tick in bench.ticks) < unit_ms * 1000
    taken, missed = bench.ticker.units, bench.ticker.missed
    assert missed / (taken + missed) == pytest.approx(1 / 3, abs=0.02)
    # The newest audio is always processed.
    assert bench.ticker.buffer.left_out_samples == pytest.approx(bench.sent / 3, rel=0.05)


def test_a_result_leaves_before_its_unit_is_finalized_and_the_next_waits() -> None:
    def run(deferred: bool) -> Bench:
        settings = TickSettings(deferred_finalize=deferred)
        costs: dict[str, float | None] = {"hear_and_say": 20.0, "finalize": 37.0}
        return play(Bench(OmniScript(), costs_ms=costs, settings=settings), lambda bench: bench.talk(4))

    deferred, direct = run(True), run(False)
    assert {tick.took_us for tick in deferred.ticks} == {20_000}
    assert {tick.took_us for tick in direct.ticks} == {57_000}
    # No unit is fed before the one before is finalized.
    names = [name for _, name in deferred.executor.started]
    assert names[:5] == ["prepare", "_hear_and_say", "finalize", "_hear_and_say", "finalize"]


def test_a_finalize_that_is_longer_than_the_rest_of_its_unit_delays_the_next() -> None:
    costs: dict[str, float | None] = {"hear_and_say": 50.0, "finalize": 40.0}
    bench = play(Bench(OmniScript(), costs_ms=costs), lambda bench: bench.talk(4))
    assert any(tick.waited_us for tick in bench.ticks)
    assert max(tick.late_us for tick in bench.ticks) < 80_000


def test_who_sends_too_fast_is_heard_to_the_last_and_nothing_queues() -> None:
    bench = Bench(OmniScript())
    play(bench, lambda bench: bench.talk(30, speed=1.25))
    assert bench.ticker.buffer.left_out_samples == pytest.approx(bench.sent * 0.2, rel=0.05)
    assert all(tick.heard_ms == 80 for tick in bench.ticks[2:])
    assert bench.ticker.buffer.held_samples <= 2 * RATE_HZ * 80 // 1000


def test_who_sends_too_slowly_is_heard_with_silence_between() -> None:
    bench = Bench(OmniScript())
    play(bench, lambda bench: bench.talk(24, speed=0.8))
    assert bench.ticker.buffer.left_out_samples == 0
    heard = sum(tick.heard_ms for tick in bench.ticks) / (80 * len(bench.ticks))
    assert heard == pytest.approx(0.8, abs=0.02)


def test_no_one_sends_anything_and_the_engine_hears_silence() -> None:
    bench = play(Bench(OmniScript()), lambda _bench: asyncio.sleep(8))
    assert len(bench.ticks) == 99 or len(bench.ticks) == 100
    assert {tick.heard_ms for tick in bench.ticks} == {0}


@pytest.mark.parametrize("place", ["prepare", "hear_and_say", "finalize"])
def test_an_engine_that_hangs_is_stopped_and_given_up(place: str) -> None:
    bench = Bench(OmniScript(), costs_ms={place: None}, settings=TickSettings(prepare_ms=2_000))
    with pytest.raises(EngineError, match="does not stop"):
        play(bench, lambda bench: bench.talk(60))


def test_an_engine_that_is_stopped_in_time_says_so() -> None:
    # The scripted engine waits in its thread until it is stopped.
    async def run() -> None:
        engine = ScriptedOmni(OmniScript(hangs_at=1))
        thread = EngineThread("omni")
        call = TickedCall(on_result=lambda _result: None)
        ticker = Ticker(engine, thread, call, settings=TickSettings(hang_ms=100))
        with pytest.raises(EngineError, match="and was stopped"):
            await asyncio.wait_for(ticker.run(Preparation()), 10)
        assert not engine.is_open
        thread.shutdown()

    asyncio.run(run())


def test_whatever_an_engine_raises_is_its_failure() -> None:
    bench = Bench(OmniScript(spoils=lambda audio: audio[:, 0]))
    with pytest.raises(EngineError, match="IndexError"):
        play(bench, lambda bench: bench.talk(60))


def test_an_engine_that_fails_ends_the_run_and_is_given_back() -> None:
    bench = Bench(OmniScript(fails_at=5))
    with pytest.raises(EngineError, match="the script says so"):
        play(bench, lambda bench: bench.talk(60))
    assert len(bench.ticks) == 5 and not bench.engine.is_open


@pytest.mark.parametrize(
    "spoils",
    [
        lambda audio: audio * np.float32(np.nan),
        lambda audio: audio.astype(np.float64),
        lambda audio: np.stack([audio, audio]),
        lambda audio: np.tile(audio, 3),
    ],
    ids=["NaN", "dtype", "shape", "too long"],
)
def test_what_is_no_result_ends_the_run(spoils: Callable[[np.ndarray], np.ndarray]) -> None:
    bench = Bench(OmniScript(spoils=spoils))
    with pytest.raises(EngineError):
        play(bench, lambda bench: bench.talk(60))
    assert all(result.is_listen for _, result in bench.results) and not bench.engine.is_open


def test_empty_audio_of_an_engine_that_speaks_is_silence() -> None:
    bench = Bench(OmniScript(spoils=lambda audio: audio[:0]))
    play(bench, lambda bench: bench.talk(2))
    assert {tick.said_ms for tick in bench.ticks} == {0} and len(bench.ticks) >= 24


def test_who_must_listen_does() -> None:
    forced = iter([False] * 3 + [True] * 100)
    bench = Bench(OmniScript(votes=lambda _unit: Vote.SPEAK), must_listen=lambda: next(forced))
    play(bench, lambda bench: bench.talk(1))
    votes = [tick.vote for tick in bench.ticks]
    assert votes[:5] == [Vote.SPEAK, Vote.SPEAK, Vote.SPEAK, Vote.YIELD, Vote.LISTEN]


def test_the_newest_frames_of_a_unit_are_seen_once() -> None:
    bench = Bench(OmniScript(), settings=TickSettings(frames_per_unit=2))

    async def caller(bench: Bench) -> None:
        await bench.talk(0.1)
        for level in range(5):
            bench.ticker.see(np.full((4, 4, 3), level, np.uint8))
        await bench.talk(0.3)

    play(bench, caller)
    assert [tick.frames for tick in bench.ticks][:4] == [0, 2, 0, 0]


def test_a_full_context_is_begun_anew_in_a_quiet_moment() -> None:
    quiet, prepared = [True], []

    async def renewed() -> Preparation:
        prepared.append(Preparation("Be kind.", history=(("user", "hello"),)))
        return prepared[-1]

    script = OmniScript(context_units=50, votes=lambda _unit: Vote.LISTEN)
    bench = Bench(script, renewed=renewed, is_quiet=lambda: quiet[0], costs_ms={"prepare": 50.0})
    play(bench, lambda bench: bench.talk(20))
    assert bench.ticker.renewals == len(prepared) >= 4
    assert bench.engine.prepared[1:] == prepared
    # No audio that arrived meanwhile is lost.
    assert bench.ticker.buffer.left_out_samples <= RATE_HZ // 100
    quiet[0] = False
    busy = Bench(script, renewed=renewed, is_quiet=lambda: False)
    play(busy, lambda bench: bench.talk(20))
    # Neither side falls silent: the context is renewed when it is full at the latest.
    assert busy.ticker.renewals == 4


def test_nothing_is_heard_or_said_while_it_is_paused() -> None:
    bench = Bench(OmniScript())

    async def caller(bench: Bench) -> None:
        await bench.talk(1)
        bench.ticker.pause()
        units = bench.ticker.units
        await bench.talk(5)
        assert bench.ticker.units == units and bench.ticker.buffer.held_samples == 0
        bench.ticker.resume()
        await bench.talk(1)

    play(bench, caller)
    assert bench.ticker.units == pytest.approx(24, abs=2)
    assert not any(tick.missed for tick in bench.ticks)


@pytest.mark.parametrize("at_s", [0.0, 0.05, 0.08, 0.085, 0.1, 0.13, 0.14])
def test_cancelled_in_any_phase_the_engine_is_given_back(at_s: float) -> None:
    costs: dict[str, float | None] = {"prepare": 20.0, "hear_and_say": 30.0, "finalize": 10.0}
    bench = play(Bench(OmniScript(), costs_ms=costs), lambda _bench: asyncio.sleep(at_s))
    assert not bench.engine.is_open


def gated(gating: str, **gate: int) -> TickSettings:
    return TickSettings.model_validate({"gate": {"gating": gating, **gate}})


@pytest.mark.parametrize(("gating", "units"), [("none", 249), ("vad", 13), ("wake", 50)])
def test_in_a_silence_units_are_left_out_where_no_one_wants_them(gating: str, units: int) -> None:
    settings = gated(gating, hold_ms=1_000, wake_ms=7_000)
    bench = Bench(OmniScript(votes=lambda _unit: Vote.LISTEN), settings=settings, has_voice=lambda: False)
    play(bench, lambda bench: bench.talk(20))
    # A second each at the beginning and, once woken, 8 and 16 seconds into it, with the 480 ms before.
    assert bench.ticker.units == pytest.approx(units, abs=2)
    assert len({tick.slot for tick in bench.ticks}) + bench.ticker.gated == pytest.approx(249, abs=2)
    assert bench.ticker.missed == 0


def test_the_beginning_of_a_voice_is_heard_after_a_closed_gate() -> None:
    voiced = False
    settings = gated("vad", hold_ms=1_000, before_ms=480)
    bench = Bench(OmniScript(votes=lambda _unit: Vote.LISTEN), settings=settings, has_voice=lambda: voiced)

    async def caller(bench: Bench) -> None:
        nonlocal voiced
        await bench.talk(5)
        taken = bench.ticker.units
        voiced = True
        await bench.talk(0.08)
        heard = sum(tick.heard_ms for tick in bench.ticks[taken:])
        # The kept audio, and the unit itself; nothing of it shortened.
        assert 440 <= heard <= 560
        assert not any(tick.left_out_ms for tick in bench.ticks[taken:])
        await bench.talk(1)

    play(bench, caller)
    assert max(tick.late_us for tick in bench.ticks) <= 1


def test_a_bot_that_speaks_keeps_the_gate_open() -> None:
    settings = gated("vad", hold_ms=1_000)
    bench = Bench(OmniScript(votes=lambda _unit: Vote.SPEAK), settings=settings, has_voice=lambda: False)
    play(bench, lambda bench: bench.talk(10))
    assert bench.ticker.gated == 0


def test_a_unit_that_comes_whole_is_taken_when_it_is_there():
    began_s: list[float] = []

    async def caller(bench: Bench) -> None:
        began_s.append(bench.now_s)
        for pause_s in (0.3, 1.0, 2.5, 0.0):
            await asyncio.sleep(pause_s)
            samples = RATE_HZ * bench.engine.unit_ms // 1000
            bench.ticker.hear((np.arange(samples, dtype=np.float32) + bench.sent) / 1e6)
            bench.sent += samples
        await asyncio.sleep(0.5)

    bench = play(Bench(OmniScript(unit_ms=1_000), by_arrival=True), caller)
    # Each result at the moment at which it was there, and no other.
    assert [round(at_s - began_s[0], 2) for at_s, _ in bench.results] == [0.3, 1.3, 3.8, 3.8]
    assert [tick.left_out_ms for tick in bench.ticks] == [0] * 4
    assert all(tick.heard_ms == 1_000 and not tick.missed for tick in bench.ticks)


def test_what_was_heard_while_paused_is_in_no_unit_that_comes_whole():
    async def caller(bench: Bench) -> None:
        samples = RATE_HZ * bench.engine.unit_ms // 1000
        bench.ticker.hear(np.full(samples // 2, 0.5, np.float32))
        bench.ticker.pause()
        bench.ticker.hear(np.full(samples, 0.5, np.float32))
        await asyncio.sleep(0.1)
        bench.ticker.resume()
        bench.ticker.hear(np.full(samples, 0.25, np.float32))
        await asyncio.sleep(0.1)

    bench = play(Bench(OmniScript(unit_ms=1_000), by_arrival=True), caller)
    assert len(bench.results) == 1 and bench.ticks[0].heard_ms == 1_000


def _whole(bench: Bench) -> None:
    samples = RATE_HZ * bench.engine.unit_ms // 1000
    bench.ticker.hear((np.arange(samples, dtype=np.float32) + bench.sent) / 1e6)
    bench.sent += samples


def test_what_is_shown_and_wished_before_a_unit_is_of_that_unit_however_slow_the_engine_is():
    shown: list[tuple[np.ndarray, ...]] = []

    async def caller(bench: Bench) -> None:
        await asyncio.sleep(0.1)
        for number in range(4):
            if number == 2:
                bench.ticker.listen_next()
            bench.ticker.see(np.full((2, 2, 3), number, np.uint8))
            _whole(bench)
            # The engine is in the unit before while the next comes, with the data that belongs to it.
            await asyncio.sleep(0.8 if number else 0.1)
        await asyncio.sleep(3)
        shown.extend(bench.engine.shown)

    bench = play(Bench(OmniScript(unit_ms=1_000), costs_ms={"hear_and_say": 900.0}, by_arrival=True), caller)
    assert [tick.forced for tick in bench.ticks] == [False, False, True, False]
    assert [[int(frame[0, 0, 0]) for frame in frames] for frames in shown] == [[0], [1], [2], [3]]


def test_units_that_a_slow_engine_never_takes_are_whole_and_counted_before_the_next():
    async def caller(bench: Bench) -> None:
        await asyncio.sleep(0.1)
        for _ in range(10):
            _whole(bench)
            await asyncio.sleep(1)
        await asyncio.sleep(8)

    bench = play(
        Bench(OmniScript(unit_ms=1_000), costs_ms={"hear_and_say": 2_500.0}, by_arrival=True), caller
    )
    lost = [tick.left_out_ms for tick in bench.ticks]
    assert all(ms % 1_000 == 0 for ms in lost) and sum(lost) >= 3_000
    assert len(bench.ticks) + sum(lost) // 1_000 == 10
    assert all(tick.heard_ms == 1_000 for tick in bench.ticks)


def test_units_that_come_whole_are_taken_also_in_a_silence():
    async def caller(bench: Bench) -> None:
        await asyncio.sleep(0.1)
        for _ in range(10):
            _whole(bench)
            await asyncio.sleep(1)

    settings = gated("vad", hold_ms=1_000)
    bench = Bench(OmniScript(unit_ms=1_000), settings=settings, has_voice=lambda: False, by_arrival=True)
    play(bench, caller)
    assert len(bench.ticks) == 10 and not bench.ticker.gated


def test_three_units_that_come_at_once_are_all_taken_by_an_engine_that_is_idle():
    async def caller(bench: Bench) -> None:
        await asyncio.sleep(0.1)
        samples = 3 * RATE_HZ * bench.engine.unit_ms // 1000
        bench.ticker.hear((np.arange(samples, dtype=np.float32) + bench.sent) / 1e6)
        await asyncio.sleep(0.5)

    bench = play(Bench(OmniScript(unit_ms=1_000), by_arrival=True), caller)
    assert len(bench.results) == 3 and bench.ticker.buffer.left_out_samples == 0


def test_a_wish_that_comes_with_every_little_chunk_is_of_each_unit_that_waits():
    async def caller(bench: Bench) -> None:
        await asyncio.sleep(0.1)
        _whole(bench)
        for _ in range(100):
            bench.ticker.listen_next()
            bench.ticker.hear(np.zeros(RATE_HZ // 50, np.float32))
            await asyncio.sleep(0.02)
        await asyncio.sleep(4)

    bench = play(
        Bench(OmniScript(unit_ms=1_000), costs_ms={"hear_and_say": 1_900.0}, by_arrival=True), caller
    )
    assert [tick.forced for tick in bench.ticks] == [False, True, True]


@pytest.mark.parametrize(("cost_ms", "waited_ms"), [(2.0, 2), (500.0, 5)])
def test_the_beginning_of_a_whole_unit_is_waited_for_until_its_deadline(
    cost_ms: float, waited_ms: int
) -> None:
    bench = Bench(OmniScript(unit_ms=1_000), costs_ms={"hear_and_say": cost_ms}, by_arrival=True)
    waits_ms: list[int] = []

    async def waits() -> None:
        began_s = bench.now_s
        await bench.ticker.unit_begun(within_ms=5)
        waits_ms.append(round((bench.now_s - began_s) * 1000))

    async def caller(bench: Bench) -> None:
        await bench.talk(0.5)
        await waits()
        await bench.talk(0.5)
        await waits()

    play(bench, caller)
    # Half a unit starts no unit.
    assert waits_ms == [0, waited_ms]


@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS))
def test_every_state_of_a_ticker_follows_from_its_event(state: Ticking, event: TickEvent) -> None:
    after = TRANSITIONS[state, event]
    assert (after is Ticking.PAUSED) is (event is TickEvent.PAUSED)
    if event is TickEvent.GATE_CLOSED:
        assert after is Ticking.GATED
    if event is TickEvent.UNIT_BEGUN:
        assert after is Ticking.TAKING


def test_no_unit_begins_and_no_gate_closes_in_a_pause() -> None:
    missing = set(product(Ticking, TickEvent)) - set(TRANSITIONS)
    assert missing == {(Ticking.PAUSED, TickEvent.UNIT_BEGUN), (Ticking.PAUSED, TickEvent.GATE_CLOSED)}
