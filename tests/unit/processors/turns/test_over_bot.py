"""The parts of the start strategy that need no loop: the caller's turn and the queue of decisions."""

from itertools import product

import pytest

from parley.core.call_events import (
    CallEvent,
    FloorLeft,
    FloorTaken,
    ReplyCut,
    ReplyDucked,
    ReplyRestored,
    ReplyResumed,
)
from parley.processors.turns.over_bot.decisions import DecisionQueue
from parley.processors.turns.over_bot.turn import TurnOverBot, TurnPhase
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import Cut, CutReason, Decision, Duck, Restore, ResumeReply


def turn_in(phase: TurnPhase) -> TurnOverBot:
    turn = TurnOverBot()
    if phase is TurnPhase.HELD:
        turn.hold_words()
    elif phase is not TurnPhase.CLOSED:
        turn.start(over_reply=True)
        if phase is TurnPhase.VOID:
            turn.void()
    return turn


STEPS = {
    "start": lambda turn: turn.start(over_reply=False),
    "stop": TurnOverBot.stop,
    "hold": TurnOverBot.hold_words,
    "void": TurnOverBot.void,
    "take up": TurnOverBot.take_up,
}
CLOSED, HELD, OPEN, VOID = TurnPhase
AFTER = {
    "start": dict.fromkeys(TurnPhase, OPEN),
    # Held words outlast a turn that was none.
    "stop": {OPEN: CLOSED, VOID: CLOSED},
    "hold": {CLOSED: HELD},
    "void": {OPEN: VOID},
    "take up": {VOID: OPEN},
}


@pytest.mark.parametrize(("phase", "step"), list(product(TurnPhase, STEPS)))
def test_every_step_does_what_it_should_to_a_turn_in_every_phase(phase: TurnPhase, step: str):
    turn = turn_in(phase)
    assert turn.phase is phase
    STEPS[step](turn)
    assert turn.phase is AFTER[step].get(phase, phase)


def test_a_turn_begins_with_the_words_that_were_held_and_with_no_others():
    turn = TurnOverBot()
    turn.hold_words()
    turn.start(over_reply=True)
    assert (turn.has_words, turn.began_over_reply, turn.has_held_words) == (True, True, False)
    turn.stop()
    turn.start(over_reply=False)
    assert (turn.has_words, turn.began_over_reply) == (False, False)


@pytest.mark.parametrize(
    ("decision", "event", "gains_db"),
    [
        (Duck(5, -12.0), ReplyDucked(5), [-12.0]),
        (Restore(6), ReplyRestored(6), [0.0]),
        (Cut(7, "r", CutReason.WORDS, 300), ReplyCut(7, "words", 300), []),
        (ResumeReply(8, "r", 4), ReplyResumed(8, 4), []),
    ],
)
def test_a_change_of_volume_is_made_at_once_and_the_rest_waits(
    decision: Decision, event: CallEvent, gains_db: list[float]
):
    gains, seen = list[float](), list[CallEvent]()
    events = CallEvents()
    events.subscribe(CallEvent, seen.append)
    queue = DecisionQueue(BargeIn(), events, gains.append, name="strategy")
    queue.note(decision)
    assert gains == gains_db and queue.news.is_set()
    assert queue.is_empty == bool(gains_db)
    assert list(queue.drain()) == ([] if gains_db else [decision]) and queue.is_empty
    if not gains_db:
        assert seen == []
        queue.publish(decision)
    assert seen == [event]


async def test_the_floor_is_reported_once_after_what_has_changed_it():
    events, machine, seen = CallEvents(), BargeIn(), list[CallEvent]()
    events.subscribe(CallEvent, seen.append)
    queue = DecisionQueue(machine, events, lambda _gain_db: None, name="strategy")
    for at_ms, reply_id in ((1, "one"), (2, "two")):
        queue.note(machine.on_bot_started(at_ms, reply_id))
    assert [type(each) for each in seen] == [FloorTaken]
    machine.on_bot_stopped(3, "two")
    queue.report_floor()
    queue.report_floor()
    assert [type(each) for each in seen] == [FloorTaken, FloorLeft]
