"""Deletion of a session wherever this deployment keeps something of it.

Input: the id of a session, after the check of who deletes it. Output: what was removed, by kind. A session is
deleted from the store first: from then on nothing is written for it, its calls end, and its readers get a
404. Then follow what its gateway and its workers keep in memory, its replays and its recordings. Several
deletions of one session may meet: each removes what the others have left.

A session that another gateway has deleted is announced by the database, and what this one keeps of it is
removed too. An announcement is missed while this process has no connection to the database.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

from loguru import logger

from parley.core.errors import EngineError, MediaError, StoreError
from parley.core.grants import ClientIdentity
from parley.recording.retention import RemovedRecordings
from parley.runtime.object_store import ObjectStoreError
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.replays.jobs import ReplayJobs
from parley.session_store.conversations import Conversations
from parley.session_store.followers import SessionDeleted
from parley.session_store.removal import RemovedRows
from parley.session_store.rows import SHOWN_CHARS, shown_id

# Attempts to empty the log of a SQLite store, while a reader keeps it, and the pause between them.
SCRUBS, SCRUB_PAUSE_S = 5, 0.2
# Deletions of other gateways that wait to be followed here; more of them are dropped with a warning.
MOST_FOLLOWED = 1_000
CLOSE_S = 5.0


class SessionMemory(Protocol):
    """Memory of this process in which something of sessions is kept."""

    def forget(self, session_id: str) -> int:
        """Drop what is kept of a session; return the number of entries."""
        ...


@dataclass(frozen=True, slots=True)
class RemovedParts:
    """Totals of what was removed with sessions, or would be.

    Attributes:
        rows: of the store.
        ended_calls: calls that were on here, and end.
        contexts: contexts of workers.
        cached: entries of memories of this process, such as answers that are kept for repeated requests.
        replays: replays of recorded calls, with what they showed.
        calls: recorded calls.
        files: files of recordings, here and in S3.
        bytes: their size.
    """

    rows: RemovedRows = RemovedRows()
    ended_calls: int = 0
    contexts: int = 0
    cached: int = 0
    replays: int = 0
    calls: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: "RemovedParts") -> "RemovedParts":
        return RemovedParts(
            self.rows + other.rows,
            self.ended_calls + other.ended_calls,
            self.contexts + other.contexts,
            self.cached + other.cached,
            self.replays + other.replays,
            self.calls + other.calls,
            self.files + other.files,
            self.bytes + other.bytes,
        )

    def as_message(self) -> dict[str, object]:
        """Return the totals by kind, for programs."""
        return {
            **asdict(self.rows),
            "ended_calls": self.ended_calls,
            "contexts": self.contexts,
            "cached": self.cached,
            "replays": self.replays,
            "recordings": {"calls": self.calls, "files": self.files, "bytes": self.bytes},
        }


@dataclass(frozen=True, slots=True)
class ErasedSession:
    """Result of a deletion.

    Attributes:
        removed: what is gone.
        pending: what goes by itself later, in words; empty when nothing is left.
        problem: what the operator must remove by hand, or S3 has not removed yet; empty for nothing.
    """

    removed: RemovedParts = RemovedParts()
    pending: tuple[str, ...] = ()
    problem: str = ""


class SessionEraser:
    """Deletes sessions, for one gateway.

    Args:
        conversations: of this process, with their store and the workers that keep contexts.
        audit: records deletions.
        recordings: recordings of the calls of the sessions; None for none.
        replays: of recorded calls; None for none.
    """

    def __init__(
        self,
        conversations: Conversations,
        audit: AuditLog,
        recordings: SessionRecordings | None = None,
        replays: ReplayJobs | None = None,
    ) -> None:
        self._conversations, self._audit = conversations, audit
        self._recordings, self._replays = recordings, replays
        self._memories: list[SessionMemory] = []
        self._following: set[asyncio.Task[None]] = set()
        conversations.store.deletions.subscribe(self._on_deleted)

    def add_memory(self, memory: SessionMemory) -> None:
        """Have another memory of this process forget sessions that are deleted."""
        self._memories.append(memory)

    async def erase(self, session_id: str, *, by: ClientIdentity) -> ErasedSession:
        """Delete a session completely.

        Args:
            session_id: of the session.
            by: its owner or the operator.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer; nothing was deleted.
        """
        # Typed turns end with it too.
        in_call = self._conversations.is_in_call(session_id)
        rows = await self._conversations.delete(session_id)
        self._audit.record(
            "session.deleted",
            address=by.address,
            session=session_id[:SHOWN_CHARS],
            by="operator" if by.is_operator else "owner",
        )
        rest = await self._remove_rest(session_id)
        removed = RemovedParts(rows, ended_calls=int(in_call)) + rest.removed
        return ErasedSession(removed, rest.pending, rest.problem)

    async def scrub(self) -> tuple[str, ...]:
        """Remove what deleted rows have left in the files of a SQLite store; return what is pending."""
        for _ in range(SCRUBS):
            try:
                if await self._conversations.store.scrub():
                    return ()
            except StoreError as error:
                logger.warning(f"the log of the session store is not emptied: {error}")
                break
            await asyncio.sleep(SCRUB_PAUSE_S)
        return ("the log of the session store is emptied later: a reader keeps it",)

    async def close(self) -> None:
        """End the work for deletions of other gateways, within ``CLOSE_S``."""
        if self._following:
            _, late = await asyncio.wait(self._following, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _remove_rest(self, session_id: str) -> ErasedSession:
        """Remove what is kept of a session outside of the store."""
        cached = sum(memory.forget(session_id) for memory in self._memories)
        contexts, pending = await self._drop_contexts(session_id)
        replays = 0 if self._replays is None else await self._replays.forget(session_id)
        recordings, problem = await self._remove_recordings(session_id)
        removed = RemovedParts(
            contexts=contexts,
            cached=cached,
            replays=replays,
            calls=recordings.calls,
            files=recordings.files,
            bytes=recordings.bytes,
        )
        return ErasedSession(removed, pending, problem)

    async def _drop_contexts(self, session_id: str) -> tuple[int, tuple[str, ...]]:
        if self._conversations.contexts is None:
            return 0, ()
        try:
            return await self._conversations.contexts.forget(session_id), ()
        except EngineError as error:
            logger.warning(f"session {shown_id(session_id)}: {error}")
            return 0, ("a worker drops what it keeps of the session later: it does not answer now",)

    async def _remove_recordings(self, session_id: str) -> tuple[RemovedRecordings, str]:
        """Remove the recordings of a session; return what was removed, and why something is left."""
        nothing = RemovedRecordings(session_id, 0, 0, 0, "deleted")
        if self._recordings is None:
            return nothing, ""
        try:
            return await self._recordings.remove(session_id), ""
        except ObjectStoreError as error:
            logger.warning(f"session {shown_id(session_id)}: {error}")
            return nothing, "the session is deleted; its recordings in S3 are removed when S3 answers again"
        except MediaError as error:
            logger.warning(f"session {shown_id(session_id)}: {error}")
            return (
                nothing,
                "the session is deleted, its recordings are not: the operator removes them by hand",
            )

    def _on_deleted(self, deleted: SessionDeleted) -> None:
        """Remove what this gateway keeps of a session that another one has deleted."""
        if not deleted.is_elsewhere:
            return
        if len(self._following) >= MOST_FOLLOWED:
            logger.warning(f"session {shown_id(deleted.session_id)}: what is kept of it here is not removed")
            return
        following = asyncio.create_task(self._follow(deleted.session_id), name="session.erasure")
        self._following.add(following)
        following.add_done_callback(self._following.discard)

    async def _follow(self, session_id: str) -> None:
        rest = await self._remove_rest(session_id)
        if rest.problem:
            logger.warning(f"session {shown_id(session_id)}, deleted by another gateway: {rest.problem}")


def joined(erased: Iterable[ErasedSession]) -> ErasedSession:
    """Return the totals of several deletions; each pending part and problem once."""
    parts = list(erased)
    removed = sum((each.removed for each in parts), RemovedParts())
    pending = dict.fromkeys(text for each in parts for text in each.pending)
    problems = dict.fromkeys(each.problem for each in parts if each.problem)
    return ErasedSession(removed, tuple(pending), "; ".join(problems))
