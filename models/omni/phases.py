"""Legal order of the calls in a conversation with an omni engine.

Every engine has one ``Phases`` and enters each call before it acts. A call out of order is the same error
everywhere and leaves the engine unchanged. ``stop`` may come from another thread at any time: the running
call then ends silently, and later calls do nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np

from parley.core.errors import IllegalTransition, ShapeError


class EnginePhase(Enum):
    """State of a conversation."""

    NEW = "new"
    READY = "ready"
    PREFILLED = "prefilled"
    GENERATED = "generated"
    STOPPED = "stopped"


class EngineCall(Enum):
    """Method of an engine."""

    PREPARE = "prepare"
    PREFILL = "prefill"
    GENERATE = "generate"
    FINALIZE = "finalize"
    STOP = "stop"
    CLEANUP = "cleanup"


_P, _C = EnginePhase, EngineCall

TRANSITIONS: Mapping[tuple[EnginePhase, EngineCall], EnginePhase] = {
    (_P.NEW, _C.PREPARE): _P.READY,
    (_P.NEW, _C.STOP): _P.NEW,
    (_P.NEW, _C.CLEANUP): _P.NEW,
    (_P.READY, _C.PREFILL): _P.PREFILLED,
    (_P.READY, _C.STOP): _P.STOPPED,
    (_P.READY, _C.CLEANUP): _P.NEW,
    (_P.PREFILLED, _C.GENERATE): _P.GENERATED,
    (_P.PREFILLED, _C.STOP): _P.STOPPED,
    (_P.PREFILLED, _C.CLEANUP): _P.NEW,
    (_P.GENERATED, _C.FINALIZE): _P.READY,
    (_P.GENERATED, _C.STOP): _P.STOPPED,
    (_P.GENERATED, _C.CLEANUP): _P.NEW,
    # A unit that was under way when the conversation was stopped is accepted and has no effect.
    (_P.STOPPED, _C.PREFILL): _P.STOPPED,
    (_P.STOPPED, _C.GENERATE): _P.STOPPED,
    (_P.STOPPED, _C.FINALIZE): _P.STOPPED,
    (_P.STOPPED, _C.STOP): _P.STOPPED,
    (_P.STOPPED, _C.CLEANUP): _P.NEW,
}


class Phases:
    """Phase of one conversation. Thread-safe."""

    def __init__(self) -> None:
        self._phase = EnginePhase.NEW
        self._lock = threading.Lock()

    @property
    def phase(self) -> EnginePhase:
        """Present phase."""
        return self._phase

    @property
    def is_stopped(self) -> bool:
        """True after ``stop``: a running generation ends at its next token."""
        return self._phase is EnginePhase.STOPPED

    def enter(self, call: EngineCall) -> bool:
        """Record a call; return whether it is to act, which is false after a ``stop``.

        Raises:
            IllegalTransition: the call is not legal now.
        """
        with self._lock:
            following = TRANSITIONS.get((self._phase, call))
            if following is None:
                raise IllegalTransition(self._phase.value, call.value)
            self._phase = following
            return following is not EnginePhase.STOPPED

    def enter_prefill(
        self,
        audio: np.ndarray,
        frames: Sequence[np.ndarray],
        samples: int,
        *,
        engine: str,
        takes_frames: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]] | None:
        """Enter a prefill and return the validated unit; None after a ``stop``.

        Raises:
            IllegalTransition: the call is not legal now.
            ShapeError: see ``checked_audio`` and ``checked_frames``, or frames that the engine does not take.
                The call may be repeated.
        """
        before = self._phase
        active = self.enter(EngineCall.PREFILL)
        try:
            if frames and not takes_frames:
                raise ShapeError(f"{engine} accepts no pictures")
            seen = checked_frames(tuple(frames))
            heard = checked_audio(audio, samples, frames=len(seen))
        except ShapeError:
            self.take_back(EngineCall.PREFILL, before)
            raise
        return (heard, seen) if active else None

    def take_back(self, call: EngineCall, phase: EnginePhase) -> None:
        """Restore the phase before a failed call, so that it may be repeated. Has no effect after a
        ``stop``.
        """
        with self._lock:
            if self._phase is TRANSITIONS[phase, call]:
                self._phase = phase


def checked_audio(audio: np.ndarray, samples: int, *, frames: int) -> np.ndarray:
    """Return a valid unit: float32, (samples,), padded with silence at the front; empty with frames alone.

    Raises:
        ShapeError: another shape or dtype, longer, neither audio nor frames, or values that are not finite.
    """
    if audio.ndim != 1 or audio.dtype != np.float32:
        raise ShapeError(f"expected float32, (samples,), got {audio.dtype}, {audio.shape}")
    if len(audio) > samples:
        raise ShapeError(f"expected at most {samples} samples of a unit, got {len(audio)}")
    if not len(audio) and not frames:
        raise ShapeError("the unit has neither audio nor pictures")
    if not np.isfinite(audio).all():
        raise ShapeError("the audio of a unit has non-finite values")
    if not len(audio) or len(audio) == samples:
        return audio
    return np.concatenate((np.zeros(samples - len(audio), np.float32), audio))


def checked_frames(frames: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Return frames after validation: uint8, (height, width, 3).

    Raises:
        ShapeError: another shape or dtype.
    """
    for frame in frames:
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or not frame.size:
            raise ShapeError(f"expected uint8, (height, width, 3), got {frame.dtype}, {frame.shape}")
    return frames
