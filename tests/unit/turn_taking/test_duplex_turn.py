"""Table of the caller's turn in a full-duplex call."""

import itertools

import pytest

from parley.core.errors import IllegalTransition
from parley.turn_taking.duplex_policy import DuplexPolicy
from parley.turn_taking.duplex_turn import TRANSITIONS, DuplexTurn, DuplexTurnEvent

# Without a turn there are no words of it, no reply that it cuts, and no end.
NEVER = {DuplexTurnEvent.WORDS, DuplexTurnEvent.CUT, DuplexTurnEvent.ENDS}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(DuplexTurn, DuplexTurnEvent)))
def test_every_pair_is_a_row_or_impossible(state: DuplexTurn, event: DuplexTurnEvent):
    assert ((state, event) in TRANSITIONS) != (not state.is_open and event in NEVER)


@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS))
def test_a_row_changes_what_its_event_says_and_nothing_else(state: DuplexTurn, event: DuplexTurnEvent):
    after = TRANSITIONS[state, event]
    is_void = event is DuplexTurnEvent.RESUMES and not state.has_words
    match event:
        case DuplexTurnEvent.BEGINS if not state.is_open:
            expected = (True, False, False)
        case DuplexTurnEvent.WORDS:
            expected = (True, True, state.has_cut)
        case DuplexTurnEvent.CUT:
            expected = (True, state.has_words, True)
        case DuplexTurnEvent.ENDS:
            expected = (False, state.has_words, False)
        case _ if is_void:
            expected = (False, False, False)
        case _:
            expected = (state.is_open, state.has_words, state.has_cut)
    assert (after.is_open, after.has_words, after.has_cut) == expected


def test_a_pair_without_a_row_is_a_defect():
    with pytest.raises(IllegalTransition):
        DuplexPolicy()._step(DuplexTurnEvent.ENDS)
