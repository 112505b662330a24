"""Deadline for the first media or message of a WebRTC call.

A socket that says nothing is counted from its handshake (``CallTasks.take_silent``). A browser's media come a
moment after its offer, and several pages of one address may begin at once: its call is counted when nothing
has come for ``COUNTED_S``, with the sockets that say nothing and in the same places. It ends where there is
no such place, and in any case after ``ENDED_S``. Pings are no word: they come without a person or a
microphone. A peer whose microphone is silent sends packets, and is left to ``bot.idle``.
"""

import asyncio
from collections.abc import Callable

from loguru import logger

from core.errors import CapacityError
from serving.gateway.limits import Place

# Longer than connecting and a slow page take.
COUNTED_S = 10.0
# As long as ``sockets.open_s``.
ENDED_S = 30.0


class FirstWord:
    """The first media or message of one call.

    Args:
        take_place: counts a client that says nothing; raises CapacityError when too many do.
        counted_s: from the beginning of the call until it is counted.
        ended_s: from the beginning of the call until it ends.
    """

    def __init__(
        self, take_place: Callable[[], Place], *, counted_s: float = COUNTED_S, ended_s: float = ENDED_S
    ) -> None:
        self._take_place = take_place
        self._counted_s = counted_s
        self._ended_s = ended_s
        self._has_come = False
        self._place: Place | None = None
        self._timer: asyncio.TimerHandle | None = None

    def came(self) -> None:
        """Note media or a message; may be called often."""
        if not self._has_come:
            self._has_come = True
            self._leave()

    def watch(self, call: asyncio.Task[None]) -> None:
        """Cancel a call in which nothing comes. Call it once, as the call begins."""
        if self._has_come:
            return
        self._timer = asyncio.get_running_loop().call_later(self._counted_s, self._count, call)
        call.add_done_callback(lambda _call: self._leave())

    def _count(self, call: asyncio.Task[None]) -> None:
        try:
            self._place = self._take_place()
        except CapacityError as error:
            logger.info(f"a browser sends nothing, ending its call: {error}")
            call.cancel()
            return
        left_s = self._ended_s - self._counted_s
        self._timer = asyncio.get_running_loop().call_later(left_s, self._end, call)

    def _end(self, call: asyncio.Task[None]) -> None:
        logger.info(f"a browser has sent nothing for {self._ended_s:g} s, ending its call")
        call.cancel()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._place is not None:
            self._place.give_back()
            self._place = None
