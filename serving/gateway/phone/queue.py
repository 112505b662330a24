"""Phone callers in the queue for a line: what they hear, and how their presence is checked.

The order, and the limits of number and time, are those of all callers (``serving.scheduler.call_queue``). A
phone caller in the queue holds no line and no stream. Twilio speaks their position, pauses, and sends the
next request (``<Redirect>``). Input: each request about a call. Output: the words for the caller. A call
without a request in time (the pause, and ``GONE_S`` after words or ``LATE_S``) has hung up; a call status
that reports it is quicker. With a full queue, after too long a wait, or when removed by an operator, the
caller hears ``phone.busy``. Owns no task.
"""

from collections.abc import Callable

from pydantic import Field, field_validator

from parley.core.errors import CapacityError
from parley.core.strict_model import StrictModel
from parley.core.templates import validate_template
from parley.serving.scheduler.call_queue import CallQueue

# Time after the pause: Twilio's voice speaks a phrase in less. Without words: the round trip to Twilio.
GONE_S = 30.0
LATE_S = 8.0
# Interval of checks for a free line, and time after which the phrase is repeated.
LOOK_S = 5
AGAIN_S = 30.0
TRANSPORT = "phone"


class PhoneQueueSettings(StrictModel):
    """Queue of phone callers without a line."""

    phrase: str = Field(
        "All lines are busy. You are number {position} in the queue. Please hold.",
        min_length=1,
        max_length=250,
        description="phrase when the position has changed, and every 30 s",
    )

    @field_validator("phrase")
    @classmethod
    def _says_a_position(cls, phrase: str) -> str:
        return validate_template(phrase, "position")


class PhoneQueue:
    """Waiting phone callers of one gateway.

    Args:
        settings: of the wait.
        queue: of all callers.
        clock_s: monotonic; that of the queue.
    """

    def __init__(self, settings: PhoneQueueSettings, queue: CallQueue, clock_s: Callable[[], float]) -> None:
        self._settings = settings
        self._queue = queue
        self._clock_s = clock_s
        # Position that a caller heard last, and when.
        self._said: dict[str, tuple[int, float]] = {}

    def __contains__(self, call_sid: object) -> bool:
        return call_sid in self._queue

    def asked(self, call_sid: str) -> None:
        """Record that a caller is still present."""
        self._queue.refresh(call_sid, self._clock_s() + LATE_S)

    def was_removed(self, call_sid: str) -> bool:
        """Return whether an operator has removed a caller."""
        return self._queue.was_removed(call_sid)

    def wait(self, call_sid: str, *, uses_recogniser: bool) -> str | None:
        """Let a caller wait, or continue to wait.

        Returns:
            Words to be spoken first, which may be empty; None: the caller may not wait any longer.
        """
        now_s, settings = self._clock_s(), self._settings
        if self._queue.was_removed(call_sid):
            return None
        self.asked(call_sid)
        if call_sid not in self._queue:
            self._said = {sid: said for sid, said in self._said.items() if sid in self._queue}
            try:
                until_s = now_s + LOOK_S + GONE_S
                self._queue.join(
                    call_sid, transport=TRANSPORT, uses_recogniser=uses_recogniser, expires_s=until_s
                )
            except CapacityError:
                return None
        if self._queue.is_overdue(call_sid):
            self.leave(call_sid)
            return None
        position = self._queue.ahead_of(call_sid) + 1
        said_position, said_s = self._said.get(call_sid, (0, now_s))
        if position == said_position and now_s - said_s < AGAIN_S:
            self._queue.refresh(call_sid, now_s + LOOK_S + LATE_S)
            return ""
        self._said[call_sid] = position, now_s
        self._queue.refresh(call_sid, now_s + LOOK_S + GONE_S)
        return settings.phrase.format(position=position)

    def leave(self, call_sid: str) -> float | None:
        """Remove a caller who has a line or has hung up.

        Returns:
            Their wait in seconds; None if they did not wait.
        """
        self._said.pop(call_sid, None)
        return self._queue.leave(call_sid)
