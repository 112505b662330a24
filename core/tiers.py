"""Tiers of a session: the agent answers, or a human in its place.

    AGENT -> (OFFERED) -> WAITING -> HUMAN -> BACK -> AGENT

``TRANSITIONS`` has a row for every pair of a tier and an event. An event without effect in a tier leads
nowhere (None): a caller cannot decline what was not offered. Each change of the tier counts as an epoch. A
reply that was begun before a change to or from a tier in which no model is asked (``SessionTier.holds``) is
not sent, so that two tiers never speak at once. Other changes leave a reply alone. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import Any


class Tier(Enum):
    """Tier of a session."""

    AGENT = "agent"
    """The agent answers."""
    OFFERED = "offered"
    """The agent has offered to fetch a human; the caller has not answered yet."""
    WAITING = "waiting"
    """The caller waits for a human. No model is asked."""
    HUMAN = "human"
    """A human at the desk writes to the caller. No model is asked."""
    BACK = "back"
    """The agent answers again and has not replied since."""


class TierEvent(Enum):
    """Event by which a tier may change."""

    OFFERED = "offered"
    """The agent offers a human, because it does not get further."""
    ACCEPTED = "accepted"
    DECLINED = "declined"
    """The caller does not take the offer, or talks about something else."""
    REQUESTED = "requested"
    """The caller asks for a human."""
    POLICY = "policy"
    """The deployment leaves what the caller asks for to humans."""
    WITHDRAWN = "withdrawn"
    """The waiting caller goes on with the agent."""
    EXPIRED = "expired"
    """No human came in time."""
    TAKEN = "taken"
    """A human takes the session over."""
    RETURNED = "returned"
    """The human hands the session back."""
    DESK_LOST = "desk_lost"
    """The desk of the human has given no sign of life for too long."""
    REPLIED = "replied"
    """The agent has replied."""


_T, _E = Tier, TierEvent
_CHANGES: Mapping[tuple[Tier, TierEvent], Tier] = {
    (_T.AGENT, _E.OFFERED): _T.OFFERED,
    (_T.AGENT, _E.REQUESTED): _T.WAITING,
    (_T.AGENT, _E.POLICY): _T.WAITING,
    (_T.AGENT, _E.TAKEN): _T.HUMAN,
    (_T.OFFERED, _E.ACCEPTED): _T.WAITING,
    (_T.OFFERED, _E.REQUESTED): _T.WAITING,
    (_T.OFFERED, _E.POLICY): _T.WAITING,
    (_T.OFFERED, _E.DECLINED): _T.AGENT,
    (_T.OFFERED, _E.TAKEN): _T.HUMAN,
    (_T.WAITING, _E.WITHDRAWN): _T.AGENT,
    (_T.WAITING, _E.EXPIRED): _T.BACK,
    (_T.WAITING, _E.TAKEN): _T.HUMAN,
    (_T.HUMAN, _E.RETURNED): _T.BACK,
    (_T.HUMAN, _E.DESK_LOST): _T.BACK,
    (_T.BACK, _E.REPLIED): _T.AGENT,
    (_T.BACK, _E.REQUESTED): _T.WAITING,
    (_T.BACK, _E.POLICY): _T.WAITING,
    (_T.BACK, _E.TAKEN): _T.HUMAN,
}
TRANSITIONS: Mapping[tuple[Tier, TierEvent], Tier | None] = {
    pair: _CHANGES.get(pair) for pair in product(Tier, TierEvent)
}
# Tiers in which no model is asked.
HELD = frozenset({Tier.WAITING, Tier.HUMAN})


@dataclass(frozen=True, slots=True)
class SessionTier:
    """Tier of a session at one moment.

    Attributes:
        tier: the tier.
        epoch: number of changes so far.
        reason: event that led to it; empty at the beginning.
        note: note of the last human who handed the session back; later changes keep it.
        since_us: session time of the change.
        cause: why a human was offered; it stays when the caller accepts.
        holds: number of changes to or from a tier in which no model is asked, since the session was opened in
            this process; it is in no record.
    """

    tier: Tier = Tier.AGENT
    epoch: int = 0
    reason: str = ""
    note: str = ""
    since_us: int = 0
    cause: str = ""
    holds: int = field(default=0, compare=False)

    @property
    def is_held(self) -> bool:
        """True when no model is asked."""
        return self.tier in HELD

    def after(self, event: TierEvent, *, at_us: int, note: str = "", cause: str = "") -> "SessionTier | None":
        """Return the tier after an event; None when the event changes nothing."""
        tier = TRANSITIONS[self.tier, event]
        if tier is None:
            return None
        kept = self.cause if event is TierEvent.ACCEPTED else ""
        holds = self.holds + (self.is_held or tier in HELD)
        note = note or self.note
        return SessionTier(tier, self.epoch + 1, event.value, note, at_us, cause or kept, holds)

    def payload(self) -> dict[str, Any]:
        """Return the payload of the event that records this tier."""
        known = {"tier": self.tier.value, "epoch": self.epoch, "reason": self.reason}
        more = {"note": self.note, "cause": self.cause}
        return known | {name: text for name, text in more.items() if text}


def read_tier(payload: Mapping[str, Any], *, at_us: int) -> SessionTier | None:
    """Return the tier that an event records; None for a payload that no release writes."""
    epoch, reason = payload.get("epoch"), payload.get("reason")
    note, cause = payload.get("note", ""), payload.get("cause", "")
    try:
        tier = Tier(payload.get("tier"))
    except ValueError:
        return None
    if type(epoch) is not int or not all(isinstance(text, str) for text in (reason, note, cause)):
        return None
    return SessionTier(tier, epoch, str(reason), note, at_us, cause)
