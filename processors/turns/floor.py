"""Answers whether the bot holds the floor in one call: a question, where ``core.call_events`` are news.

The stage that decides about interruptions knows whether a reply is on, on its way or about to be resumed; it
registers here when it is built. Idle prompts and the end of a telephone call ask.
"""

from collections.abc import Callable

from core.call_events import Wait, WaitBegan, WaitEnded
from runtime.event_stream import CallEvents


class Floor:
    """The bot's side of the floor.

    Args:
        events: of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._holders: list[Callable[[], bool]] = []
        self._is_owed = False
        events.subscribe(WaitBegan, self._on_wait_began)
        events.subscribe(WaitEnded, self._on_wait_ended)

    def add_holder(self, holds_reply: Callable[[], bool]) -> None:
        """Register a stage that knows of replies."""
        self._holders.append(holds_reply)

    def holds_reply(self) -> bool:
        """Return whether a reply is on, on its way or about to be resumed."""
        return any(holds_reply() for holds_reply in self._holders)

    def is_answering(self) -> bool:
        """Return whether an answer is owed, a tool that runs included, or on its way."""
        return self._is_owed or self.holds_reply()

    def close(self) -> None:
        """Forget the stages: the call is over."""
        self._holders.clear()

    def _on_wait_began(self, event: WaitBegan) -> None:
        self._is_owed = self._is_owed or event.reason is Wait.ANSWER

    def _on_wait_ended(self, event: WaitEnded) -> None:
        self._is_owed = self._is_owed and event.reason is not Wait.ANSWER
