"""Duration of conversations of each kind, learnt from those that ended well.

Each kind has a baseline until ``least_samples`` have ended well, and from then on an exponential moving
average of them. A failed conversation is not representative: counting those would let an estimate of 90 s
fall to 2 s after a few workers die. Pure.
"""

import heapq
from collections.abc import Iterable

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.serving.scheduler.types import Task


class EtaSettings(StrictModel):
    """Baselines and their refinement. The names are those of operators' tools of this kind."""

    eta_chat_s: float = Field(15.0, gt=0, le=86_400)
    eta_half_duplex_s: float = Field(180.0, gt=0, le=86_400)
    eta_audio_duplex_s: float = Field(120.0, gt=0, le=86_400)
    eta_omni_duplex_s: float = Field(90.0, gt=0, le=86_400)
    ema_alpha: float = Field(0.3, gt=0, le=1, description="weight of the newest sample")
    least_samples: int = Field(
        3, ge=1, le=1_000, description="conversations that ended normally before the estimate uses them"
    )
    overrun_s: float = Field(
        15.0,
        gt=0,
        le=3_600,
        description="estimated remaining time of a conversation that has exceeded its estimate",
    )

    def baseline_s(self, task: Task) -> float:
        """Return the estimate before anything was learnt."""
        return float(getattr(self, f"eta_{task.value}_s"))


class Eta:
    """Estimates of one pool."""

    def __init__(self, settings: EtaSettings | None = None) -> None:
        self.settings = settings or EtaSettings()
        self._mean_s: dict[Task, float] = {}
        self._samples: dict[Task, int] = {}

    def configure(self, settings: EtaSettings) -> None:
        """Set other baselines; the learnt values are kept."""
        self.settings = settings

    def samples(self, task: Task) -> int:
        """Return the number of conversations that ended well."""
        return self._samples.get(task, 0)

    def mean_s(self, task: Task) -> float | None:
        """Return the mean of those that ended well; None without any."""
        return self._mean_s.get(task)

    def lasts_s(self, task: Task) -> float:
        """Return the estimated duration of a whole conversation."""
        if self.samples(task) >= self.settings.least_samples:
            return self._mean_s[task]
        return self.settings.baseline_s(task)

    def left_s(self, task: Task, elapsed_s: float) -> float:
        """Return the estimated rest of a conversation that has lasted this long."""
        left_s = self.lasts_s(task) - elapsed_s
        return left_s if left_s > 0 else self.settings.overrun_s

    def wait_s(self, task: Task, elapsed_s: Iterable[float], ends: int) -> float | None:
        """Estimate the time until a number of conversations have ended, each followed by another one.

        Args:
            task: type of all of them.
            elapsed_s: durations so far of the running ones.
            ends: number that must end.

        Returns:
            None where none is running.
        """
        left_s = [self.left_s(task, each) for each in elapsed_s]
        if not left_s:
            return None
        heapq.heapify(left_s)
        wait_s = 0.0
        for _ in range(ends):
            wait_s = heapq.heappop(left_s)
            heapq.heappush(left_s, wait_s + self.lasts_s(task))
        return wait_s

    def ended_well(self, task: Task, lasted_s: float) -> None:
        """Learn from a conversation that ended well."""
        mean_s, alpha = self._mean_s.get(task), self.settings.ema_alpha
        self._mean_s[task] = lasted_s if mean_s is None else mean_s + alpha * (lasted_s - mean_s)
        self._samples[task] = self.samples(task) + 1
