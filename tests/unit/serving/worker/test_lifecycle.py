"""Permitted transitions of a worker's state."""

import itertools
from pathlib import Path

import pytest

from core.errors import IllegalTransition
from serving.worker.lifecycle import TRANSITIONS, Event, State, diagram, follow

DOCS = Path(__file__).parents[4] / "docs" / "workers.md"


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_leads_where_the_table_says_or_is_an_error(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert follow(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition):
        follow(state, event)


def test_a_worker_that_was_used_is_free_only_when_it_is_clean() -> None:
    leads_to_idle = {event for (_, event), behind in TRANSITIONS.items() if behind is State.IDLE}
    assert leads_to_idle == {Event.LOADED, Event.CLEANED}


def test_every_state_can_be_reached_and_left_to_the_end() -> None:
    reached = {State.LOADING}
    while more := {behind for (before, _), behind in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == set(State)
    assert all((state, Event.EXIT) in TRANSITIONS for state in State if state is not State.DEAD)
    assert not any(state is State.DEAD for state, _ in TRANSITIONS)


def test_the_picture_in_the_documents_is_that_of_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in DOCS.read_text()
