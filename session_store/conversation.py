"""Open session of this process: its committed events, its pending drafts, and the view for the model.

``session_store.conversations`` opens it. ``Conversation`` takes drafts in order and commits them through one
task, several at once when the database is slow:

* ``append`` returns when its drafts are durable. An action that must not happen before its record (a model
  request, a tool call) awaits it.
* ``record`` returns at once. It is for facts that have happened already (heard audio, participants who joined
  or left). Order is kept between the two.

``session_store.commit_queue`` holds the drafts meanwhile, and says what happens when the database is slow or
unavailable.

Pictures of a turn are events of their own, committed with it. They are not among the events of the view: a
few that were used last are kept here, and others are read from the store.

A cancelled caller of ``append`` leaves its drafts in the queue: they are committed once and appear in the
view. When another process claims the session or it is deleted, the conversation ends here: ``lost`` is set,
``loss`` holds the reason, every waiter gets the error, and nothing is written any more.
"""

import asyncio
import threading
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from loguru import logger
from pydantic import Field

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import PrivatePauseRequested, TextGiven, TierChanged
from parley.core.errors import (
    AgentError,
    KeyReusedError,
    StoreError,
    StoreUnavailableError,
)
from parley.core.media_in_use import MediaInUse
from parley.core.pictures import MEDIA_TYPES, Picture
from parley.core.provenance import Provenance
from parley.core.strict_model import StrictModel
from parley.core.tiers import Medium, SessionTier, TierEvent, read_tier
from parley.language.personal_data import HiddenPart, Redactor
from parley.runtime.event_stream import CallEvents
from parley.session_store.commit_queue import CommitLimits, CommitQueue
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.events import Draft, Event, Kind, new_key
from parley.session_store.evidence import EvidenceChain
from parley.session_store.memory import (
    IN_VIEW,
    SessionState,
    fold_state,
    from_last_summary,
    learn,
    odd_events,
)
from parley.session_store.prompt import (
    BY_DEPLOYMENT,
    BY_HUMAN,
    PromptView,
    next_picture,
    pictures_in,
    prompt_view,
)
from parley.session_store.redaction import private_draft, private_words, redacted_draft
from parley.session_store.rows import shown_id
from parley.session_store.store import SessionWriter
from parley.session_store.tier_board import TierBoard
from parley.session_store.typed_share import TypedShares
from parley.session_store.vault import HiddenWords, Vault
from parley.session_store.writer import LONGEST_PAUSE_S

T = TypeVar("T")
# Reads the event of a key from the store; None when there is none.
ReadKey = Callable[[str], Awaitable[Event | None]]
ReadNewest = Callable[[Kind], Awaitable[Event | None]]

LEAST_BUDGET_TOKENS = 200
# Transport of what is said without a call.
TYPED_TRANSPORT = "text"
# Streams of models in one claim of a session.
STREAMS = 2**16
REUSED = "this key belongs to another turn already, send other words with a key of their own"
# Pictures of one conversation in memory: those of a request, and a few that come with the next turns.
KEPT_PICTURES = 8
# Characters of pictures that may wait for an unavailable store, and the pause after which more are tried.
MOST_WAITING_PICTURES = 4_000_000
PICTURE_PAUSE_S = 5.0


class ConversationSettings(StrictModel):
    """Part of a conversation that its model receives."""

    budget_tokens: int = Field(
        6_000,
        ge=LEAST_BUDGET_TOKENS,
        le=1_000_000,
        description="context that the model receives; less with a local model whose own context is smaller",
    )


class ConversationTuning(ConversationSettings):
    """Settings, completed by values that no deployment sets.

    Attributes:
        compaction: bounds of the summaries.
        max_pending: drafts that may wait while the database is unavailable: turns, replies, heard marks, tool
            calls. More are refused.
        max_pending_records: in addition, records of perception (``DROPPABLE``) that may wait. Beyond that,
            the oldest are dropped. A turn of a call writes up to 200 of them at once.
        linger_ms: time for which records without a waiter may wait for more of their kind, to share a commit.
        close_s: time limit for pending drafts when the conversation is closed.
        typed_bytes_per_minute: UTF-8 bytes that may be typed into one session; a turn counts at least 200.
        resent_pictures: pictures in a view at most; 0 where the deployment's model sees none.
        picture_bytes_per_minute: bytes of pictures that one session takes, as stored.
    """

    compaction: CompactionTuning = CompactionTuning()
    max_pending: int = Field(default=1_000, ge=10, le=100_000)
    max_pending_records: int = Field(default=500, ge=10, le=100_000)
    linger_ms: int = Field(default=100, ge=0, le=5_000)
    close_s: float = Field(default=5.0, ge=0.1, le=60)
    typed_bytes_per_minute: int = Field(default=150_000, ge=1_000, le=1_000_000_000)
    resent_pictures: int = Field(default=0, ge=0, le=20)
    picture_bytes_per_minute: int = Field(default=6_000_000, ge=10_000, le=1_000_000_000)


