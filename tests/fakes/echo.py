"""Echo cancellers for tests: they take nothing away. One fails, one never opens, one waits."""

import threading

import numpy as np

from core.errors import EngineError, ShapeError

RATE_HZ = 16_000
FRAME_SAMPLES = 160


class PassingEcho:
    """Gives back what the microphone heard, as it is."""

    rate_hz = RATE_HZ
    frame_samples = FRAME_SAMPLES

    def open_stream(self) -> "PassingStream":
        return PassingStream()

    def suppressor(self) -> "PassingEcho":
        return PassingEcho()


class PassingStream:
    """One caller; remembers nothing."""

    def __init__(self) -> None:
        self.is_closed = False

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        if near.shape != (FRAME_SAMPLES,) or far.shape != (FRAME_SAMPLES,):
            raise ShapeError(f"expected ({FRAME_SAMPLES},), got {near.shape} and {far.shape}")
        return near

    def close(self) -> None:
        self.is_closed = True


class HalvingEcho(PassingEcho):
    """Its canceller takes half of everything away; its suppressor nothing."""

    def open_stream(self) -> "PassingStream":
        return HalvingStream()


class HalvingStream(PassingStream):
    """One caller, at half the level."""

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        return np.float32(0.5) * super().process(near, far)


class CountingEcho(PassingEcho):
    """Counts the frames of its canceller.

    Attributes:
        frames: so many.
    """

    def __init__(self) -> None:
        self.frames = 0

    def open_stream(self) -> "CountingStream":
        return CountingStream(self)


class CountingStream(PassingStream):
    """One caller."""

    def __init__(self, echo: CountingEcho) -> None:
        super().__init__()
        self._echo = echo

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        self._echo.frames += 1
        return super().process(near, far)


class FailingEcho(PassingEcho):
    """Works for some frames, and then no more."""

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def open_stream(self) -> "FailingStream":
        return FailingStream(self._frames)


class FailingStream(PassingStream):
    """One caller."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self._frames = frames

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        if not self._frames:
            raise EngineError("out of frames", engine="failing")
        self._frames -= 1
        return super().process(near, far)


class ClosedEcho(PassingEcho):
    """Opens for nobody."""

    def open_stream(self) -> PassingStream:
        raise EngineError("there is no more room", engine="closed")


class WaitingEcho(PassingEcho):
    """Says when it works on its first frame, and waits to be let go.

    Args:
        working: set then.
        may_end: waited for.
    """

    def __init__(self, working: threading.Event, may_end: threading.Event) -> None:
        self._working, self._may_end = working, may_end

    def open_stream(self) -> "WaitingStream":
        return WaitingStream(self._working, self._may_end)


class WaitingStream(PassingStream):
    """One caller."""

    def __init__(self, working: threading.Event, may_end: threading.Event) -> None:
        super().__init__()
        self._working, self._may_end = working, may_end

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        assert not self.is_closed
        self._working.set()
        assert self._may_end.wait(5)
        return super().process(near, far)
