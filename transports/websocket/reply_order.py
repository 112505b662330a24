"""Order in which a client of a socket learns of replies: one after the other, each from its begin to its end.

Audio leaves ahead of the clock, and words come as they are spoken. So a reply may be sent while the words of
the one before are still on their way: what is to be reported of it waits for the end of that one. A reply is
no longer than the audio that may be ahead, when it waits, and so is what waits with it.

Pure: the caller reports the ends, and asks for what waited (``go_on``).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from parley.protocols.client_protocol import Happening, ReplyBegan, ReplyOver


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """Place in the audio at which a reply ends.

    Attributes:
        reply_id: the reply.
        number: of its begin; a reply may be interrupted by other speech and begin again.
        is_followed: another reply has begun, so that this one is over whether or not its model still writes.
    """

    reply_id: str
    number: int
    is_followed: bool = False


@dataclass(slots=True)
class _Reply:
    began: ReplyBegan
    number: int
    waiting: list[Happening] = field(default_factory=list)


class ReplyOrder:
    """Replies of one call that have begun and are not over.

    Args:
        report: reports an event to the client.
        is_held: returns true while no reply may begin for the client.
    """

    def __init__(self, report: Callable[[Happening], None], is_held: Callable[[], bool]) -> None:
        self._report = report
        self._is_held = is_held
        self._replies: deque[_Reply] = deque()
        # The first of them has been reported.
        self._has_begun = False
        self._number = 0

    def begin(self, began: ReplyBegan) -> int:
        """Begin a reply after all others; return the number of its begin."""
        self._number += 1
        self._replies.append(_Reply(began, self._number))
        self.go_on()
        return self._number

    def add(self, reply_id: str, happening: Happening) -> None:
        """Report an event of a reply in its place; one of a reply that is over is dropped."""
        for reply in reversed(self._replies):
            if reply.began.reply_id == reply_id:
                if self._has_begun and reply is self._replies[0]:
                    self._report(happening)
                else:
                    reply.waiting.append(happening)
                return

    def end(self, number: int) -> None:
        """End the reply of this number, and those before it."""
        while self._replies and self._replies[0].number <= number:
            self._begin_first()
            reply = self._replies.popleft()
            self._has_begun = False
            self._report(ReplyOver(reply.began.reply_id))
        self.go_on()

    def go_on(self) -> None:
        """Report the first reply that is not over, unless it is held."""
        if self._replies and not self._has_begun and not self._is_held():
            self._begin_first()

    def cut(self) -> str | None:
        """Drop all replies; return the one that was reported, whose end is reported elsewhere."""
        cut_id = self._replies[0].began.reply_id if self._has_begun else None
        self._replies.clear()
        self._has_begun = False
        return cut_id

    def _begin_first(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            reply = self._replies[0]
            for happening in (reply.began, *reply.waiting):
                self._report(happening)
            reply.waiting.clear()
