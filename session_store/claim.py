"""A claim of a session: the clock that it starts and the writer that it gives.

The clock reads the wall once. From then on it follows a steady one, so that a wall clock which is set during
a call moves nothing, and it starts behind everything that the session holds, so that one which was set back
since does not put new events before old ones.
"""

import time

from core.clock import Clock
from session_store.committing import Append
from session_store.events import Draft, Event
from session_store.rows import SessionInfo, draft_row
from session_store.writer import GroupCommit


def wall_us() -> int:
    """Microseconds since the Unix epoch, by the wall clock of this machine."""
    return time.time_ns() // 1_000


class SessionClock:
    """``core.clock.Clock`` in microseconds since the Unix epoch.

    Args:
        steady: what it follows.
        start_us: what it says now.
    """

    def __init__(self, steady: Clock, start_us: int) -> None:
        self._steady = steady
        self._offset_us = start_us - steady.now_us()

    def now_us(self) -> int:
        return self._steady.now_us() + self._offset_us

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        # Rounded up: whoever waits for a millisecond finds that it has come.
        await self._steady.sleep_until_ms(-((self._offset_us - deadline_ms * 1_000) // 1_000))


class SessionWriter:
    """The right to write to a session until somebody claims it again. Made by ``SessionStore.claim``.

    Attributes:
        session_id: which one.
        epoch: of this claim.
        clock: the session clock.
    """

    def __init__(
        self, claimed: SessionInfo, clock: SessionClock, commits: GroupCommit, *, max_payload_bytes: int
    ) -> None:
        self.session_id = claimed.id
        self.epoch = claimed.epoch
        self.clock = clock
        self._commits = commits
        self._max_payload_bytes = max_payload_bytes

    async def append(self, *drafts: Draft) -> list[Event]:
        """Store drafts, all or none; durable when it returns.

        A draft whose key is stored already comes back as the event that was stored. When it is cancelled or
        fails for want of a database, the drafts may be stored or not: send them again with the same keys.

        Raises:
            FencedError: the session was claimed since; nothing of this was written.
            UnknownSessionError: the session was deleted.
            StoreUnavailableError: the database did not take it within the deadline.
            StoreError: a draft cannot be stored, ever.
        """
        rows = [draft_row(draft, max_payload_bytes=self._max_payload_bytes) for draft in drafts]
        if not rows:
            return []
        return await self._commits.append(Append(self.session_id, self.epoch, rows))
