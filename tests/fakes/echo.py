"""Echo cancellers for tests that remove nothing; one fails, one cannot be opened, one waits."""

import threading

import numpy as np

from parley.core.errors import EngineError, ShapeError

RATE_HZ = 16_000
FRAME_SAMPLES = 160


class PassingEcho:
    """Canceller that returns the microphone signal unchanged."""

    rate_hz = RATE_HZ
    frame_samples = FRAME_SAMPLES

    def open_stream(self) -> "PassingStream":
        return PassingStream()

    def suppressor(self) -> "PassingEcho":
        return PassingEcho()


class PassingStream:
    """The stream of one caller; keeps no state."""

    def __init__(self) -> None:
        self.is_closed = False

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        if near.shape != (FRAME_SAMPLES,) or far.shape != (FRAME_SAMPLES,):
            raise ShapeError(f"expected ({FRAME_SAMPLES},), got {near.shape} and {far.shape}")
        return near

    def close(self) -> None:
        self.is_closed = True


class HalvingEcho(PassingEcho):
    """Engine whose canceller halves the signal and whose suppressor changes nothing."""

    def open_stream(self) -> "PassingStream":
        return HalvingStream()


class HalvingStream(PassingStream):
    """The stream of one caller, which halves the signal."""

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        return np.float32(0.5) * super().process(near, far)


class CountingEcho(PassingEcho):
    """Canceller that counts its frames.

    Attributes:
        frames: number of frames that were processed.
    """

    def __init__(self) -> None:
        self.frames = 0

    def open_stream(self) -> "CountingStream":
        return CountingStream(self)


class CountingStream(PassingStream):
    """The stream of one caller, which counts its frames."""

    def __init__(self, echo: CountingEcho) -> None:
        super().__init__()
        self._echo = echo

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        self._echo.frames += 1
        return super().process(near, far)


class FailingEcho(PassingEcho):
    """Canceller that fails after some frames."""

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def open_stream(self) -> "FailingStream":
        return FailingStream(self._frames)


class FailingStream(PassingStream):
    """The stream of one caller, which fails after some frames."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self._frames = frames

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        if not self._frames:
            raise EngineError("out of frames", engine="failing")
        self._frames -= 1
        return super().process(near, far)


class ClosedEcho(PassingEcho):
    """Canceller that cannot be opened."""

    def open_stream(self) -> PassingStream:
        raise EngineError("there is no more room", engine="closed")


class WaitingEcho(PassingEcho):
    """Canceller that signals its first frame and blocks until it is released.

    Args:
        working: set at the first frame.
        may_end: the canceller waits for it.
    """

    def __init__(self, working: threading.Event, may_end: threading.Event) -> None:
        self._working, self._may_end = working, may_end

    def open_stream(self) -> "WaitingStream":
        return WaitingStream(self._working, self._may_end)


class WaitingStream(PassingStream):
    """The stream of one caller, which waits in its first frame."""

    def __init__(self, working: threading.Event, may_end: threading.Event) -> None:
        super().__init__()
        self._working, self._may_end = working, may_end

    def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        assert not self.is_closed
        self._working.set()
        assert self._may_end.wait(5)
        return super().process(near, far)
