"""Board of the sessions of one process that wait for a human, or that a human has."""

import asyncio
from collections.abc import Mapping

from parley.core.bounded_dict import BoundedDict
from parley.core.tiers import SessionTier, Tier

# The oldest are forgotten.
MOST_WHISPERS = 1_000
MOST_HOLDERS = 1_000
# Sessions that wait for a human, or that humans have, at once. Each has a task that owns its deadlines.
MOST_HELD = 1_000


class TierBoard:
    """Tiers of the open sessions in which no model is asked. Not thread-safe.

    Attributes:
        is_staffed: true while the process has a desk, so that a human can come at all.
        news: set after every change; its one reader clears it.
        whispers: instructions of a human for the next reply of the model, by session. They are in no record,
            so that the caller cannot read them; they outlive the open session, and not the process.
    """

    def __init__(self) -> None:
        self.is_staffed = False
        self.news = asyncio.Event()
        self.whispers: BoundedDict[str, str] = BoundedDict(MOST_WHISPERS)
        self._held: dict[str, SessionTier] = {}
        # Places of those that wait; None after a change, until they are asked for.
        self._places: dict[str, int] | None = None
        # Desk that has a session, by session.
        self._holders: BoundedDict[str, str] = BoundedDict(MOST_HOLDERS)
        # Set at the next change of a holder, and then replaced.
        self._holder_changed = asyncio.Event()

    @property
    def held(self) -> Mapping[str, SessionTier]:
        """Tiers by the id of their session."""
        return self._held

    def set_staffed(self, is_staffed: bool) -> None:
        """Note whether the process has a desk."""
        self.is_staffed = is_staffed

    def holder(self, session_id: str) -> str:
        """Return the id of the desk that has a session; empty for none."""
        return self._holders.get(session_id, "")

    def set_holder(self, session_id: str, desk_id: str) -> None:
        """Note the desk that has a session; empty for none."""
        if self.holder(session_id) == desk_id:
            return
        if desk_id:
            self._holders[session_id] = desk_id
        else:
            del self._holders[session_id]
        reached, self._holder_changed = self._holder_changed, asyncio.Event()
        reached.set()

    async def until_not_held_by(self, session_id: str, desk_id: str) -> None:
        """Return when a session has another desk than this one, or none."""
        while self.holder(session_id) == desk_id:
            await self._holder_changed.wait()

    def put(self, session_id: str, tier: SessionTier) -> None:
        """Note the tier of a session."""
        if tier.is_held:
            self._held[session_id] = tier
        else:
            self._held.pop(session_id, None)
        self._places = None
        self.news.set()

    def remove(self, session_id: str) -> None:
        """Forget a session that is no longer open here."""
        if self._held.pop(session_id, None) is not None:
            self._places = None
            self.news.set()

    def has_room(self, session_id: str) -> bool:
        """Return whether a session may wait for a human, or be taken over."""
        return session_id in self._held or len(self._held) < MOST_HELD

    def place_of(self, session_id: str) -> int:
        """Return the place of a waiting session, from 1; 0 for any other."""
        if self._places is None:
            waiting = sorted(
                (tier.since_us, key) for key, tier in self._held.items() if tier.tier is Tier.WAITING
            )
            self._places = {key: place for place, (_, key) in enumerate(waiting, start=1)}
        return self._places.get(session_id, 0)
