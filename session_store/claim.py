"""Claim of a session: its clock, and the writer that appends events.

The clock reads the wall clock once and follows a steady clock from then on. A wall clock that is set during a
call therefore moves nothing. The clock starts after every event of the session, so that a wall clock which
was set back does not put new events before old ones.
"""

import time

from parley.core.clock import Clock
from parley.session_store.committing import Append
from parley.session_store.events import Draft, Event
from parley.session_store.rows import SessionInfo, draft_row
from parley.session_store.writer import GroupCommit


def wall_us() -> int:
    """Return microseconds since the Unix epoch, by the wall clock of this machine."""
    return time.time_ns() // 1_000


class SessionClock:
    """``core.clock.Clock`` in microseconds since the Unix epoch.

    Args:
        steady: the clock that it follows.
        start_us: its present time.
    """

    def __init__(self, steady: Clock, start_us: int) -> None:
        self._steady = steady
        self._offset_us = start_us - steady.now_us()

    def now_us(self) -> int:
        return self._steady.now_us() + self._offset_us

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        # Rounded up, so that the millisecond waited for has come.
        await self._steady.sleep_until_ms(-((self._offset_us - deadline_ms * 1_000) // 1_000))


class SessionWriter:
    """Right to write to a session until it is claimed again. Created by ``SessionStore.claim``.

    Attributes:
        session_id: of the session.
        epoch: of this claim.
        clock: session clock.
    """

    def __init__(
        self, claimed: SessionInfo, clock: SessionClock, commits: GroupCommit, *, max_payload_bytes: int
    ) -> None:
        self.session_id = claimed.id
        self.epoch = claimed.epoch
        self.clock = clock
        self._commits = commits
        # Context that a worker has of it, and whether the row has it already.
        self._kv_handle = claimed.kv_handle
        self._is_noted = True
        self._max_payload_bytes = max_payload_bytes

    @property
    def kv_handle(self) -> str | None:
        """Context that a worker has of the session; None: there is none."""
        return self._kv_handle

    def note_kv_handle(self, text: str) -> None:
        """Write a context to the session's row with the next commit. Thread-safe."""
        self._kv_handle, self._is_noted = text, False

    async def append(self, *drafts: Draft) -> list[Event]:
        """Store drafts, all or none; they are durable when it returns.

        A draft whose key is stored already comes back as the stored event. After a cancellation or a failure
        of the database, the drafts may or may not have been stored: send them again with the same keys.

        Raises:
            FencedError: the session was claimed since; none of this was written.
            UnknownSessionError: the session was deleted.
            StoreUnavailableError: the database did not accept it within the deadline.
            StoreError: a draft that can never be stored.
        """
        rows = [draft_row(draft, max_payload_bytes=self._max_payload_bytes) for draft in drafts]
        if not rows:
            return []
        kv_handle = None if self._is_noted else self._kv_handle
        stored = await self._commits.append(Append(self.session_id, self.epoch, rows, kv_handle))
        if kv_handle is self._kv_handle:
            self._is_noted = True
        return stored
