import pytest

from parley.models.stt.pacing import PartialPace


def test_cheap_passes_are_as_frequent_as_wanted() -> None:
    pace = PartialPace(300, 5_000, load=0.5)
    assert pace.interval_ms(1) == 300
    for _ in range(10):
        pace.took(20)
    assert pace.interval_ms(3) == 300


def test_dear_passes_take_their_share_of_the_time_and_no_more() -> None:
    pace = PartialPace(300, 5_000, load=0.5)
    for _ in range(20):
        pace.took(400)
    assert pace.interval_ms(1) == pytest.approx(800, abs=2)


def test_speakers_share_the_engine() -> None:
    pace = PartialPace(300, 5_000, load=0.5)
    for _ in range(20):
        pace.took(400)
    assert pace.interval_ms(3) == pytest.approx(2_400, abs=6)


def test_a_hopeless_machine_still_says_something() -> None:
    pace = PartialPace(300, 5_000, load=0.5)
    pace.took(60_000)
    assert pace.interval_ms(1) == 5_000


def test_one_freak_pass_is_soon_forgotten() -> None:
    pace = PartialPace(300, 5_000, load=0.5)
    pace.took(3_000)
    for _ in range(6):
        pace.took(20)
    assert pace.interval_ms(1) == 300
