"""Table of final words whose meaning is open."""

import itertools

import pytest

from parley.turn_taking.barge_in.words_table import TRANSITIONS, WordsEvent, WordsPhase


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(WordsPhase, WordsEvent)))
def test_every_pair_is_a_row_that_changes_what_its_event_says(phase: WordsPhase, event: WordsEvent):
    after = TRANSITIONS[phase, event]
    holds = {WordsEvent.HOLD: True, WordsEvent.SETTLE: False}.get(event, phase.holds)
    doubts = {WordsEvent.DOUBT: True, WordsEvent.FORGET: False}.get(event, phase.doubts)
    assert (after.holds, after.doubts) == (holds, doubts)
