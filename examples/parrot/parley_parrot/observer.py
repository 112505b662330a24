"""Observer of calls: counts turns and measures answers, and logs one line at the end of each call."""

from loguru import logger
from pydantic import BaseModel

from parley.core.call_events import AnswerHeard, TurnEnded
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall


class TurnCountSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the observer."""

    label: str = "turns"


class TurnCount:
    """Observer of one call. It is called on the event loop, so it only counts."""

    def __init__(
        self, events: CallEvents, call: ObservedCall, settings: TurnCountSettings | None = None
    ) -> None:
        self._call = call
        self._label = (settings or TurnCountSettings()).label
        self._turns = 0
        self._latencies_ms: list[int] = []
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(AnswerHeard, self._on_answer_heard)

    def close(self) -> None:
        """Log the count: no event follows."""
        slowest = max(self._latencies_ms, default=0)
        logger.info(f"{self._label}: {self._turns} over {self._call.transport}, slowest answer {slowest} ms")

    def _on_turn_ended(self, event: TurnEnded) -> None:
        self._turns += bool(event.text)

    def _on_answer_heard(self, event: AnswerHeard) -> None:
        self._latencies_ms.append(event.latency_ms)
