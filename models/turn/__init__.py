"""Turn completeness: did that sound like the end of what the caller wanted to say?

Stateless: the caller keeps the last seconds of audio. Shared by all calls, thread-safe.
"""

from typing import Protocol

import numpy as np

from core.registry import Registry, Row


class TurnCompleteness(Protocol):
    """Shared weights. Thread-safe."""

    rate_hz: int
    max_samples: int

    def probability(self, audio: np.ndarray) -> float:
        """Probability that the turn is complete, 0..1.

        audio: float32, (samples,), the turn so far with its trailing silence, in [-1, 1]; longer than
            ``max_samples`` is cut from the front.
        """
        ...


TURN: Registry[TurnCompleteness] = Registry(
    "turn", {"smart_turn": Row("models.turn.smart_turn:SmartTurn", "smart-turn v3 from the Pipecat wheel")}
)
