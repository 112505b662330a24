"""Units made of pieces of any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.audio.unit_buffer import Overrun, UnitBuffer
from parley.core.errors import ShapeError

RATE_HZ = 1_000
UNIT = 80


def ramp(first: int, count: int) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.float32) / 10_000


def buffer(**changes: object) -> UnitBuffer:
    settings = {"rate_hz": RATE_HZ, "overrun": Overrun.DROP, "slack_samples": 20} | changes
    return UnitBuffer(UNIT, **settings)  # type: ignore[arg-type]


def test_units_are_what_came_in_order() -> None:
    held = buffer()
    for first in range(0, 160, 20):
        held.append(ramp(first, 20))
        if first % UNIT == 60:
            unit = held.take()
            assert (unit.heard_samples, unit.left_out_samples) == (UNIT, 0)
            np.testing.assert_array_equal(unit.audio, ramp(first - 60, UNIT))
    assert held.held_samples == held.left_out_samples == held.missing_samples == 0


def test_a_little_more_waits_for_the_next_unit() -> None:
    held = buffer()
    held.append(ramp(0, UNIT + 20))
    np.testing.assert_array_equal(held.take().audio, ramp(0, UNIT))
    held.append(ramp(UNIT + 20, 60))
    np.testing.assert_array_equal(held.take().audio, ramp(UNIT, UNIT))
    assert held.left_out_samples == 0


def test_less_is_heard_with_silence_after_it() -> None:
    held = buffer()
    held.append(ramp(100, 30))
    unit = held.take()
    assert (unit.heard_samples, held.missing_samples) == (30, 50)
    np.testing.assert_array_equal(unit.audio, np.concatenate((ramp(100, 30), np.zeros(50, np.float32))))


def test_a_late_tick_leaves_out_what_is_oldest() -> None:
    held = buffer()
    held.append(ramp(0, 120))
    unit = held.take()
    np.testing.assert_array_equal(unit.audio, ramp(40, UNIT))
    assert (unit.left_out_samples, held.left_out_samples, held.held_samples) == (40, 40, 0)


def test_merged_audio_loses_its_pauses_and_not_its_words() -> None:
    held = buffer(overrun=Overrun.MERGE)
    words, pause = np.full(40, 0.5, np.float32), np.zeros(40, np.float32)
    held.append(np.concatenate((words, pause, words)))
    unit = held.take()
    np.testing.assert_array_equal(unit.audio, np.full(UNIT, 0.5, np.float32))
    assert unit.left_out_samples == 40


def test_what_no_one_takes_is_bounded_and_counted() -> None:
    held = buffer()
    for first in range(0, 10_000, 20):
        held.append(ramp(first, 20))
    assert held.held_samples == 2 * UNIT + 20
    assert held.left_out_samples == 10_000 - 2 * UNIT - 20
    unit = held.take()
    np.testing.assert_array_equal(unit.audio, ramp(10_000 - UNIT, UNIT))
    assert unit.left_out_samples == 10_000 - UNIT


def test_a_first_unit_may_be_longer() -> None:
    held = buffer()
    held.append(ramp(0, 83))
    assert len(held.take(83).audio) == 83
    held.append(ramp(83, UNIT))
    np.testing.assert_array_equal(held.take().audio, ramp(83, UNIT))


def test_what_is_forgotten_is_not_counted_in_the_next_unit() -> None:
    held = buffer()
    held.append(ramp(0, 500))
    held.clear()
    assert held.held_samples == 0
    assert held.take().left_out_samples == 0


@pytest.mark.parametrize("audio", [np.zeros((2, 2), np.float32), np.zeros(4)])
def test_other_audio_is_refused(audio: np.ndarray) -> None:
    with pytest.raises(ShapeError):
        buffer().append(audio)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=60),
    st.sampled_from(Overrun),
    st.integers(0, 40),
)
def test_no_sample_is_lost_without_being_counted(
    steps: list[tuple[int, bool]], overrun: Overrun, slack: int
) -> None:
    held = buffer(overrun=overrun, slack_samples=slack)
    came = heard = 0
    for samples, takes in steps:
        held.append(ramp(came, samples))
        came += samples
        if takes:
            unit = held.take()
            assert len(unit.audio) == UNIT
            heard += unit.heard_samples
            # Taken samples are in order, whatever was dropped.
            assert (np.diff(unit.audio[: unit.heard_samples]) > 0).all()
            assert held.held_samples <= slack
    assert came == heard + held.left_out_samples + held.held_samples
