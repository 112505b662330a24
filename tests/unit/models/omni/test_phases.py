"""Every pair of phase and call, and valid units."""

import itertools

import numpy as np
import pytest

from core.errors import IllegalTransition, ShapeError
from models.omni.phases import TRANSITIONS, Call, Phase, Phases, checked_audio, checked_frames

WAY_TO = {
    Phase.NEW: (),
    Phase.READY: (Call.PREPARE,),
    Phase.PREFILLED: (Call.PREPARE, Call.PREFILL),
    Phase.GENERATED: (Call.PREPARE, Call.PREFILL, Call.GENERATE),
    Phase.STOPPED: (Call.PREPARE, Call.STOP),
}


def in_phase(phase: Phase) -> Phases:
    phases = Phases()
    for call in WAY_TO[phase]:
        phases.enter(call)
    assert phases.phase is phase
    return phases


@pytest.mark.parametrize(("phase", "call"), list(itertools.product(Phase, Call)))
def test_every_pair_leads_where_the_table_says_or_is_an_error(phase: Phase, call: Call) -> None:
    phases = in_phase(phase)
    following = TRANSITIONS.get((phase, call))
    if following is None:
        with pytest.raises(IllegalTransition):
            phases.enter(call)
        assert phases.phase is phase
    else:
        assert phases.enter(call) is (following is not Phase.STOPPED)
        assert phases.phase is following


def test_a_conversation_that_was_stopped_can_be_given_back_and_another_prepared() -> None:
    for phase in Phase:
        phases = in_phase(phase)
        phases.enter(Call.STOP)
        phases.enter(Call.CLEANUP)
        phases.enter(Call.PREPARE)
        assert phases.phase is Phase.READY


def test_a_call_that_failed_may_come_again_but_not_behind_a_stop() -> None:
    phases = in_phase(Phase.READY)
    phases.enter(Call.PREFILL)
    phases.take_back(Call.PREFILL, Phase.READY)
    assert phases.phase is Phase.READY
    phases.enter(Call.PREFILL)
    phases.enter(Call.STOP)
    phases.take_back(Call.PREFILL, Phase.READY)
    assert phases.is_stopped


def test_a_short_unit_is_padded_in_front() -> None:
    padded = checked_audio(np.ones(30, np.float32), 80, frames=0)
    assert padded.shape == (80,) and not padded[:50].any() and padded[50:].all()
    whole = np.ones(80, np.float32)
    assert checked_audio(whole, 80, frames=0) is whole
    assert not len(checked_audio(np.zeros(0, np.float32), 80, frames=1))


@pytest.mark.parametrize(
    "audio",
    [
        np.ones((2, 40), np.float32),
        np.ones(80),
        np.ones(81, np.float32),
        np.zeros(0, np.float32),
        np.array([0.0, np.nan], np.float32),
        np.array([np.inf], np.float32),
    ],
)
def test_what_is_no_unit_is_refused(audio: np.ndarray) -> None:
    with pytest.raises(ShapeError):
        checked_audio(audio, 80, frames=0)


@pytest.mark.parametrize(
    "frame", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)]
)
def test_what_is_no_frame_is_refused(frame: np.ndarray) -> None:
    with pytest.raises(ShapeError):
        checked_frames((frame,))
