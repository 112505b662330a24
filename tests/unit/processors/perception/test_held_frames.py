from pipecat.frames.frames import InputImageRawFrame

from parley.processors.perception.held_frames import HELD_EVERY_S, MOST_HELD, HeldFrames
from parley.processors.perception.picture_sources import STALE_S


def frame(number: int, size: int = 1) -> InputImageRawFrame:
    return InputImageRawFrame(image=bytes([number]) * size, size=(1, 1), format="RGB")


def filled(every_s: float, *, count: int, size: int = 1, most_bytes: int = 1_000) -> HeldFrames:
    """Return frames of which each has the number of its moment, from 0 on."""
    held = HeldFrames(most_bytes=most_bytes)
    for number in range(count):
        held.hold(frame(number, size), number * every_s)
    return held


def number_of(held: HeldFrames, at_s: float | None) -> int | None:
    found = held.nearest(at_s)
    return None if found is None else found.image[0]


def test_the_frame_nearest_a_moment_is_returned_and_without_a_moment_the_newest():
    held = filled(0.5, count=6)
    assert number_of(held, 1.1) == 2
    assert number_of(held, 1.4) == 3
    assert number_of(held, 99.0) == number_of(held, None) == 5
    assert number_of(HeldFrames(), None) is None


def test_a_moment_before_all_frames_has_the_oldest_within_its_reach_and_otherwise_the_newest():
    held = filled(0.5, count=30)
    oldest = 30 - MOST_HELD
    assert number_of(held, oldest * 0.5 - STALE_S + 0.1) == oldest
    assert number_of(held, oldest * 0.5 - STALE_S - 0.1) == 29


def test_frames_that_come_often_are_held_at_an_interval_and_the_newest_always():
    held = filled(1 / 30, count=90)
    assert len(held) <= 3 / HELD_EVERY_S + 2
    assert number_of(held, None) == 89
    for moment in range(90):
        found = number_of(held, moment / 30)
        assert found is not None and abs(found - moment) / 30 <= HELD_EVERY_S


def test_number_and_bytes_are_bounded_and_one_large_frame_is_held():
    assert len(filled(1.0, count=100)) == MOST_HELD
    held = filled(1.0, count=100, size=400)
    assert len(held) == 2 and number_of(held, None) == 99
    assert len(filled(1.0, count=100, size=4_000)) == 1


def test_a_source_is_on_while_it_sends():
    held = filled(0.5, count=3)
    assert held.is_fresh(1.0 + STALE_S) and not held.is_fresh(1.1 + STALE_S)
    assert not HeldFrames().is_fresh(0.0)
