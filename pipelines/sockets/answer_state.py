"""Answers in the call of a socket's client: whether one is awaited, and whether a turn has one."""

from collections.abc import Callable

from parley.core.call_events import QuestionDropped, QuestionSent, Wait, WaitBegan, WaitEnded
from parley.protocols.client_protocol import SessionUpdate
from parley.runtime.event_stream import CallEvents


class AnswerWait:
    """State of the caller's wait for an answer, from its question to its first words.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._is_on = False
        events.subscribe(WaitBegan, lambda event: self._set(event.reason, is_on=True))
        events.subscribe(WaitEnded, lambda event: self._set(event.reason, is_on=False))

    def is_on(self) -> bool:
        """Return whether the caller waits for an answer."""
        return self._is_on

    def _set(self, reason: Wait, *, is_on: bool) -> None:
        if reason is Wait.ANSWER:
            self._is_on = is_on


class TurnAnswers:
    """Decision whether a turn of the caller is answered, as ``Call.answers``.

    A client may have requested that turns are not answered on their own. An answer that it requests is for
    the newest turn, also where a noise cuts it and the model is asked again.

    Args:
        requested: returns the settings that the client has requested.
        events: events of the call.
    """

    def __init__(self, requested: Callable[[], SessionUpdate], events: CallEvents) -> None:
        self._requested, self._is_requested = requested, False
        # Turn of which an answer was requested; empty for none.
        self._turn = ""
        # A question without a turn, such as that for the first words, takes the request too.
        events.subscribe(QuestionSent, self._on_question)
        events.subscribe(QuestionDropped, self._on_question)

    def request(self) -> None:
        """Let the model answer the next question."""
        self._is_requested = True

    def __call__(self, said: str, *, is_again: bool) -> str | None:
        is_requested = self._is_requested or (is_again and said == self._turn)
        self._is_requested, self._turn = False, said if is_requested else ""
        return "" if self._requested().answers is False and not is_requested else None

    def _on_question(self, _event: QuestionSent | QuestionDropped) -> None:
        self._is_requested = False
