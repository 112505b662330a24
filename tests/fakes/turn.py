"""Scripted turn completeness."""

import threading
from collections.abc import Sequence

import numpy as np

from parley.core.errors import EngineError, ShapeError
from parley.models.turn import TurnEstimate


class ScriptedTurn:
    """Model that returns the probabilities of a script, one per call; the last one stays.

    Args:
        probabilities: 0..1 each, or an EngineError to raise.
        filler_log_odds: value of each result.
    """

    rate_hz = 16_000
    max_samples = 8 * 16_000

    def __init__(
        self, probabilities: Sequence[float | EngineError] = (0.9,), filler_log_odds: float | None = None
    ) -> None:
        self._script = list(probabilities)
        self._filler_log_odds = filler_log_odds
        self._lock = threading.Lock()
        self.heard_samples: list[int] = []

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        if audio.ndim != 1:
            raise ShapeError(f"expected (samples,), got {audio.shape}")
        with self._lock:
            self.heard_samples.append(min(len(audio), self.max_samples))
            answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(answer, EngineError):
            raise answer
        return TurnEstimate(answer, self._filler_log_odds)
