"""Contract of full-duplex speech models (``models.omni``)."""

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from parley.core.errors import CapacityError, ConfigError, IllegalTransition, ShapeError
from parley.core.units import Vote
from parley.models.omni import OmniEngine, OmniHost, Preparation, UnitResult

# Units before the one in which a generation is stopped, beyond those of the other tests.
SLOW_AT = 40
UNITS = 12
STOPPED_WITHIN_S = 1.0


def unit(engine: OmniEngine, number: int, *, level: float = 0.1) -> np.ndarray:
    """Return the audio of a unit: noise that depends on its number."""
    length_ms = engine.first_unit_ms if number == 0 else engine.unit_ms
    samples = length_ms * engine.input_rate_hz // 1000
    rng = np.random.default_rng(number)
    return (level * rng.standard_normal(samples)).clip(-1, 1).astype(np.float32)


def run_unit(engine: OmniEngine, number: int, *, force_listen: bool = False) -> UnitResult:
    """Run one unit from prefill to finalize."""
    engine.prefill(unit(engine, number))
    result = engine.generate(force_listen=force_listen)
    engine.finalize()
    return result


class OmniEngineContract:
    """Tests of a full-duplex engine; needs a fixture ``host``."""

    @pytest.fixture
    def engine(self, host: OmniHost) -> Iterator[OmniEngine]:
        opened = host.open_engine()
        yield opened
        opened.stop()
        opened.cleanup()

    def test_units_follow_each_other_and_each_says_at_most_a_unit(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation("Be kind."))
        for number in range(UNITS):
            result = run_unit(engine, number)
            assert result.audio.dtype == np.float32 and result.audio.ndim == 1
            assert np.isfinite(result.audio).all() and np.abs(result.audio).max(initial=0.0) <= 1.0
            assert len(result.audio) <= engine.unit_ms * engine.output_rate_hz / 1000
            assert not (result.is_listen and len(result.audio))
            costs = (result.cost_prefill_ms, result.cost_llm_ms, result.cost_tts_ms)
            assert min(costs) >= 0 and min(result.n_tokens, result.n_tts_tokens, result.kv_tokens) >= 0

    def test_who_must_listen_says_nothing(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        for number in range(UNITS):
            result = run_unit(engine, number, force_listen=True)
            assert result.is_listen and not len(result.audio) and not result.text

    def test_calls_out_of_turn_are_refused_and_change_nothing(self, engine: OmniEngine) -> None:
        for call in (lambda: engine.prefill(unit(engine, 0)), engine.generate, engine.finalize):
            with pytest.raises(IllegalTransition):
                call()
        engine.prepare(Preparation())
        with pytest.raises(IllegalTransition):
            engine.prepare(Preparation())
        with pytest.raises(IllegalTransition):
            engine.generate()
        engine.prefill(unit(engine, 0))
        with pytest.raises(IllegalTransition):
            engine.prefill(unit(engine, 1))
        engine.generate()
        with pytest.raises(IllegalTransition):
            # The unit before is not finalized.
            engine.prefill(unit(engine, 1))
        engine.finalize()
        assert isinstance(run_unit(engine, 1), UnitResult)

    def test_what_is_no_unit_is_refused_and_may_come_again(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        samples = len(unit(engine, 0))
        nan = unit(engine, 0)
        nan[3] = np.nan
        for audio in (np.zeros((samples, 2), np.float32), np.zeros(samples), nan, np.zeros(0, np.float32)):
            with pytest.raises(ShapeError):
                engine.prefill(audio)
        assert isinstance(run_unit(engine, 0), UnitResult)

    def test_frames_are_seen_or_refused(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        frame = np.zeros((48, 64, 3), np.uint8)
        if not engine.takes_frames:
            with pytest.raises(ShapeError):
                engine.prefill(unit(engine, 0), (frame,))
            return
        with pytest.raises(ShapeError):
            engine.prefill(unit(engine, 0), (frame[..., 0],))
        engine.prefill(unit(engine, 0), (frame, frame))
        engine.generate()
        engine.finalize()
        # A person who is visible and silent.
        engine.prefill(np.zeros(0, np.float32), (frame,))
        assert isinstance(engine.generate(), UnitResult)
        engine.finalize()

    def test_a_unit_that_is_too_short_is_heard(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        engine.prefill(unit(engine, 0)[:-7])
        engine.generate()
        engine.finalize()

    def test_unknown_settings_are_refused(self, engine: OmniEngine) -> None:
        with pytest.raises(ConfigError):
            engine.prepare(Preparation(settings={"no such setting": 1}))
        # The engine is left as it was.
        engine.prepare(Preparation())
        run_unit(engine, 0)

    def test_after_a_stop_everything_is_silent_until_another_conversation(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        run_unit(engine, 0)
        engine.prefill(unit(engine, 1))
        engine.stop()
        engine.stop()
        result = engine.generate()
        assert result.vote is Vote.LISTEN and not len(result.audio)
        engine.finalize()
        result = run_unit(engine, 2)
        assert result.vote is Vote.LISTEN and not len(result.audio)
        engine.cleanup()
        engine.prepare(Preparation())
        assert isinstance(run_unit(engine, 0), UnitResult)

    def test_a_generation_that_runs_ends_when_it_is_stopped(self, engine: OmniEngine) -> None:
        engine.prepare(Preparation())
        said: list[UnitResult] = []

        def units() -> None:
            while True:
                said.append(run_unit(engine, len(said)))
                if len(said) == SLOW_AT:
                    # The slow engine hangs in the unit after these.
                    is_slow.set()
                if stopped.is_set() and said[-1].vote is Vote.LISTEN and len(said) > SLOW_AT:
                    return

        is_slow, stopped = threading.Event(), threading.Event()
        thread = threading.Thread(target=units, daemon=True)
        thread.start()
        assert is_slow.wait(30)
        stopped.set()
        engine.stop()
        thread.join(STOPPED_WITHIN_S)
        assert not thread.is_alive()

    @pytest.mark.parametrize("calls", range(4))
    def test_a_conversation_is_given_back_at_any_point(self, engine: OmniEngine, calls: int) -> None:
        steps: list[Callable[[], object]] = [
            lambda: engine.prepare(Preparation()),
            lambda: engine.prefill(unit(engine, 0)),
            engine.generate,
            engine.finalize,
        ]
        for step in steps[:calls]:
            step()
        engine.cleanup()
        engine.cleanup()
        for step in steps:
            step()

    def test_conversations_do_not_hear_each_other(self, host: OmniHost) -> None:
        first = host.open_engine()
        first.prepare(Preparation())
        if host.sessions == 1:
            with pytest.raises(CapacityError):
                host.open_engine()
            first.cleanup()
            return
        second = host.open_engine()
        second.prepare(Preparation())
        alone = host.open_engine()
        alone.prepare(Preparation())
        expected = [run_unit(alone, number) for number in range(UNITS)]
        for number in range(UNITS):
            first.prefill(unit(first, number + 100, level=0.3))
            found = run_unit(second, number)
            first.generate()
            first.finalize()
            assert (found.vote, found.text) == (expected[number].vote, expected[number].text)
        for each in (first, second, alone):
            each.cleanup()
