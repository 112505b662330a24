"""Permitted transitions of a worker's state."""

import itertools
from pathlib import Path

import pytest

from parley.core.errors import IllegalTransition
from parley.serving.worker.lifecycle import TRANSITIONS, LifecycleEvent, LifecycleState, diagram, follow

DOCS = Path(__file__).parents[4] / "docs" / "how-to" / "workers.md"


@pytest.mark.parametrize(("state", "event"), list(itertools.product(LifecycleState, LifecycleEvent)))
def test_every_pair_leads_where_the_table_says_or_is_an_error(
    state: LifecycleState, event: LifecycleEvent
) -> None:
    if (state, event) in TRANSITIONS:
        assert follow(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition):
        follow(state, event)


def test_a_worker_that_was_used_is_free_only_when_it_is_clean() -> None:
    leads_to_idle = {event for (_, event), behind in TRANSITIONS.items() if behind is LifecycleState.IDLE}
    assert leads_to_idle == {LifecycleEvent.LOADED, LifecycleEvent.CLEANED}


def test_every_state_can_be_reached_and_left_to_the_end() -> None:
    reached = {LifecycleState.LOADING}
    while more := {behind for (before, _), behind in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == set(LifecycleState)
    assert all(
        (state, LifecycleEvent.EXIT) in TRANSITIONS
        for state in LifecycleState
        if state is not LifecycleState.DEAD
    )
    assert not any(state is LifecycleState.DEAD for state, _ in TRANSITIONS)


def test_the_picture_in_the_documents_is_that_of_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in DOCS.read_text()
