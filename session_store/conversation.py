"""One session as this process lives it: what is committed, what waits for it, and the view for the model.

``Conversations`` opens sessions for a process. While a session is open here it is claimed once, however many
transports use it; the claim fences every other process. ``Conversation`` takes drafts in order and commits
them through one task, several at once when the database is slow:

* ``append`` returns when its drafts are durable. What must not happen before its record (asking the model,
  running a tool) awaits it.
* ``record`` returns at once. What states something that has happened already (what was heard, who came and
  went) uses it; order is kept between the two.

A database that is away delays ``append``; drafts are kept in order and tried again with the same keys until
the conversation is closed, up to ``max_pending`` (then CapacityError: no effect without a record). A caller
who is cancelled leaves its drafts in the queue: they are committed once, and the view has them. A session
that was claimed by another process or deleted ends the conversation here: ``lost`` says why, every waiter
gets the error, and nothing is written any more.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from core.errors import (
    CapacityError,
    FencedError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    UnknownSessionError,
)
from session_store.compaction import CompactionSettings, Compactor
from session_store.events import Draft, Event, Kind
from session_store.memory import SessionState, fold_state, learn
from session_store.prompt import PromptView, prompt_view
from session_store.store import SessionStore, SessionWriter

READ_EVENTS = 1_000
# Behind a whole deadline of the writer, which has backed off already.
RETRY_PAUSE_S = 0.2
_IN_VIEW = frozenset(
    {Kind.USER_TURN, Kind.HEARD, Kind.BOT_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.STATE, Kind.SUMMARY}
)


class ConversationSettings(BaseModel):
    """How a session is lived.

    Attributes:
        budget_tokens: of the context that the model is given.
        max_pending: drafts that may wait for a database that is away.
        linger_ms: how long what nobody waits for may wait for more of its kind: one commit for all.
        close_s: how long what waits may take when the conversation is closed.
        compaction: when and how older turns are summarised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget_tokens: int = Field(default=6_000, ge=200, le=1_000_000)
    max_pending: int = Field(default=1_000, ge=10, le=100_000)
    linger_ms: int = Field(default=100, ge=0, le=5_000)
    close_s: float = Field(default=5.0, ge=0.1, le=60)
    compaction: CompactionSettings = CompactionSettings()


