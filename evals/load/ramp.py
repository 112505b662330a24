"""Steps of more and more calls, and the number at which a server no longer keeps up. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEPS = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 200, 250, 300)
# Where a kind has packets of the bot's voice, the bound of the p99 of their lateness.
LATE_MS: Mapping[str, float] = {"browser": 20.0, "phone": 10.0}
# Callers that are later than this themselves measure their own machine.
MOST_OWN_LATE_MS = 5.0
# Bound of the p95 of the time to an answer, against that of the first step.
ANSWER_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one number of calls.

    Attributes:
        calls: number of calls.
        figures: of the crowd (``evals.harness.crowd``).
    """

    calls: int
    figures: Mapping[str, Any]

    @property
    def late_ms(self) -> float | None:
        """p99 of the lateness of the bot's packets; None where none came."""
        spread = self.figures.get("late_ms") or self.figures.get("pacing_error_ms") or {}
        found: float | None = spread.get("p99")
        return found

    @property
    def answer_ms(self) -> float | None:
        """p95 of the time to an answer; None where no question was asked."""
        found: float | None = (self.figures.get("answer_ms") or {}).get("p95")
        return found

    @property
    def own_late_ms(self) -> float:
        """p99 of the lateness of the callers' own packets."""
        return float((self.figures.get("own_late_ms") or {}).get("p99", 0.0))

    def fault(self, kind: str, first: "Step") -> str:
        """Return why the server did not keep up, measured against the first step; empty when it did."""
        if self.figures["held"] < self.calls:
            return f"{self.calls - self.figures['held']} calls not held {' '.join(self.figures['refused'])}"
        if unanswered := self.figures.get("unanswered", 0):
            return f"{unanswered} questions unanswered"
        if "answer_ms" in self.figures and not self.answer_ms:
            return "no question was judged"
        if self.own_late_ms > MOST_OWN_LATE_MS:
            return f"undecided: the callers' own packets were {self.own_late_ms} ms late (p99)"
        most_ms = LATE_MS.get(kind)
        if most_ms is not None and (self.late_ms is None or self.late_ms > most_ms):
            return f"p99 of lateness {self.late_ms} ms (at most {most_ms:g})"
        if first.answer_ms and self.answer_ms and self.answer_ms > ANSWER_RATIO * first.answer_ms:
            return f"p95 of answers {self.answer_ms} ms (alone {first.answer_ms})"
        return ""


def late_packets(late_ms: Sequence[float]) -> int:
    """Return how many packets of browser calls came later than the bound of their p99."""
    return sum(each > LATE_MS["browser"] for each in late_ms)


def knee(kind: str, steps: Sequence[Step]) -> int:
    """Return the largest number of calls up to which every step was kept up with; 0 when none was."""
    found = 0
    for step in steps:
        if step.fault(kind, steps[0]):
            break
        found = step.calls
    return found
