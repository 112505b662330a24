"""The desk of one process: which human has which session, and the deadlines of both sides.

A session in which a caller waits, or which a human has, is kept open here, so that a caller who writes (and
has no connection between two turns) is still in the queue. One task for each of them owns its deadlines: a
human who does not come within ``wait_s``, and a desk that has given no sign of life for ``grace_s``. After
either the agent goes on, with a sentence that says so.

A desk identifies itself by an id that it makes up (``desk_id``): two pages of one operator are two desks, and
only the one that took a session writes to it. The desk serves the sessions of its own process.
"""

import asyncio

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import AgentError
from parley.core.tiers import Tier, TierEvent
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.rows import SHOWN_CHARS
from parley.session_store.tier_board import MOST_HELD

# Desks whose last sign of life is remembered; those of a deployment are a handful.
MOST_DESKS = 1_000
CLOSE_S = 2.0


# Mode of a browser call in which a human speaks to the caller of a session that their desk has.
DESK_CALL = "desk"


class DeskError(AgentError):
    """A request of the desk that does not fit the state of its session."""


class Desk:
    """Desk of one process. Started and closed with its server.

    Args:
        conversations: sessions of the process.
        settings: deadlines and phrases.

    Attributes:
        settings: deadlines and phrases.
    """

    def __init__(self, conversations: Conversations, settings: DeskSettings) -> None:
        self.settings = settings
        self._conversations = conversations
        self._board = conversations.board
        # Loop time of the last sign of life of a desk.
        self._seen_s: BoundedDict[str, float] = BoundedDict(MOST_DESKS)
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._watched_from_s: dict[str, float] = {}
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the sessions of the process."""
        self._board.set_staffed(True)
        self._watching = asyncio.create_task(self._watch(), name="desk")

    async def close(self) -> None:
        """Stop watching. Sessions keep their tier, in which they are resumed."""
        self._board.set_staffed(False)
        tasks = [each for each in (self._watching, *self._watches.values()) if each is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    def sign_of_life(self, desk_id: str) -> None:
        """Note that a desk is there."""
        self._seen_s[desk_id] = self._now_s()

    def holder(self, session_id: str) -> str:
        """Return the id of the desk that has a session; empty for none."""
        return self._board.holder(session_id)

    async def take(self, session_id: str, desk_id: str) -> None:
        """Take a session over: the agent is silent, and this desk writes to the caller.

        Raises:
            DeskError: another desk has it, or it is in a call that cannot be taken over.
            StoreError: there is no such session, or the store is away.
        """
        async with self._conversations.open(session_id) as conversation:
            if conversation.tier.tier is Tier.HUMAN:
                if self.holder(session_id) not in ("", desk_id) and self._is_present(session_id):
                    raise DeskError("another desk has this session")
            elif self._conversations.is_in_call(session_id) and not conversation.has_stream:
                raise DeskError(
                    "this call cannot be taken over, because its model hears and speaks by itself: use mode "
                    "cascade, or the two-tier engine of full duplex"
                )
            if not conversation.may_wait:
                raise DeskError("too many sessions wait for a human or have one: hand one back first")
            self.sign_of_life(desk_id)
            self._board.set_holder(session_id, desk_id)
            if conversation.change_tier(TierEvent.TAKEN):
                conversation.say(self.settings.phrases["joined"], by_human=False)
            # Watched before this holder leaves, so that the session stays open.
            self._begin_watch(session_id)
            await conversation.in_time(conversation.flushed())

    async def say(self, session_id: str, desk_id: str, text: str) -> None:
        """Say a text to the caller.

        Raises:
            DeskError: this desk does not have the session.
            StoreError: as ``take``.
        """
        conversation = self._held_by(session_id, desk_id)
        conversation.say(text, by_human=True)
        await conversation.in_time(conversation.flushed())

    async def whisper(self, session_id: str, text: str) -> None:
        """Give the model an instruction for its next reply, which a crash loses.

        Raises:
            StoreError: there is no such session, or the store is away.
        """
        await self._conversations.store.info(session_id)
        self._board.whispers[session_id] = text

    async def hand_back(self, session_id: str, desk_id: str, note: str) -> None:
        """Hand a session back to the agent, with a note for its model.

        Raises:
            DeskError: this desk does not have the session.
            StoreError: as ``take``.
        """
        conversation = self._held_by(session_id, desk_id)
        self._board.set_holder(session_id, "")
        if conversation.change_tier(TierEvent.RETURNED, note=note):
            conversation.say(self.settings.phrases["returned"], by_human=False)
        await conversation.in_time(conversation.flushed())

    def check_speaker(self, session_id: str, desk_id: str) -> None:
        """Check that a desk may speak in the call of a session.

        Raises:
            DeskError: this desk does not have the session, or there is no call whose audio a human can join.
        """
        conversation = self._held_by(session_id, desk_id)
        if not self._conversations.is_in_call(session_id):
            raise DeskError("the caller is in no call: write to them")
        if not conversation.speaks:
            raise DeskError("a human cannot speak in this call, which goes by turns: write to the caller")

    def _held_by(self, session_id: str, desk_id: str) -> Conversation:
        conversation = self._conversations.get(session_id)
        if conversation is None or conversation.tier.tier is not Tier.HUMAN:
            raise DeskError("no human has this session now: take it over first")
        if self.holder(session_id) != desk_id:
            raise DeskError("another desk has this session")
        self.sign_of_life(desk_id)
        return conversation

    def _is_present(self, session_id: str) -> bool:
        seen_s = self._seen_s.get(self.holder(session_id))
        return seen_s is not None and self._now_s() - seen_s < self.settings.grace_s

    async def _watch(self) -> None:
        """Watch each session that waits or that a human has, until cancelled."""
        while True:
            self._board.news.clear()
            for session_id in list(self._board.held):
                self._begin_watch(session_id)
            await self._board.news.wait()

    def _begin_watch(self, session_id: str) -> None:
        if session_id in self._watches or len(self._watches) >= MOST_HELD:
            return
        name = f"desk.{session_id[:SHOWN_CHARS]}"
        task = asyncio.create_task(self._watch_one(session_id), name=name)
        self._watches[session_id] = task
        self._watched_from_s[session_id] = self._now_s()
        task.add_done_callback(lambda _task: self._end_watch(session_id))

    def _end_watch(self, session_id: str) -> None:
        self._watches.pop(session_id, None)
        self._watched_from_s.pop(session_id, None)
        # It may have come back to the board meanwhile, under a new claim.
        self._board.news.set()

    async def _watch_one(self, session_id: str) -> None:
        """Keep a session open until the agent has it again; end a wait or an absence that is too long."""
        try:
            async with self._conversations.open(session_id) as conversation:
                while conversation.tier.is_held and not conversation.lost.is_set():
                    await self._until_changed(conversation)
                    self._end_overdue(session_id, conversation)
        except AgentError as error:
            logger.warning(f"session {session_id[:SHOWN_CHARS]}: the desk does not watch it: {error}")
            self._board.remove(session_id)

    async def _until_changed(self, conversation: Conversation) -> None:
        """Return when the session may have changed, at its next deadline at the latest."""
        left_s = max(0.05, self._left_s(conversation))
        changed = asyncio.create_task(conversation.tier_after(conversation.tier.epoch), name="desk.tier")
        lost = asyncio.create_task(conversation.lost.wait(), name="desk.lost")
        try:
            await asyncio.wait({changed, lost}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (changed, lost):
                task.cancel()
            await asyncio.gather(changed, lost, return_exceptions=True)

    def _left_s(self, conversation: Conversation) -> float:
        """Return the time to the next deadline of a session; 0 or less when it is due."""
        session_id, tier = conversation.session_id, conversation.tier
        in_tier_s = (conversation.clock.now_us() - tier.since_us) / 1e6
        if tier.tier is Tier.WAITING:
            return self.settings.wait_s - in_tier_s
        seen_s = self._seen_s.get(self.holder(session_id))
        # A session that was resumed after a crash has no known desk, which takes it again when it sees it.
        watched_s = self._now_s() - self._watched_from_s.get(session_id, self._now_s())
        absent_s = min(in_tier_s, watched_s) if seen_s is None else self._now_s() - seen_s
        return self.settings.grace_s - absent_s

    def _end_overdue(self, session_id: str, conversation: Conversation) -> None:
        if not conversation.tier.is_held or self._left_s(conversation) > 0:
            return
        waited = conversation.tier.tier is Tier.WAITING
        self._board.set_holder(session_id, "")
        if conversation.change_tier(TierEvent.EXPIRED if waited else TierEvent.DESK_LOST):
            conversation.say(self.settings.phrases["expired" if waited else "lost"], by_human=False)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
