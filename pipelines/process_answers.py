"""Answers that this process gives, of all its calls, by which it measures how many calls it can hold."""

from parley.core.call_events import AnswerHeard, EngineFailedOver
from parley.runtime.event_stream import CallEvents
from parley.telemetry.engine_names import REALTIME_SECTION


class ProcessAnswers:
    """Subscriber that passes the answers of one call on to the events of all calls.

    The answers of a realtime service are the provider's: they count from its failure on, when the cascade of
    this process answers.

    Args:
        events: of the call.
        answers: of all calls of the process.
        is_service: a realtime service answers.
    """

    def __init__(self, events: CallEvents, answers: CallEvents, *, is_service: bool) -> None:
        self._answers, self._is_service = answers, is_service
        events.subscribe(AnswerHeard, self._on_answer_heard)
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)

    def close(self) -> None:
        """Do nothing: every answer was passed on when it was heard."""

    def _on_answer_heard(self, event: AnswerHeard) -> None:
        if not self._is_service:
            self._answers.publish(event)

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        if event.stage == REALTIME_SECTION:
            self._is_service = False
