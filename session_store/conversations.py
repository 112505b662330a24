"""Open sessions of a process.

An open session is claimed once, for one call and the typed turns that share it. The claim fences every other
process, and the next call in this one. It is released when its last holder has left and its work is done.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from loguru import logger

from parley.core.errors import (
    FencedError,
    StoreUnavailableError,
    UnknownSessionError,
)
from parley.core.tuning import tuned
from parley.language.personal_data import Redactor
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationSettings, ConversationTuning
from parley.session_store.events import Event, Kind
from parley.session_store.evidence import EVIDENT, EvidenceChain, EvidenceSource
from parley.session_store.followers import SessionDeleted
from parley.session_store.memory import (
    IN_VIEW,
    current_events,
    from_last_summary,
    newest_summary,
    stands_until,
)
from parley.session_store.prompt import (
    PromptView,
    prompt_view,
)
from parley.session_store.removal import RemovedRows
from parley.session_store.rows import SHOWN_CHARS, shown_id
from parley.session_store.store import SessionStore, SessionWriter
from parley.session_store.tier_board import TierBoard
from parley.session_store.typed_share import TypedShares
from parley.session_store.vault import Vault

# Events that are signed with one commit when a session is opened.
CAUGHT_UP = 200


class SessionContexts(Protocol):
    """Workers that keep contexts of sessions between their streams."""

    async def forget(self, session_id: str) -> int:
        """Have every worker drop what it keeps of a session; return the number of contexts.

        Raises:
            EngineError: a worker that may have one did not confirm it.
        """
        ...


@dataclass(slots=True, eq=False)
class _Open:
    """Session that is open in this process.

    Attributes:
        ready: the claim.
        users: number of holders.
        is_in_call: true when one of them is a call, which plays the answers.
        tasks: run while it is open.
        retiring: ends it when it has had no holder for a moment.
    """

    ready: asyncio.Task[Conversation]
    users: int = 0
    is_in_call: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    retiring: asyncio.Task[None] | None = None


class Conversations:
    """Open sessions of this process. One instance per process and store.

    A session without a holder stays open until its records are committed and its summary, if one is due, is
    written. A user who opens it meanwhile continues under the same claim. ``close`` ends all of them.

    Args:
        store: open; its owner closes it after this.
        settings: of the conversations.
        compactor: summarises older turns; facts are extracted by its rules.
        redactor: hides personal data in what is stored; None for none.
        vault: keeps what is hidden; None: it is gone.
        evidence: signs evidence of what was said; None for none.
        contexts: where workers keep contexts of sessions; None: there is none.

    Attributes:
        vault, contexts: as given.
        board: sessions that wait for a human, or that a human has.
    """

    def __init__(
        self,
        store: SessionStore,
        settings: ConversationSettings | None = None,
        *,
        compactor: Compactor,
        redactor: Redactor | None = None,
        vault: Vault | None = None,
        evidence: EvidenceSource | None = None,
        contexts: SessionContexts | None = None,
    ) -> None:
        self.store, self.contexts = store, contexts
        store.deletions.subscribe(self._on_deleted)
        self._evidence = evidence
        self._redactor = redactor
        self.vault = vault
        self._settings = tuned(ConversationTuning, settings)
        self._compactor = compactor
        self._open: dict[str, _Open] = {}
        self._typed = TypedShares(
            self._settings.typed_bytes_per_minute, self._settings.picture_bytes_per_minute
        )
        self.board = TierBoard()
        self._viewing = asyncio.Lock()

    def get(self, session_id: str) -> Conversation | None:
        """Return the session if it has a holder in this process, otherwise None."""
        entry = self._open.get(session_id)
        return None if entry is None or not entry.users else _opened(entry)

    def is_live(self, session_id: str) -> bool:
        """Return whether the session has a holder in this process, or records that are not committed yet."""
        entry = self._open.get(session_id)
        conversation = None if entry is None else _opened(entry)
        return conversation is not None and (self.get(session_id) is not None or conversation.is_pending)

    def live(self) -> list[Conversation]:
        """Return the sessions that have a holder in this process."""
        found = [self.get(session_id) for session_id in self._open]
        return [each for each in found if each is not None and not each.lost.is_set()]

    def is_in_call(self, session_id: str) -> bool:
        """Return whether a call holds a session here."""
        entry = self._open.get(session_id)
        return entry is not None and entry.is_in_call

    @asynccontextmanager
    async def open(
        self, session_id: str | None = None, *, owner: str | None = None, for_call: bool = False
    ) -> AsyncIterator[Conversation]:
        """Hold a session: it is claimed for its first holder and ended after its last.

        A session is in one call at a time: the newest call takes it over, and the call before loses it as if
        another process had claimed it. Typed turns, which are answered to their own client, share it.

        Args:
            session_id: None for a new one.
            owner: of a new one (``SessionStore.create``).
            for_call: hold it for a call.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        if session_id is None:
            session_id = (await self.store.create(owner=owner)).id
        if for_call:
            await self._end_call(session_id)
        # No await from here until the call has the session: of two concurrent calls one loses it.
        entry = self._open.get(session_id)
        known = None if entry is None else _opened(entry)
        if entry is None or (known is not None and known.lost.is_set()):
            # A lost session is claimed again for this user. Its former users keep what they have.
            ready = asyncio.create_task(
                self._claim(session_id), name=f"session.{session_id[:SHOWN_CHARS]}.claim"
            )
            entry = self._open[session_id] = _Open(ready)
        entry.users += 1
        entry.is_in_call = entry.is_in_call or for_call
        refused = False
        if entry.retiring is not None:
            entry.retiring.cancel()
            entry.retiring = None
        try:
            conversation = await asyncio.shield(entry.ready)
            if not entry.tasks:
                for name, work in (
                    ("commits", conversation.commit_pending()),
                    ("memory", conversation.keep_short()),
                ):
                    entry.tasks.append(
                        asyncio.create_task(work, name=f"session.{session_id[:SHOWN_CHARS]}.{name}")
                    )
            yield conversation
        except StoreUnavailableError:
            refused = True
            raise
        finally:
            entry.users -= 1
            if for_call:
                entry.is_in_call = False
            if not entry.users:
                retiring = asyncio.create_task(
                    self._retire(session_id, entry), name=f"session.{session_id[:SHOWN_CHARS]}.end"
                )
                entry.retiring = retiring
                # A user who leaves because the store is unavailable has waited already. Pending drafts are
                # committed when it is back.
                if not refused:
                    await self._flushed(entry)

    async def close(self) -> None:
        """End every session, within ``close_s``. All holders must have left."""
        entries = list(self._open.items())
        await asyncio.gather(*(self._flushed(entry) for _, entry in entries))
        for session_id, entry in entries:
            if entry.retiring is not None:
                entry.retiring.cancel()
            await self._end(session_id, entry)

    async def delete(self, session_id: str) -> RemovedRows:
        """Delete a session from the store, also where it is open; return what was deleted.

        Raises:
            UnknownSessionError: there is no session with that id.
            StoreUnavailableError: the database does not answer.
        """
        return await self.store.delete(session_id)

    def _on_deleted(self, deleted: SessionDeleted) -> None:
        """End what is open of a deleted session here, also where another process has deleted it."""
        session_id = deleted.session_id
        entry = self._open.get(session_id)
        conversation = None if entry is None else _opened(entry)
        if conversation is not None:
            conversation.lose(UnknownSessionError(f"session {shown_id(session_id)} was deleted"))
        # Words of a human about the person.
        self.board.whispers.pop(session_id, None)

    async def release(self, session_id: str, why: str) -> bool:
        """Make the holders of a session here lose it, as if another process had claimed it.

        Their records are committed first. The next user who opens it claims it anew.

        Returns:
            True when it had a holder.
        """
        conversation = self.get(session_id)
        entry = self._open.get(session_id)
        if conversation is None or entry is None or conversation.lost.is_set():
            return False
        await self._flushed(entry)
        conversation.lose(FencedError(f"session {shown_id(session_id)} {why}"))
        return True

    async def _end_call(self, session_id: str) -> None:
        """Make the call that holds a session here lose it."""
        while (entry := self._open.get(session_id)) is not None and entry.is_in_call:
            await asyncio.wait({entry.ready})
            conversation = _opened(entry)
            if conversation is None or conversation.lost.is_set():
                return
            await self._flushed(entry)
            # It may have ended or been taken over meanwhile.
            if self._open.get(session_id) is entry and entry.is_in_call:
                conversation.lose(FencedError(f"session {shown_id(session_id)} continues in another call"))
                return

    async def _flushed(self, entry: _Open) -> None:
        """Wait until the records are committed, or for ``close_s`` at most."""
        conversation = _opened(entry)
        if conversation is None or not entry.tasks:
            return
        try:
            async with asyncio.timeout(self._settings.close_s):
                await conversation.flushed()
        except TimeoutError:
            logger.error(
                f"session {conversation.shown_id}: events are waiting for a store that is unavailable"
            )

    async def _retire(self, session_id: str, entry: _Open) -> None:
        """End a session without a holder, once its work is done."""
        conversation = _opened(entry)
        if conversation is not None and not conversation.lost.is_set():
            # While the store is unavailable the session stays open; pending drafts are committed when it is
            # back.
            await conversation.flushed()
            if entry.tasks:
                # Unanswered turns, and an import, have no reply after which a due summary would be noticed.
                conversation.keep_short_now()
            await conversation.kept_short()
            await conversation.flushed()
        await self._end(session_id, entry)

    async def _end(self, session_id: str, entry: _Open) -> None:
        if self._open.get(session_id) is entry:
            del self._open[session_id]
        entry.ready.cancel()
        for task in entry.tasks:
            task.cancel()
        if entry.tasks:
            await asyncio.wait(entry.tasks)

    async def view(self, session_id: str) -> PromptView:
        """Return the input of the model at present; claims nothing.

        Made in a thread, one at a time: a long session takes 20 ms, and any reader of it may request the
        view.

        Raises:
            UnknownSessionError: there is no session with that id.
        """
        entry = self._open.get(session_id)
        live = None if entry is None else _opened(entry)
        if live is not None and not live.lost.is_set():
            events = live.events
        else:
            events = await self._read(session_id)
        async with self._viewing:
            return await asyncio.to_thread(
                prompt_view,
                events,
                budget_tokens=self._settings.budget_tokens,
                facts=self._compactor.facts,
                pictures=self._settings.resent_pictures,
            )

    async def _claim(self, session_id: str) -> Conversation:
        writer = await self.store.claim(session_id)
        events = await self._read(session_id)
        if not any(event.kind is Kind.TIER for event in events):
            # A summary may cover it.
            tier = await self.store.newest_event(session_id, Kind.TIER)
            events = events if tier is None else [tier, *events]
        conversation = Conversation(
            writer,
            events,
            self._settings,
            self._compactor,
            self._typed,
            self.board,
            turn_deadline_s=self.store.turn_deadline_s,
            read_key=partial(self.store.event_of_key, session_id),
            read_newest=partial(self.store.newest_event, session_id),
            redactor=self._redactor,
            vault=self.vault,
            evidence=await self._chain(writer),
        )
        self.board.put(session_id, conversation.tier)
        return conversation

    async def _chain(self, writer: SessionWriter) -> EvidenceChain | None:
        """Return the evidence of a claimed session; entries that are missing at its end are written first."""
        if self._evidence is None:
            return None
        session_id = writer.session_id
        head = await self.store.newest_event(session_id, Kind.EVIDENCE)
        chain = EvidenceChain(session_id, self._evidence, head)
        while True:
            page = await self.store.events(
                session_id, after_seq=chain.covered_seq, limit=CAUGHT_UP, kinds=EVIDENT
            )
            if page:
                # A page takes 20 ms to sign.
                await writer.append(*await asyncio.to_thread(chain.entries, page))
            if len(page) < CAUGHT_UP:
                return chain

    async def _read(self, session_id: str) -> list[Event]:
        """Return the events from which the view is made: from the newest summary on."""
        summary = await self.store.newest_event(session_id, Kind.SUMMARY)
        if summary is not None and (until_seq := stands_until(summary)):
            events = await self._read_after(session_id, until_seq)
            counts = newest_summary(current_events(events))
            if counts is not None and counts.seq == summary.seq:
                return events
        # There is no summary, it carries no state, or a later event supersedes it: the events that it covers
        # count after all.
        return from_last_summary(await self._read_after(session_id, 0))

    async def _read_after(self, session_id: str, after_seq: int) -> list[Event]:
        return await self.store.all_events(session_id, after_seq=after_seq, kinds=IN_VIEW)


def _opened(entry: _Open) -> Conversation | None:
    """Return the conversation, or None while it is not claimed."""
    ready = entry.ready
    if not ready.done() or ready.cancelled() or ready.exception() is not None:
        return None
    return ready.result()
