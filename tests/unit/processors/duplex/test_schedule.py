"""The time grid of units."""

from hypothesis import given
from hypothesis import strategies as st

from parley.processors.duplex.schedule import UnitSchedule


def take(schedule: UnitSchedule, now_us: int) -> tuple[int, int, int]:
    due = schedule.due(now_us)
    schedule.taken(due)
    return due.slot, due.at_us, due.missed


def test_units_are_due_on_a_grid_from_the_first_on() -> None:
    schedule = UnitSchedule(1_000, 1_035, 500_000)
    assert take(schedule, 500_000) == (0, 1_535_000, 0)
    assert take(schedule, 1_600_000) == (1, 2_535_000, 0)


def test_who_is_late_takes_the_next_at_once() -> None:
    schedule = UnitSchedule(80, 80, 0)
    assert take(schedule, 0) == (0, 80_000, 0)
    # It took 1.2 units.
    assert take(schedule, 80_000 + 96_000) == (1, 160_000, 0)


def test_what_was_missed_is_left_out() -> None:
    schedule = UnitSchedule(80, 80, 0)
    assert take(schedule, 0) == (0, 80_000, 0)
    assert take(schedule, 80_000 + 250_000) == (3, 320_000, 2)
    assert take(schedule, 340_000) == (4, 400_000, 0)


@given(st.lists(st.integers(0, 500_000), max_size=50))
def test_the_grid_never_moves_and_no_unit_is_taken_twice(costs_us: list[int]) -> None:
    schedule, now_us, last, counted = UnitSchedule(80, 100, 7), 7, -1, 0
    for cost_us in costs_us:
        slot, at_us, missed = take(schedule, now_us)
        assert at_us == 100_007 + 80_000 * slot and slot == last + 1 + missed
        # Never a unit that had ended before the present one did.
        assert now_us < at_us + 80_000
        last, counted = slot, counted + 1 + missed
        now_us = max(now_us, at_us) + cost_us
    assert counted == last + 1
