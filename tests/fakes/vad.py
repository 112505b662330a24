"""Voice activity by loudness, at no cost: a window holds a voice when it is louder than a threshold."""

import numpy as np

from parley.core.errors import ShapeError


class EnergyVad:
    """Detector that is shared by all streams.

    Args:
        threshold: root mean square from which a window holds a voice, 0..1.
    """

    rate_hz = 16_000
    window_samples = 512

    def __init__(self, threshold: float = 0.01) -> None:
        self._threshold = threshold

    def open_stream(self) -> "EnergyVadStream":
        return EnergyVadStream(self._threshold)


class EnergyVadStream:
    """The stream of one caller; keeps no state."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def probability(self, window: np.ndarray) -> float:
        if window.shape != (EnergyVad.window_samples,):
            raise ShapeError(f"expected ({EnergyVad.window_samples},), got {window.shape}")
        loud = float(np.vdot(window, window)) >= self._threshold**2 * window.size
        return 0.95 if loud else 0.02

    def reset(self) -> None:
        return None
