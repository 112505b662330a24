"""Offset of another machine's clock, from exchanges."""

from parley.serving.scheduler.clock_offset import RENEW_US, ClockOffset


def exchange(offset: ClockOffset, at_us: int, *, there_us: int, back_us: int, true_us: int) -> None:
    offset.add(asked_us=at_us, theirs_us=at_us + there_us + true_us, answered_us=at_us + there_us + back_us)


def test_a_quick_exchange_decides_after_slow_ones() -> None:
    offset = ClockOffset()
    exchange(offset, 1_000, there_us=90_000, back_us=10, true_us=5_000_000)
    assert abs(offset.us - 5_000_000) <= 50_000
    exchange(offset, 200_000, there_us=20, back_us=30, true_us=5_000_000)
    exchange(offset, 300_000, there_us=10, back_us=80_000, true_us=5_000_000)
    assert abs(offset.us - 5_000_000) <= 25


def test_a_clock_that_was_set_is_followed_at_once() -> None:
    offset = ClockOffset()
    exchange(offset, 1_000, there_us=20, back_us=30, true_us=5_000_000)
    exchange(offset, 2_000, there_us=400, back_us=400, true_us=-3_600_000_000)
    assert abs(offset.us + 3_600_000_000) <= 400


def test_clocks_that_drift_are_followed() -> None:
    offset = ClockOffset()
    for second in range(100):
        exchange(offset, second * 1_000_000, there_us=300, back_us=300, true_us=50 * second)
    assert abs(offset.us - 50 * 99) <= 300 + 50 * RENEW_US // 1_000_000
