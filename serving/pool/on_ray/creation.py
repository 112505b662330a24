"""Failed creations of actors: why, and when the next one is allowed."""

from dataclasses import dataclass

FIRST_S, MOST_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    pause_s: float
    until_s: float


class CreationPauses:
    """Pauses after failed creations, which double for each name. Times are those of a steady clock."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def failed(self, name: str, reason: str, now_s: float) -> None:
        """Record a failed creation. Several calls that notice the same one count once."""
        before = self._failures.get(name)
        if before is not None and now_s < before.until_s:
            return
        pause_s = FIRST_S if before is None else min(2 * before.pause_s, MOST_S)
        self._failures[name] = _Failure(reason, pause_s, now_s + pause_s)

    def succeeded(self, name: str) -> None:
        """Record an answer of an actor."""
        self._failures.pop(name, None)

    def reason(self, name: str, now_s: float) -> str:
        """Return why an actor is not created now; empty: it can be."""
        failure = self._failures.get(name)
        return failure.reason if failure is not None and now_s < failure.until_s else ""
