"""Parts that a call has opened are closed when its pipeline cannot be built, and left alone when it can."""

import pytest

from parley.pipelines.stages.shared import closed_on_failure


class Opened:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_was_opened_before_a_failure_is_closed_and_the_failure_goes_on():
    first, last = Opened(), Opened()
    with pytest.raises(ValueError, match="no pipeline"), closed_on_failure() as opened:
        opened += [first, last]
        raise ValueError("no pipeline")
    assert (first.closed, last.closed) == (1, 1)


def test_what_a_pipeline_has_taken_stays_open():
    part = Opened()
    with closed_on_failure() as opened:
        opened.append(part)
    assert part.closed == 0
