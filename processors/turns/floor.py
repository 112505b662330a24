"""State of the floor in one call: held by the bot, or not.

One stage of a call, the one that decides about interruptions, publishes when a reply takes and leaves the
floor (``FloorHolder``). A change is seen after the event that caused it has reached all its subscribers.
Idle prompts and the end of a phone call query ``Floor``.
"""

from parley.core.call_events import FloorLeft, FloorTaken, Wait, WaitBegan, WaitEnded
from parley.runtime.event_stream import CallEvents


class FloorHolder:
    """A stage that knows of replies.

    Args:
        events: of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events
        self._holds = False

    def hold(self, holds: bool) -> None:
        """Publish whether a reply is on, on its way or about to be resumed, where that is news."""
        if holds is self._holds:
            return
        self._holds = holds
        if holds:
            self._events.publish(FloorTaken(self._events.now_ms()))
        else:
            self._events.publish(FloorLeft(self._events.now_ms()))


class Floor:
    """The bot's side of the floor.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._holds = self._is_owed = False
        events.subscribe(FloorTaken, self._on_floor_taken)
        events.subscribe(FloorLeft, self._on_floor_left)
        events.subscribe(WaitBegan, self._on_wait_began)
        events.subscribe(WaitEnded, self._on_wait_ended)

    def holds_reply(self) -> bool:
        """Return whether a reply is current, announced or about to be resumed."""
        return self._holds

    def is_answering(self) -> bool:
        """Return whether an answer is owed, including a running tool, or is on its way."""
        return self._is_owed or self._holds

    def _on_floor_taken(self, _event: FloorTaken) -> None:
        self._holds = True

    def _on_floor_left(self, _event: FloorLeft) -> None:
        self._holds = False

    def _on_wait_began(self, event: WaitBegan) -> None:
        self._is_owed = self._is_owed or event.reason is Wait.ANSWER

    def _on_wait_ended(self, event: WaitEnded) -> None:
        self._is_owed = self._is_owed and event.reason is not Wait.ANSWER