class Conversation:
    """Claimed session. Created by ``Conversations.open``.

    Attributes:
        session_id: of the session.
        clock: session clock.
        lost: set when the session is no longer ours.
        turn: lock held while a typed turn is answered, so that the next one has its answer before it.
        media: by which the caller takes part now.
    """

    def __init__(
        self,
        writer: SessionWriter,
        events: Sequence[Event],
        settings: ConversationTuning,
        compactor: Compactor,
        typed: TypedShares,
        board: TierBoard,
        *,
        turn_deadline_s: float,
        read_key: ReadKey,
        read_newest: ReadNewest,
        redactor: Redactor | None = None,
        vault: Vault | None = None,
        evidence: EvidenceChain | None = None,
    ) -> None:
        self.session_id = writer.session_id
        self._evidence = evidence
        self._read_key = read_key
        self.read_newest = read_newest
        self._pictures: BoundedDict[str, Picture] = BoundedDict(KEPT_PICTURES)
        self._typed = typed
        self.clock = writer.clock
        self.lost = asyncio.Event()
        self.turn = asyncio.Lock()
        self.media = MediaInUse()
        self._writer = writer
        self._events = list(events)
        self._seen_seq = max((event.seq for event in self._events), default=0)
        self._settings = settings
        self._compactor = compactor
        self._facts = compactor.facts
        self._turn_deadline_s = turn_deadline_s
        self._board = board
        self._redactor, self._hidden = redactor, HiddenWords(redactor, vault)
        # Number of calls that are in a private pause.
        self._private = 0
        self._tier = _tier_of(self._events)
        # Whisper that a request of the model contained, and the session time of that request.
        self._whispered: tuple[str, int] | None = None
        # Streams of models that have had the session's context, and whether one has it.
        self._cache_streams = 0
        self._is_cache_taken = False
        self._cache_lock = threading.Lock()
        # Set at the next change, and then replaced.
        self._tier_changed = asyncio.Event()
        # Streams of the calls and sockets of the session; the value is true for one that speaks what is said.
        self._streams: dict[CallEvents, bool] = {}
        # Events that a summary covers, while an old turn is answered once more.
        self._recalled: dict[int, Sequence[Event]] = {}
        self._commits = CommitQueue(
            writer,
            CommitLimits(settings.max_pending, settings.max_pending_records, settings.linger_ms),
            on_committed=self._take_in,
            on_lost=self._on_lost,
        )
        self._grown = asyncio.Event()
        self._short = asyncio.Event()
        self._short.set()
        odd = odd_events(self._events)
        if odd:
            logger.warning(
                f"session {self.shown_id}: {len(odd)} events are not as any release writes them (the first: "
                f"{odd[0]}); their invalid parts are ignored"
            )

    # Context of the session in a worker (``models.llm.hosted.session_cache.SessionCache``).

    def take_cache(self) -> tuple[int, str | None] | None:
        """Take the session's context for one stream of a model; None while another has it. Thread-safe.

        Returns:
            The number of the stream, higher than those of all streams before, whichever process had them; and
            the context that a worker has, as it was noted.
        """
        with self._cache_lock:
            if self._is_cache_taken:
                return None
            self._is_cache_taken = True
            self._cache_streams += 1
            return self._writer.epoch * STREAMS + self._cache_streams, self._writer.kv_handle

    def note_cache(self, text: str) -> None:
        """Write a context to the session's row with the next commit. Thread-safe."""
        self._writer.note_kv_handle(text)

    def release_cache(self) -> None:
        """Let another stream take the context. Thread-safe."""
        with self._cache_lock:
            self._is_cache_taken = False

    @property
    def shown_id(self) -> str:
        """Beginning of the session's id, for logs."""
        return shown_id(self.session_id)

    @property
    def made_by(self) -> Provenance | None:
        """Maker of the replies, which they name where the session has evidence; None where it has none."""
        return None if self._evidence is None else self._evidence.made_by

    @property
    def epoch(self) -> int:
        """Epoch of the claim."""
        return self._writer.epoch

    @property
    def events(self) -> Sequence[Event]:
        """Committed events from which the view is made, by seq."""
        return tuple(self._events)

    @property
    def last_seq(self) -> int:
        """Seq of the newest event that was seen here; a turn after it is a new one."""
        return self._seen_seq

    @property
    def loss(self) -> StoreError | None:
        """Error with which the session was lost; None while it is ours."""
        return self._commits.loss

    @property
    def dropped_records(self) -> int:
        """Number of perception records that were dropped while the store was unavailable."""
        return self._commits.dropped_records

    @property
    def state(self) -> SessionState:
        """Speaker, intent and slots, folded from the events."""
        return fold_state(self._events, self._facts)

    @property
    def tier(self) -> SessionTier:
        """Tier of the session now, which may not be durable yet."""
        return self._tier

    @property
    def has_desk(self) -> bool:
        """True when a human can be fetched in this process."""
        return self._board.is_staffed

    @property
    def may_wait(self) -> bool:
        """True while there is room for the session among those that wait for a human or that one has."""
        return self._board.has_room(self.session_id)

    @property
    def place(self) -> int:
        """Place of the waiting session among those of this process, from 1; 0 when it does not wait."""
        return self._board.place_of(self.session_id)

    @property
    def has_stream(self) -> bool:
        """True while a call or a socket of the session receives what is said."""
        return bool(self._streams)

    @property
    def speaks(self) -> bool:
        """True while a call of the session speaks what is said for the agent."""
        return any(self._streams.values())

    def change_tier(
        self, event: TierEvent, *, note: str = "", cause: str = "", to: Medium | None = None
    ) -> bool:
        """Apply an event to the tier, record the change and report it; return False when it has no effect.

        The change is in force at once and durable soon (``record``). A lost conversation changes nothing: the
        tier, and its place among the waiting sessions, are those of the process that has the session.
        """
        if self.loss is not None:
            return False
        changed = self._tier.after(event, at_us=self.clock.now_us(), note=note, cause=cause, to=to)
        if changed is None:
            return False
        self._tier = changed
        reached, self._tier_changed = self._tier_changed, asyncio.Event()
        reached.set()
        logger.info(f"session {self.shown_id}: tier {changed.tier.value} ({changed.reason})")
        self.record(self.draft(Kind.TIER, "system", changed.payload()))
        self._board.put(self.session_id, changed)
        for stream in list(self._streams):
            stream.publish(TierChanged(stream.now_ms(), changed.tier, changed.epoch, changed.to))
        return True

    def use_medium(self, medium: Medium, call: CallEvents, *, is_on: bool) -> None:
        """Note that a call brings a medium, or no longer; a step that leads there is over then."""
        has_left = False
        if is_on:
            self.media.begin(medium, call)
        else:
            has_left = self.media.end(medium, call)
        began = medium if is_on else None
        event = self._tier.step_end(self.media.now, began=began, has_left=has_left)
        if event is not None:
            self.change_tier(event)

    async def tier_after(self, epoch: int) -> SessionTier:
        """Return the tier once its epoch is another."""
        while self._tier.epoch == epoch:
            await self._tier_changed.wait()
        return self._tier

    def say(self, text: str, *, by_human: bool) -> None:
        """Say something to the caller that no model wrote: by the voice of the calls, or in writing.

        A call records the part that was heard. Without one the text is recorded here, as read.
        """
        if not self.speaks:
            payload: dict[str, object] = {"text": text, "reply_id": new_key()}
            payload |= {"truncated": False, "unheard": ""}
            payload["transport"] = TYPED_TRANSPORT
            payload["by"] = BY_HUMAN if by_human else BY_DEPLOYMENT
            self.record(self.draft(Kind.BOT_TURN, "bot", payload))
        for stream in list(self._streams):
            stream.publish(TextGiven(stream.now_ms(), text, by_human))

    def request_pause(self, *, is_on: bool, by: str) -> bool:
        """Request a private pause of the calls of the session, or its end; return False where none can be."""
        able = [each for each in self._streams if each.has_subscribers(PrivatePauseRequested)]
        for stream in able:
            stream.publish(PrivatePauseRequested(stream.now_ms(), is_on, by))
        return bool(able)

    def record_human(self, text: str, *, transport: str) -> None:
        """Record words that a human has spoken to the caller."""
        payload: dict[str, object] = {"text": text, "reply_id": new_key(), "truncated": False, "unheard": ""}
        self.record(self.draft(Kind.BOT_TURN, "bot", {**payload, "transport": transport, "by": BY_HUMAN}))

    @contextmanager
    def reporting(self, stream: CallEvents, *, speaks: bool) -> Iterator[None]:
        """Publish changes of the tier, and what is said (``say``), to a stream while the context lasts.

        Args:
            stream: of a call or a socket.
            speaks: its pipeline speaks what is said, and records how much of it was heard.
        """
        self._streams[stream] = speaks
        if speaks:
            if self.turn.locked():
                # The rest of a written answer is not sent: the caller is in the call now.
                self._tier = replace(self._tier, holds=self._tier.holds + 1)
            self.use_medium(Medium.VOICE, stream, is_on=True)
        try:
            yield
        finally:
            del self._streams[stream]
            if speaks:
                self.use_medium(Medium.VOICE, stream, is_on=False)

    def take_typed(self, text: str) -> float:
        """Count a typed turn before it is accepted; return 0, or the seconds until it may be.

        Raises:
            OversizedError: it is larger than all that a session takes in a minute.
        """
        return self._typed.take(self.session_id, text)

    def typed_wait_s(self, text: str) -> float:
        """Return what ``take_typed`` would, and count nothing.

        Raises:
            OversizedError: the text is larger than all that a session takes in a minute.
        """
        return self._typed.wait_s(self.session_id, text)

    def take_pictures(self, pictures: Sequence[Picture]) -> float:
        """Count pictures before they are accepted; return 0, or the seconds until they may be.

        While the store is unavailable only a few wait for it, because they take memory until then.
        """
        if not pictures:
            return 0.0
        waiting = (draft for draft in self._commits.drafts() if draft.kind is Kind.PICTURE)
        if sum(len(draft.payload["data"]) for draft in waiting) > MOST_WAITING_PICTURES:
            return PICTURE_PAUSE_S
        return self._typed.take_pictures(self.session_id, sum(len(each.data) * 3 // 4 for each in pictures))

    async def picture(self, key: str) -> Picture | None:
        """Return a picture of the session; None when there is no such picture.

        Raises:
            StoreError: the store cannot be read.
        """
        known = self._pictures.get(key)
        if known is None:
            event = await self._read_key(key)
            known = None if event is None else _picture_of(event)
            if known is None:
                return None
        self._pictures[key] = known
        return known

    def view(
        self, *, turn: int | None = None, extra_events: Sequence[Event] = (), pictures: bool = False
    ) -> PromptView:
        """Return the input of the model, made from the committed events alone.

        ``extra_events`` adds events that are not stored but that the model needs: refused tool calls.

        Args:
            turn: as for ``prompt_view``.
            extra_events: see above.
            pictures: the reader is the deployment's language model, or prepares its input: pictures are
                included as references where that model sees. An instruction of a human in the view is used up
                by the reply that begins after it, where an answer is owed.
        """
        recalled = self._recalled.get(turn, ()) if turn is not None else ()
        events = {event.seq: event for event in (*recalled, *self._events, *extra_events)}
        whisper = self._board.whispers.get(self.session_id, "")
        is_asked = turn is not None or (not extra_events and _is_answer_owed(events.values()))
        if whisper and pictures and is_asked:
            self._whispered = whisper, self.clock.now_us()
        return prompt_view(
            events.values(),
            budget_tokens=self._settings.budget_tokens,
            turn=turn,
            facts=self._facts,
            whisper=whisper,
            pictures=self._settings.resent_pictures if pictures else 0,
        )

    @property
    def is_written(self) -> bool:
        """True when all turns and tool events are committed; perception records do not count."""
        return self._commits.is_written

    def foreseen(
        self, text: str, *, transport: str, is_whole: bool = True, pictures: bool = False
    ) -> PromptView:
        """Return the view as it would be if the person had said this, without any perception of it.

        Args:
            text: of the turn.
            transport: of the turn.
            is_whole: facts are extracted only from a whole turn: those of half a sentence would change the
                notes before its words.
            pictures: as for ``view``; of earlier turns.
        """
        turn = self.draft(Kind.USER_TURN, "user", {"text": text, "transport": transport})
        learnt = learn(text, self.state, self._facts) if is_whole else None
        state = [self.draft(Kind.STATE, "system", learnt)] if learnt else []
        last = self.last_seq
        return self.view(
            extra_events=[
                draft.at(self.session_id, last + place, self.epoch)
                for place, draft in enumerate([turn, *state], start=1)
            ],
            pictures=pictures,
        )

    @contextmanager
    def recalled(self, turn: int, events: Sequence[Event]) -> Iterator[None]:
        """Include these events, which a summary covers, in ``view(turn=turn)`` while the context lasts."""
        self._recalled[turn] = events
        try:
            yield
        finally:
            del self._recalled[turn]

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
        """Return a draft of an event that happens now; the payload as a mapping, by name, or both."""
        now_us = self.clock.now_us()
        whole = {**(payload or {}), **more}
        if key is None:
            return Draft(kind, whole, now_us, now_us, source)
        return Draft(kind, whole, now_us, now_us, source, key=key)

    async def append(self, *drafts: Draft) -> list[Event]:
        """Commit drafts after everything before them; they are durable when it returns.

        Raises:
            FencedError: another process claimed the session.
            UnknownSessionError: the session was deleted.
            CapacityError: too much waits for an unavailable database.
        """
        return await self._commits.append(self._without_personal_data(drafts))

    def _without_personal_data(self, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        """Return drafts as they are stored; everything that is written to the session passes here."""
        if self._private:
            drafts = [private_draft(draft) for draft in drafts]
        if self._redactor is not None:
            drafts = [redacted_draft(draft, self._redactor) for draft in drafts]
        return tuple(drafts)

    def words_as_stored(self, text: str, *, is_caller: bool) -> str:
        """Return words as the session has them, for a comparison with what a client still shows."""
        if self._redactor is None:
            return text
        return self._redactor.of_caller(text) if is_caller else self._redactor.of_agent(text)

    def note_hidden(self, shown: str, parts: Sequence[HiddenPart]) -> None:
        """Note what the marks of words replace that are about to become a turn, for the vault."""
        if not self._private:
            self._hidden.note(shown, parts)

    @contextmanager
    def private(self) -> Iterator[None]:
        """Store no words of the session while the context lasts."""
        self._private += 1
        try:
            yield
        finally:
            self._private -= 1

    def record(self, *drafts: Draft) -> None:
        """Queue drafts to be committed soon, in order. Logs drafts that do not fit; never raises."""
        self._commits.record(self._without_personal_data(drafts))

    async def user_turn(
        self,
        text: str,
        *,
        transport: str,
        key: str | None = None,
        rendered: str = "",
        tokens: Sequence[object] = (),
        event_us: int | None = None,
        supersedes: Sequence[str] = (),
        pictures: Sequence[Picture] = (),
        is_typed: bool = False,
    ) -> Event:
        """Commit a turn of the person, with the facts extracted from it.

        Args:
            text: the words.
            transport: over which they came.
            key: idempotency key of the turn. A key that belongs to other words is refused.
            rendered: the words as the model receives them, when that adds information.
            tokens: perception of the words, as JSON.
            event_us: when the person began to speak, for words that come late; None for now.
            supersedes: keys of earlier events that no longer count.
            pictures: that the person showed with it. A picture that the session has already is not stored
                again.
            is_typed: the words were typed in a call.

        Raises:
            KeyReusedError: none of this turn was written.
            StoreError, CapacityError: as ``append`` does.
        """
        if self._private:
            text, rendered, tokens, pictures = private_words(text), "", (), ()
        hidden = [] if self._private else self._hidden.of_turn(text)
        # Before the facts in it are learnt, and before a key is compared with what is stored.
        text = self.words_as_stored(text, is_caller=True)
        shown = [each.key for each in pictures]
        self._check_key(key, text, shown)
        extra: dict[str, object] = {"tokens": list(tokens)} if tokens else {}
        if rendered:
            extra["rendered"] = rendered
        extra |= {"typed": True} if is_typed else {}
        extra |= {"supersedes": list(supersedes)} if supersedes else {}
        if pictures:
            extra["pictures"] = self.name_pictures(pictures)
        stored = self.picture_drafts(pictures)
        turn = self.draft(Kind.USER_TURN, "user", {"text": text, "transport": transport, **extra}, key=key)
        if event_us is not None:
            turn = replace(turn, event_us=min(event_us, turn.arrival_us))
        turn = await self._hidden.kept(self.session_id, turn, hidden)
        learnt = learn(text, self.state, self._facts)
        state = [self.draft(Kind.STATE, "system", learnt, key=f"{turn.key}.state")] if learnt else []
        if key is None:
            return (await self.append(*stored, turn, *state))[len(stored)]
        known_seq = self._seen_seq
        # Only the store has every key. Nothing is extracted from words that it refuses. Nothing is extracted
        # again from words that are stored: that would undo later statements.
        *_, event = await self.append(*stored, turn)
        if not _says(event, text, shown):
            raise KeyReusedError(REUSED)
        if state and event.seq > known_seq:
            await self.append(*state)
        return event

    def name_pictures(self, pictures: Sequence[Picture], *, before: int = 0) -> list[dict[str, object]]:
        """Return what the payload of a turn holds of its pictures.

        Args:
            pictures: of the turn.
            before: number of pictures of turns that are committed with it, before it.
        """
        first = next_picture(self._events) + before
        return [
            {"key": each.key, "width": each.width, "height": each.height, "number": number}
            | ({"source": each.source} if each.source else {})
            for number, each in enumerate(pictures, start=first)
        ]

    def picture_drafts(self, pictures: Sequence[Picture]) -> list[Draft]:
        """Return the events of pictures, to be committed before the turn that names them."""
        drafts: list[Draft] = []
        for key, each in {each.key: each for each in pictures}.items():
            self._pictures[key] = each
            payload = {
                "media_type": each.media_type,
                "width": each.width,
                "height": each.height,
                "data": each.data,
            }
            drafts.append(self.draft(Kind.PICTURE, "user", payload, key=key))
        return drafts

    def _check_key(self, key: str | None, text: str, pictures: Sequence[str]) -> None:
        """Check an idempotency key against the events and drafts held here.

        Raises:
            KeyReusedError: it belongs to something else.
        """
        if key is None:
            return
        known: list[Draft | Event] = [*self._events, *self._commits.drafts()]
        if any(one.key == key and not _says(one, text, pictures) for one in known):
            raise KeyReusedError(REUSED)

    async def keep_short(self) -> None:
        """Summarise older turns whenever that is due, until cancelled. Run by ``Conversations``."""
        while True:
            await self._grown.wait()
            self._grown.clear()
            try:
                draft = await self._compactor.summary(self.events, self.clock)
                if draft is not None:
                    await self.append(draft)
            except AgentError as error:
                # The loss of a session has been logged already.
                if self.loss is None:
                    logger.warning(f"session {self.shown_id}: no summary: {error}")
            except Exception:
                # Outermost level of this task: without a summary the view leaves the oldest turns out, and
                # the next turn tries again.
                logger.exception(f"session {self.shown_id}: no summary")
            if not self._grown.is_set():
                self._short.set()

    def keep_short_now(self) -> None:
        """Make ``keep_short`` check whether a summary is due, as it does after every reply."""
        self._short.clear()
        self._grown.set()

    async def kept_short(self) -> None:
        """Wait until no summary is due or being written."""
        await self._short.wait()

    async def summary(self, *, max_tokens: int | None = None, within_s: float | None = None) -> str:
        """Return a summary for a third party (``Compactor.summarise_for_third_party``)."""
        return await self._compactor.summarise_for_third_party(
            self.events, max_tokens=max_tokens, within_s=within_s
        )

    async def in_time(self, committing: Coroutine[Any, Any, T]) -> T:
        """Wait for a commit for as long as a person waits: ``turn_deadline_s`` of the store.

        Drafts stay in the queue after the deadline; a repetition with the same keys does not store them
        twice. The time counts from the oldest pending draft. A turn after one that was refused therefore
        waits only until the next attempt of the writer.

        Raises:
            StoreUnavailableError: the database accepted nothing in that time.
            StoreError: as the commit raises.
        """
        now_s = asyncio.get_running_loop().time()
        oldest_s = self._commits.oldest_s
        since_s = now_s if oldest_s is None else oldest_s
        deadline_s = max(since_s + self._turn_deadline_s, now_s + LONGEST_PAUSE_S)
        try:
            async with asyncio.timeout_at(deadline_s):
                return await committing
        except TimeoutError:
            raise StoreUnavailableError(
                "the session store is unavailable, send the message again in a moment"
            ) from None

    @property
    def is_pending(self) -> bool:
        """True while records wait to be committed."""
        return not self._commits.is_idle

    async def flushed(self) -> None:
        """Wait until nothing is pending; nothing lingers meanwhile."""
        await self._commits.flushed()

    async def commit_pending(self) -> None:
        """Commit pending drafts until cancelled. Run by ``Conversations``."""
        await self._commits.run()

    def _take_in(self, events: list[Event]) -> None:
        # An event whose key was stored before comes back with its old seq and is in the view already. Two
        # drafts with one key in one batch are one event.
        new = list({event.seq: event for event in events if event.seq > self._seen_seq}.values())
        self._seen_seq = max([self._seen_seq, *(event.seq for event in new)])
        self._events.extend(event for event in new if event.kind in IN_VIEW)
        if any(event.kind is Kind.SUMMARY for event in new):
            self._events = from_last_summary(self._events)
        if any(event.kind is Kind.BOT_TURN for event in new):
            self.keep_short_now()
        if self._evidence is not None:
            self.record(*self._evidence.entries(new))
        replies_us = [event.event_us for event in new if _is_of_agent(event)]
        if replies_us:
            self._use_up_whisper(max(replies_us))
            if not self._tier.is_held:
                self.change_tier(TierEvent.REPLIED)

    def _use_up_whisper(self, replied_us: int) -> None:
        """Forget the whisper if the request of a reply that began at this time contained it.

        A greeting has no request, and a reply that is still spoken has an earlier one.
        """
        if self._whispered is None or replied_us < self._whispered[1]:
            return
        whisper, self._whispered = self._whispered[0], None
        if self._board.whispers.get(self.session_id) == whisper:
            self._board.whispers.pop(self.session_id, None)

    def lose(self, error: StoreError) -> None:
        """Mark the session as lost: every waiter gets the error, and nothing is written any more."""
        self._commits.lose(error)

    def _on_lost(self) -> None:
        self._board.remove(self.session_id)
        self.lost.set()


def _tier_of(events: Iterable[Event]) -> SessionTier:
    """Return the tier that the newest valid record states."""
    changes = sorted((event for event in events if event.kind is Kind.TIER), key=lambda event: event.seq)
    found = [read_tier(event.payload, at_us=event.event_us) for event in changes]
    known = [tier for tier in found if tier is not None]
    return known[-1] if known else SessionTier()


def _is_of_agent(event: Event) -> bool:
    """Return whether an event is a reply of the agent's model, and not of a human or of the deployment."""
    return event.kind is Kind.BOT_TURN and event.payload.get("by") is None


def _is_answer_owed(events: Iterable[Event]) -> bool:
    """Return whether the newest turn is one of the person."""
    turns = [event for event in events if event.kind in (Kind.USER_TURN, Kind.BOT_TURN)]
    return bool(turns) and max(turns, key=lambda event: event.seq).kind is Kind.USER_TURN


def _says(turn: Draft | Event, text: str, pictures: Sequence[str]) -> bool:
    """Return whether it is a turn of the person with these words and pictures."""
    if turn.kind is not Kind.USER_TURN or turn.payload.get("text") != text:
        return False
    return [each.key for each in pictures_in(turn)] == list(pictures)


def _picture_of(event: Event) -> Picture | None:
    """Return the picture of an event; None for one that is no picture, or of an import that is not valid."""
    payload = event.payload
    media_type, data = payload.get("media_type"), payload.get("data")
    width, height = payload.get("width"), payload.get("height")
    if event.kind is not Kind.PICTURE or media_type not in MEDIA_TYPES or not isinstance(data, str):
        return None
    if type(width) is not int or type(height) is not int or not data.isascii():
        return None
    return Picture(event.key, str(media_type), width, height, data)
