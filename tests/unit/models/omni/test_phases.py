"""Every pair of phase and call, and valid units."""

import itertools

import numpy as np
import pytest

from parley.core.errors import IllegalTransition, ShapeError
from parley.models.omni.phases import (
    TRANSITIONS,
    EngineCall,
    EnginePhase,
    Phases,
    checked_audio,
    checked_frames,
)

WAY_TO = {
    EnginePhase.NEW: (),
    EnginePhase.READY: (EngineCall.PREPARE,),
    EnginePhase.PREFILLED: (EngineCall.PREPARE, EngineCall.PREFILL),
    EnginePhase.GENERATED: (EngineCall.PREPARE, EngineCall.PREFILL, EngineCall.GENERATE),
    EnginePhase.STOPPED: (EngineCall.PREPARE, EngineCall.STOP),
}


def in_phase(phase: EnginePhase) -> Phases:
    phases = Phases()
    for call in WAY_TO[phase]:
        phases.enter(call)
    assert phases.phase is phase
    return phases


@pytest.mark.parametrize(("phase", "call"), list(itertools.product(EnginePhase, EngineCall)))
def test_every_pair_leads_where_the_table_says_or_is_an_error(phase: EnginePhase, call: EngineCall) -> None:
    phases = in_phase(phase)
    following = TRANSITIONS.get((phase, call))
    if following is None:
        with pytest.raises(IllegalTransition):
            phases.enter(call)
        assert phases.phase is phase
    else:
        assert phases.enter(call) is (following is not EnginePhase.STOPPED)
        assert phases.phase is following


def test_a_conversation_that_was_stopped_can_be_given_back_and_another_prepared() -> None:
    for phase in EnginePhase:
        phases = in_phase(phase)
        phases.enter(EngineCall.STOP)
        phases.enter(EngineCall.CLEANUP)
        phases.enter(EngineCall.PREPARE)
        assert phases.phase is EnginePhase.READY


def test_a_call_that_failed_may_come_again_but_not_after_a_stop() -> None:
    phases = in_phase(EnginePhase.READY)
    phases.enter(EngineCall.PREFILL)
    phases.take_back(EngineCall.PREFILL, EnginePhase.READY)
    assert phases.phase is EnginePhase.READY
    phases.enter(EngineCall.PREFILL)
    phases.enter(EngineCall.STOP)
    phases.take_back(EngineCall.PREFILL, EnginePhase.READY)
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
