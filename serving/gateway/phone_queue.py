"""Callers for whom there is no line yet: who is next, and what they are told.

Decides whose turn it is. A caller who waits holds no line and no stream: Twilio says their place, pauses, and
asks again (``<Redirect>``), which is also how it is known that they are still there. In: each time a call is
asked about. Out: how many are before it, and what it hears.

First come, first served: a line that comes free is promised to those in front, so a caller who calls now does
not overtake one who has waited. Who is not asked about in time (the pause, and ``GONE_S`` behind words or
``LATE_S``) has hung up; a call status that says so is quicker. Full, or too long a wait: the caller is told
``phone.busy``. Owns no task.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, field_validator

from core.phrases import checked_phrase

# Behind the pause: Twilio's voice says a phrase in less. Where nothing was said: the way to Twilio and back.
GONE_S = 30.0
LATE_S = 8.0


class PhoneQueueSettings(BaseModel):
    """How callers wait for a line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phrase: str = Field(
        "All lines are busy. You are number {position} in the queue. Please hold.",
        min_length=1,
        max_length=250,
        description="said when the position has changed, and every ``again_s``",
    )
    most: int = Field(20, ge=1, le=10_000, description="callers who wait; others are told that it is busy")
    every_s: int = Field(5, ge=1, le=60, description="so often it is looked whether there is a line")
    again_s: float = Field(30.0, ge=1, le=600, description="the phrase is said again behind this")
    longest_s: float = Field(600.0, ge=1, le=14_400, description="nobody waits longer")

    @field_validator("phrase")
    @classmethod
    def _says_a_position(cls, phrase: str) -> str:
        return checked_phrase(phrase, "position")


@dataclass
class _Waiting:
    """One caller.

    Attributes:
        since_s: when they were asked about first.
        gone_at_s: who is not asked about again until then has hung up.
        position, said_s: what they were told last, and when; 0: nothing yet.
    """

    since_s: float
    gone_at_s: float
    position: int = 0
    said_s: float = 0.0


class PhoneQueue:
    """Of one gateway.

    Args:
        settings: see the model.
        clock_s: monotonic.
    """

    def __init__(self, settings: PhoneQueueSettings, clock_s: Callable[[], float]) -> None:
        self._settings = settings
        self._clock_s = clock_s
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()

    def __contains__(self, call_sid: object) -> bool:
        return call_sid in self._waiting

    def __len__(self) -> int:
        self._forget_the_gone()
        return len(self._waiting)

    def ahead_of(self, call_sid: str) -> int:
        """How many are before this caller, who is there; everybody, for one who does not wait."""
        if (asks := self._waiting.get(call_sid)) is not None:
            asks.gone_at_s = max(asks.gone_at_s, self._clock_s())
        self._forget_the_gone()
        for number, waiting in enumerate(self._waiting):
            if waiting == call_sid:
                return number
        return len(self._waiting)

    def wait(self, call_sid: str) -> str | None:
        """This caller waits on: what they hear first, maybe nothing. None: they do not wait any longer."""
        now_s, settings = self._clock_s(), self._settings
        position = self.ahead_of(call_sid) + 1
        waiting = self._waiting.get(call_sid)
        if waiting is None:
            if len(self._waiting) >= settings.most:
                return None
            waiting = self._waiting[call_sid] = _Waiting(now_s, now_s)
        if now_s - waiting.since_s >= settings.longest_s:
            self.leave(call_sid)
            return None
        if position == waiting.position and now_s - waiting.said_s < settings.again_s:
            waiting.gone_at_s = now_s + settings.every_s + LATE_S
            return ""
        waiting.position, waiting.said_s = position, now_s
        waiting.gone_at_s = now_s + settings.every_s + GONE_S
        return settings.phrase.format(position=position)

    def leave(self, call_sid: str) -> float | None:
        """They have a line, or have hung up; how long they waited, in seconds. None: they did not."""
        waiting = self._waiting.pop(call_sid, None)
        return None if waiting is None else self._clock_s() - waiting.since_s

    def _forget_the_gone(self) -> None:
        # Not in the order in which they were seen: the queue is short.
        now_s = self._clock_s()
        for call_sid in [sid for sid, waiting in self._waiting.items() if waiting.gone_at_s < now_s]:
            del self._waiting[call_sid]
