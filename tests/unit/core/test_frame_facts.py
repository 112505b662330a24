"""Typed facts of frames."""

import copy
from typing import Any

from parley.core.frame_facts import FrameFact

PLACE = FrameFact[int]("place")
OTHER = FrameFact[str | None]("other")


class Frame:
    """Stand-in for Pipecat's frame."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}


def test_a_fact_is_where_it_was_put_and_nowhere_else():
    frame, another = Frame(), Frame()
    PLACE.put(frame, 7)
    assert (PLACE.of(frame), PLACE.of(another), OTHER.of(frame)) == (7, None, None)
    assert PLACE.is_on(frame) and not PLACE.is_on(another)


def test_a_fact_that_is_nothing_is_on_the_frame():
    frame = Frame()
    OTHER.put(frame, None)
    assert OTHER.is_on(frame) and OTHER.of(frame) is None


def test_a_fact_that_was_taken_is_gone():
    frame = Frame()
    PLACE.put(frame, 7)
    assert (PLACE.take(frame), PLACE.take(frame), PLACE.is_on(frame)) == (7, None, False)


def test_a_copy_of_a_frame_keeps_the_facts():
    frame = Frame()
    PLACE.put(frame, 7)
    assert PLACE.of(copy.copy(frame)) == 7
