"""Turn completeness: probability that audio ends at the end of the caller's turn.

Stateless: the caller of the API keeps the last seconds of audio. Shared by all calls, thread-safe.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parley.core.registry import Registry, Row


@dataclass(frozen=True, slots=True)
class TurnEstimate:
    """Estimate of the end of a turn.

    Attributes:
        complete: probability that it is complete, 0..1.
        filler_log_odds: log odds that it stops on a filler ("um"); None from an engine without an estimate.
    """

    complete: float
    filler_log_odds: float | None = None


class TurnCompleteness(Protocol):
    """Model of turn completeness with shared weights. Thread-safe."""

    rate_hz: int
    max_samples: int

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        """Return the estimate for a turn.

        audio: float32, (samples,), the turn so far with its trailing silence, in [-1, 1]; longer than
            ``max_samples`` is cut from the front.
        """
        ...


TURN: Registry[TurnCompleteness] = Registry(
    "turn",
    {
        "smart_turn": Row(
            "parley.models.turn.smart_turn:SmartTurn", "the default: smart-turn v3 from the Pipecat wheel"
        ),
        "turn_1_mini": Row(
            "parley.models.turn.turn_1:Turn1Mini", "p99lab's small model, English; you provide its folder"
        ),
        "turn_1": Row(
            "parley.models.turn.turn_1:Turn1",
            "p99lab's large model on a GPU, English; you provide its folder",
        ),
    },
)
