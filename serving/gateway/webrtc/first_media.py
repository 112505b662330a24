"""Deadline for the first media or message of a WebRTC call.

An offer costs nothing and takes a line, and its media come a moment after it. A call is therefore counted
from its beginning with the silent sockets and in the same places (``CallTasks.start``, ``counts_silence``),
until media or a message has come. It ends when nothing has come for ``ENDED_S``. Pings do not count, because
they come without a person or a microphone. A peer with a silent microphone sends packets; ``bot.idle``
handles it.
"""

import asyncio
from collections.abc import Callable

from loguru import logger

# As long as ``sockets.open_s``.
ENDED_S = 30.0


class FirstWord:
    """First media or message of one call.

    Args:
        then: called when it comes.
        ended_s: from the beginning of the call until it ends.
    """

    def __init__(self, then: Callable[[], None], *, ended_s: float = ENDED_S) -> None:
        self._then: Callable[[], None] | None = then
        self._ended_s = ended_s
        self._has_come = False
        self._timer: asyncio.TimerHandle | None = None

    def came(self) -> None:
        """Record media or a message; may be called often."""
        if not self._has_come:
            self._has_come = True
            then = self._then
            self.close()
            if then is not None:
                then()

    def watch(self, call: asyncio.Task[None]) -> None:
        """Cancel a call in which nothing comes. Called once, as the call begins."""
        if self._has_come:
            return
        self._timer = asyncio.get_running_loop().call_later(self._ended_s, self._end, call)

    def _end(self, call: asyncio.Task[None]) -> None:
        logger.info(f"a browser has sent nothing for {self._ended_s:g} s, ending its call")
        call.cancel()

    def close(self) -> None:
        """Wait no longer, and forget the listener: it refers to the call, which refers to this object."""
        self._then = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