@dataclass(slots=True, eq=False)
class _Waiting:
    """Drafts on their way, with who waits for them."""

    drafts: Sequence[Draft]
    done: asyncio.Future[list[Event]] | None = None

    def accept(self, events: list[Event]) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(events)

    def refuse(self, error: StoreError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class Conversation:
    """A claimed session. Made by ``Conversations.open``.

    Attributes:
        session_id: which one.
        clock: the session clock.
        lost: set when the session is no longer ours.
        turn: held by whoever answers a typed turn: the next one has the answer before it.
    """

    def __init__(
        self,
        writer: SessionWriter,
        events: Sequence[Event],
        settings: ConversationSettings,
        compactor: Compactor,
    ) -> None:
        self.session_id = writer.session_id
        self.clock = writer.clock
        self.lost = asyncio.Event()
        self.turn = asyncio.Lock()
        self._writer = writer
        self._events = list(events)
        self._seen_seq = self._events[-1].seq if self._events else 0
        self._settings = settings
        self._compactor = compactor
        self._queue: deque[_Waiting] = deque()
        self._pending = 0
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._reason: StoreError | None = None
        self._grown = asyncio.Event()
        self._short = asyncio.Event()
        self._short.set()
        self._hurry = False

    @property
    def epoch(self) -> int:
        """Of the claim."""
        return self._writer.epoch

    @property
    def events(self) -> Sequence[Event]:
        """Committed events that the view is made of, by seq."""
        return tuple(self._events)

    @property
    def loss(self) -> StoreError | None:
        """Why the session is no longer ours."""
        return self._reason

    @property
    def state(self) -> SessionState:
        """Speaker, intent and slots."""
        return fold_state(self._events)

    def view(self) -> PromptView:
        """What the model is given, made from the committed events alone."""
        return prompt_view(self._events, budget_tokens=self._settings.budget_tokens)

    def draft(
        self,
        kind: Kind,
        source: str,
        payload: Mapping[str, Any] | None = None,
        /,
        *,
        key: str | None = None,
        **more: object,
    ) -> Draft:
        """An event of this moment; the payload as a mapping, by name, or both."""
        now_us = self.clock.now_us()
        whole = {**(payload or {}), **more}
        if key is None:
            return Draft(kind, whole, now_us, now_us, source)
        return Draft(kind, whole, now_us, now_us, source, key=key)

    async def append(self, *drafts: Draft) -> list[Event]:
        """Commit, in order behind everything before; durable when it returns.

        Raises:
            FencedError: another process claimed the session.
            UnknownSessionError: the session was deleted.
            CapacityError: too much waits for a database that is away.
        """
        done: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._put(_Waiting(drafts, done))
        return await done

    def record(self, *drafts: Draft) -> None:
        """Commit soon, in order. What does not fit any more is logged, not raised."""
        try:
            self._put(_Waiting(drafts))
        except StoreError:
            # The session is not ours any more, which was said once (``lost``): this is another process's.
            logger.debug(f"session {self.session_id}: {len(drafts)} records of a session that was lost")
        except CapacityError as error:
            logger.error(f"session {self.session_id}: {len(drafts)} records are lost: {error}")

    async def user_turn(
        self,
        text: str,
        *,
        transport: str,
        key: str | None = None,
        rendered: str = "",
        tokens: Sequence[object] = (),
    ) -> Event:
        """Commit what the person said, with what can be learnt from it.

        Args:
            text: the words.
            transport: how they came.
            key: the same key is one turn.
            rendered: the words as the model is shown them, when that says more.
            tokens: what was perceived about them, as JSON.

        Raises:
            As ``append``.
        """
        extra: dict[str, object] = {"tokens": list(tokens)} if tokens else {}
        if rendered:
            extra["rendered"] = rendered
        turn = self.draft(Kind.USER_TURN, "user", {"text": text, "transport": transport, **extra}, key=key)
        learnt = learn(text, self.state)
        drafts = [turn]
        if learnt:
            drafts.append(self.draft(Kind.STATE, "system", learnt, key=f"{turn.key}.state"))
        return (await self.append(*drafts))[0]

    async def keep_short(self) -> None:
        """Summarise older turns whenever it is time, until cancelled. Run by ``Conversations``."""
        while True:
            await self._grown.wait()
            self._grown.clear()
            try:
                draft = await self._compactor.summary(self.events, self.clock)
                if draft is not None:
                    await self.append(draft)
            except Exception:
                # The edge of this task: without a summary the view leaves the oldest turns out, and the next
                # turn tries again.
                logger.exception(f"session {self.session_id}: no summary")
            if not self._grown.is_set():
                self._short.set()

    async def kept_short(self) -> None:
        """Return when no summary is due or under way."""
        await self._short.wait()

    async def flushed(self) -> None:
        """Return when nothing waits; nothing lingers meanwhile."""
        self._hurry = True
        self._more.set()
        try:
            await self._idle.wait()
        finally:
            self._hurry = False

    def _put(self, waiting: _Waiting) -> None:
        if self._reason is not None:
            raise self._reason
        if self._pending + len(waiting.drafts) > self._settings.max_pending:
            raise CapacityError(
                "the session store is away and too much waits for it", limit=self._settings.max_pending
            )
        self._pending += len(waiting.drafts)
        self._queue.append(waiting)
        self._idle.clear()
        self._more.set()

    async def pump(self) -> None:
        """Commit what comes until cancelled. Run by ``Conversations``."""
        try:
            while self._reason is None:
                await self._more.wait()
                self._more.clear()
                await self._linger()
                while self._queue and self._reason is None:
                    await self._commit_waiting(list(self._queue))
                self._idle.set()
        except Exception:
            # The edge of this task. Whoever waits for a commit must hear that there will be none.
            logger.exception(f"session {self.session_id}: commits broke")
            self.lose(StoreError("the session can be written to no longer"))

    async def _linger(self) -> None:
        """While nobody waits for a commit, wait a little for more that can go with it."""
        deadline_s = asyncio.get_running_loop().time() + self._settings.linger_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._hurry and all(item.done is None for item in self._queue):
                    await self._more.wait()
                    self._more.clear()
        except TimeoutError:
            pass

    async def _commit_waiting(self, batch: list[_Waiting]) -> None:
        try:
            events = await self._commit([draft for item in batch for draft in item.drafts])
        except (FencedError, UnknownSessionError, StoreClosedError) as error:
            self.lose(error)
        except StoreError as error:
            # Something in it cannot be stored, ever: alone, it hurts nobody else.
            if len(batch) > 1:
                for item in batch:
                    if self._reason is None:
                        await self._commit_waiting([item])
                return
            logger.error(f"session {self.session_id}: {len(batch[0].drafts)} events are refused: {error}")
            self._done_with(batch[0]).refuse(error)
        else:
            self._settle(batch, events)

    async def _commit(self, drafts: list[Draft]) -> list[Event]:
        while True:
            try:
                return await self._writer.append(*drafts)
            except StoreClosedError:
                raise
            except StoreUnavailableError:
                # The writer waited and backed off for its whole deadline; the drafts keep their keys.
                logger.error(f"session {self.session_id}: the store is away, {len(drafts)} events wait")
                await asyncio.sleep(RETRY_PAUSE_S)

    def _settle(self, batch: list[_Waiting], events: list[Event]) -> None:
        self._take_in(events)
        taken = iter(events)
        for item in batch:
            self._done_with(item).accept([next(taken) for _ in item.drafts])

    def _done_with(self, item: _Waiting) -> _Waiting:
        self._queue.remove(item)
        self._pending -= len(item.drafts)
        return item

    def _take_in(self, events: list[Event]) -> None:
        # An event whose key was stored before comes back with its old seq: the view has it. Two drafts of one
        # key in one batch are one event.
        new = list({event.seq: event for event in events if event.seq > self._seen_seq}.values())
        self._seen_seq = max([self._seen_seq, *(event.seq for event in new)])
        self._events.extend(event for event in new if event.kind in _IN_VIEW)
        if any(event.kind is Kind.SUMMARY for event in new):
            self._events = _from_last_summary(self._events)
        if any(event.kind is Kind.BOT_TURN for event in new):
            self._short.clear()
            self._grown.set()

    def lose(self, error: StoreError) -> None:
        """The session is no longer ours: every waiter is told, nothing is written any more."""
        self._reason = error
        for item in list(self._queue):
            self._done_with(item).refuse(error)
        self._idle.set()
        self.lost.set()


@dataclass(slots=True, eq=False)
class _Open:
    """A session that is open in this process.

    Attributes:
        ready: the claim.
        users: how many hold it.
        tasks: what runs while it is open.
        retiring: ends it, when nobody has held it for a moment.
    """

    ready: asyncio.Task[Conversation]
    users: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    retiring: asyncio.Task[None] | None = None


class Conversations:
    """The sessions that are open in this process. One per process and store.

    A session that nobody holds any more stays open until what it recorded is committed and its summary, if
    one is due, is written; who opens it meanwhile goes on with the same claim. ``close`` ends all of them.

    Args:
        store: open; closed by its owner after this.
        settings: how sessions are lived.
        compactor: summarises older turns.
    """

    def __init__(
        self, store: SessionStore, settings: ConversationSettings | None = None, *, compactor: Compactor
    ) -> None:
        self.store = store
        self._settings = settings or ConversationSettings()
        self._compactor = compactor
        self._open: dict[str, _Open] = {}

    def get(self, session_id: str) -> Conversation | None:
        """The session, when somebody here holds it."""
        entry = self._open.get(session_id)
        return None if entry is None or not entry.users else _opened(entry)

    @asynccontextmanager
    async def open(self, session_id: str | None = None) -> AsyncIterator[Conversation]:
        """Hold a session: claimed by the first who asks, ended behind the last.

        Args:
            session_id: None for a new one.

        Raises:
            UnknownSessionError: there is none of that id.
            StoreUnavailableError: the database does not answer.
        """
        if session_id is None:
            session_id = (await self.store.create()).id
        entry = self._open.get(session_id)
        known = None if entry is None else _opened(entry)
        if entry is None or (known is not None and known.lost.is_set()):
            # A lost one: who opens it now takes it back. Its old users keep what they have.
            ready = asyncio.create_task(self._claim(session_id), name=f"session.{session_id}.claim")
            entry = self._open[session_id] = _Open(ready)
        entry.users += 1
        if entry.retiring is not None:
            entry.retiring.cancel()
            entry.retiring = None
        try:
            conversation = await asyncio.shield(entry.ready)
            if not entry.tasks:
                for name, work in (("commits", conversation.pump()), ("memory", conversation.keep_short())):
                    entry.tasks.append(asyncio.create_task(work, name=f"session.{session_id}.{name}"))
            yield conversation
        finally:
            entry.users -= 1
            if not entry.users:
                retiring = asyncio.create_task(
                    self._retire(session_id, entry), name=f"session.{session_id}.end"
                )
                entry.retiring = retiring
                await self._flushed(entry)

    async def close(self) -> None:
        """End every session, within ``close_s``. Nobody may hold one any more."""
        entries = list(self._open.items())
        await asyncio.gather(*(self._flushed(entry) for _, entry in entries))
        for session_id, entry in entries:
            if entry.retiring is not None:
                entry.retiring.cancel()
            await self._end(session_id, entry)

    async def delete(self, session_id: str) -> None:
        """Every trace of a session, also where it is open.

        Raises:
            UnknownSessionError: there is none of that id.
            StoreUnavailableError: the database does not answer.
        """
        await self.store.delete(session_id)
        entry = self._open.get(session_id)
        conversation = None if entry is None else _opened(entry)
        if conversation is not None:
            conversation.lose(UnknownSessionError(f"session {session_id} was deleted"))

    async def _flushed(self, entry: _Open) -> None:
        """Return when what was recorded is committed, or after ``close_s``."""
        conversation = _opened(entry)
        if conversation is None or not entry.tasks:
            return
        try:
            async with asyncio.timeout(self._settings.close_s):
                await conversation.flushed()
        except TimeoutError:
            logger.error(f"session {conversation.session_id}: events wait for a store that is away")

    async def _retire(self, session_id: str, entry: _Open) -> None:
        """End a session that nobody holds, once it has nothing left to do."""
        conversation = _opened(entry)
        if conversation is not None and not conversation.lost.is_set():
            # A store that is away keeps it open: what waits is committed when it is back.
            await conversation.flushed()
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
        """What the model would be given now; claims nothing.

        Raises:
            UnknownSessionError: there is none of that id.
        """
        entry = self._open.get(session_id)
        live = None if entry is None else _opened(entry)
        if live is not None and not live.lost.is_set():
            return live.view()
        await self.store.info(session_id)
        return prompt_view(await self._read(session_id), budget_tokens=self._settings.budget_tokens)

    async def _claim(self, session_id: str) -> Conversation:
        writer = await self.store.claim(session_id)
        return Conversation(writer, await self._read(session_id), self._settings, self._compactor)

    async def _read(self, session_id: str) -> list[Event]:
        """The events that the view is made of."""
        events: list[Event] = []
        after_seq = 0
        while True:
            page = await self.store.events(session_id, after_seq=after_seq, limit=READ_EVENTS)
            events.extend(event for event in page if event.kind in _IN_VIEW)
            if len(page) < READ_EVENTS:
                break
            after_seq = page[-1].seq
        return _from_last_summary(events)


def _opened(entry: _Open) -> Conversation | None:
    """The conversation, once it is claimed."""
    ready = entry.ready
    if not ready.done() or ready.cancelled() or ready.exception() is not None:
        return None
    return ready.result()


def _from_last_summary(events: Sequence[Event]) -> list[Event]:
    """Without the turns that the newest summary covers; what is known about the conversation stays."""
    until_seq = max(
        (int(event.payload["until_seq"]) for event in events if event.kind is Kind.SUMMARY), default=0
    )
    newest = max((event.seq for event in events if event.kind is Kind.SUMMARY), default=0)
    return [
        event
        for event in events
        if event.kind is Kind.STATE
        or (event.kind is Kind.SUMMARY and event.seq == newest)
        or (event.kind is not Kind.SUMMARY and event.seq > until_seq)
    ]
