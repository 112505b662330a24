"""Hold of a call: what follows each request, and its longest time."""

import itertools

import pytest

from parley.turn_taking.hold import TRANSITIONS, HoldAct, HoldMachine, HoldSignal, HoldState

HOLD, GO_ON, DUE, FAREWELL = HoldSignal.HOLD, HoldSignal.GO_ON, HoldSignal.DUE, HoldSignal.FAREWELL


@pytest.mark.parametrize(
    ("signals", "acts"),
    [
        ([HOLD, GO_ON], [HoldAct.BEGIN, HoldAct.RESUME]),
        ([HOLD, HOLD, GO_ON, GO_ON], [HoldAct.BEGIN, HoldAct.NOTHING, HoldAct.RESUME, HoldAct.NOTHING]),
        ([HOLD, DUE, GO_ON], [HoldAct.BEGIN, HoldAct.END, HoldAct.NOTHING]),
        ([HOLD, FAREWELL, HOLD], [HoldAct.BEGIN, HoldAct.END, HoldAct.NOTHING]),
        ([FAREWELL, HOLD], [HoldAct.NOTHING, HoldAct.NOTHING]),
    ],
)
def test_requests_begin_and_end_a_hold(signals: list[HoldSignal], acts: list[HoldAct]):
    machine = HoldMachine(1_000)
    assert [machine.on(signal, 0) for signal in signals] == acts


def test_a_repeated_request_makes_no_hold_longer():
    machine = HoldMachine(1_000)
    assert machine.next_deadline_ms() is None
    machine.on(HOLD, 500)
    machine.on(HOLD, 1_400)
    assert machine.next_deadline_ms() == 1_500
    machine.on(GO_ON, 1_450)
    assert machine.next_deadline_ms() is None


def test_only_a_hold_has_a_longest_time():
    missing = set(itertools.product(HoldState, HoldSignal)) - set(TRANSITIONS)
    assert missing == {(HoldState.TALKING, DUE), (HoldState.LEAVING, DUE)}
