"""Tiers of a session: who answers, the agent or a human, and the way to another medium.

    AGENT -> (OFFERED) -> WAITING -> HUMAN -> BACK -> AGENT
    AGENT -> (STEP_OFFERED) -> STEPPING -> AGENT, now by voice, with pictures or in writing

The medium itself is a fact: the caller is in a call or not, and shows a camera, a screen or nothing
(``Medium``). It is recorded as the coming and going of transports. A step is the way there: the agent offers
it, the caller asks for it or the deployment requires it. It is over when the caller has come, declines or
cannot come. There is one offer at a time, of a human or of a medium. Steps up and down differ only in their
medium.

``TRANSITIONS`` has a row for every pair of a tier and an event. An event without effect in a tier leads
nowhere (None): a caller cannot decline what was not offered. Each change of the tier counts as an epoch. A
reply that was begun before a change to or from a tier in which no model is asked (``SessionTier.holds``) is
not sent, so that two tiers never speak at once. The same holds for a written answer when a call of its
session begins. Other changes leave a reply alone. Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
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
    STEP_OFFERED = "step_offered"
    """The agent has offered another medium; the caller has not answered yet."""
    STEPPING = "stepping"
    """The caller takes another medium, and their client changes to it. The agent answers meanwhile."""


class Medium(StrEnum):
    """Medium by which the caller takes part. A call with several of them counts as each."""

    TEXT = "text"
    """In writing."""
    VOICE = "voice"
    """In a call."""
    VIDEO = "video"
    """In a call, with a camera that shows something."""
    SCREEN = "screen"
    """In a call, with a shared screen."""


# Media that show something. A caller who was asked for one of them may choose the other.
SEEN = frozenset({Medium.VIDEO, Medium.SCREEN})


class TierEvent(Enum):
    """Event by which a tier may change."""

    OFFERED = "offered"
    """The agent offers a human, because it does not get further."""
    ACCEPTED = "accepted"
    DECLINED = "declined"
    """The caller does not take the offer or the step, or talks about something else."""
    REQUESTED = "requested"
    """The caller asks for a human."""
    POLICY = "policy"
    """The deployment leaves what the caller asks for to humans."""
    WITHDRAWN = "withdrawn"
    """The waiting caller goes on with the agent."""
    EXPIRED = "expired"
    """No human came in time, or the step can no longer be taken: it took too long, or its call is over."""
    TAKEN = "taken"
    """A human takes the session over."""
    RETURNED = "returned"
    """The human hands the session back."""
    DESK_LOST = "desk_lost"
    """The desk of the human has given no sign of life for too long."""
    REPLIED = "replied"
    """The agent has replied."""
    STEP_OFFERED = "step_offered"
    """The agent offers another medium."""
    STEP_REQUESTED = "step_requested"
    """The caller asks for another medium."""
    STEP_POLICY = "step_policy"
    """The deployment leaves what the caller asks for to another medium."""
    REACHED = "reached"
    """The caller takes part by the medium of the step."""
    FAILED = "failed"
    """The client cannot change to the medium: it has no camera, or the caller's browser refuses it."""


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
    (_T.BACK, _E.STEP_OFFERED): _T.STEP_OFFERED,
    (_T.BACK, _E.STEP_REQUESTED): _T.STEPPING,
    (_T.BACK, _E.STEP_POLICY): _T.STEPPING,
    (_T.AGENT, _E.STEP_OFFERED): _T.STEP_OFFERED,
    (_T.AGENT, _E.STEP_REQUESTED): _T.STEPPING,
    (_T.AGENT, _E.STEP_POLICY): _T.STEPPING,
    (_T.OFFERED, _E.STEP_REQUESTED): _T.STEPPING,
    (_T.STEP_OFFERED, _E.ACCEPTED): _T.STEPPING,
    (_T.STEP_OFFERED, _E.STEP_REQUESTED): _T.STEPPING,
    (_T.STEP_OFFERED, _E.DECLINED): _T.AGENT,
    (_T.STEP_OFFERED, _E.EXPIRED): _T.AGENT,
    (_T.STEP_OFFERED, _E.FAILED): _T.AGENT,
    (_T.STEP_OFFERED, _E.REACHED): _T.AGENT,
    (_T.STEP_OFFERED, _E.REQUESTED): _T.WAITING,
    (_T.STEP_OFFERED, _E.POLICY): _T.WAITING,
    (_T.STEP_OFFERED, _E.TAKEN): _T.HUMAN,
    (_T.STEPPING, _E.STEP_REQUESTED): _T.STEPPING,
    (_T.STEPPING, _E.DECLINED): _T.AGENT,
    (_T.STEPPING, _E.EXPIRED): _T.AGENT,
    (_T.STEPPING, _E.FAILED): _T.AGENT,
    (_T.STEPPING, _E.REACHED): _T.AGENT,
    (_T.STEPPING, _E.REQUESTED): _T.WAITING,
    (_T.STEPPING, _E.POLICY): _T.WAITING,
    (_T.STEPPING, _E.TAKEN): _T.HUMAN,
}
TRANSITIONS: Mapping[tuple[Tier, TierEvent], Tier | None] = {
    pair: _CHANGES.get(pair) for pair in product(Tier, TierEvent)
}
# Tiers in which no model is asked.
HELD = frozenset({Tier.WAITING, Tier.HUMAN})
# Tiers on the way to another medium.
STEPS = frozenset({Tier.STEP_OFFERED, Tier.STEPPING})
# Events that give a step its medium.
_AIMED = frozenset({TierEvent.STEP_OFFERED, TierEvent.STEP_REQUESTED, TierEvent.STEP_POLICY})


@dataclass(frozen=True, slots=True)
class SessionTier:
    """Tier of a session at one moment.

    Attributes:
        tier: the tier.
        epoch: number of changes so far.
        reason: event that led to it; empty at the beginning.
        note: note of the last human who handed the session back; later changes keep it.
        since_us: session time of the change.
        cause: why a human or a medium was offered; it stays while the caller takes the offer.
        to: medium of the step, and of the one that has just ended; None for other changes.
        declined: media that the caller has declined and not asked for since; they are not offered again.
        holds: number of changes after which a reply that was begun before is not sent, since the session was
            opened in this process; it is in no record.
    """

    tier: Tier = Tier.AGENT
    epoch: int = 0
    reason: str = ""
    note: str = ""
    since_us: int = 0
    cause: str = ""
    to: Medium | None = None
    declined: frozenset[Medium] = frozenset()
    holds: int = field(default=0, compare=False)

    @property
    def is_held(self) -> bool:
        """True when no model is asked."""
        return self.tier in HELD

    @property
    def is_step(self) -> bool:
        """True on the way to another medium."""
        return self.tier in STEPS

    def after(
        self, event: TierEvent, *, at_us: int, note: str = "", cause: str = "", to: Medium | None = None
    ) -> "SessionTier | None":
        """Return the tier after an event; None when the event changes nothing.

        ``to`` is the medium of a step that begins; without it none does.
        """
        tier = TRANSITIONS[self.tier, event]
        if tier is None or (event in _AIMED and to is None):
            return None
        kept = self.cause if event is TierEvent.ACCEPTED else ""
        target = to if event in _AIMED else self.to if self.is_step else None
        return SessionTier(
            tier,
            self.epoch + 1,
            event.value,
            note or self.note,
            at_us,
            cause or kept,
            target,
            self._declined_after(event, target),
            self.holds + (self.is_held or tier in HELD),
        )

    def _declined_after(self, event: TierEvent, target: Medium | None) -> frozenset[Medium]:
        if target is None:
            return self.declined
        if event is TierEvent.DECLINED:
            return self.declined | {target}
        return self.declined - {target} if event is TierEvent.STEP_REQUESTED else self.declined

    def step_end(
        self, media: Collection[Medium], *, began: Medium | None = None, has_left: bool = False
    ) -> TierEvent | None:
        """Return the event by which the media of the caller end the step; None when they do not.

        Args:
            media: by which the caller takes part now; none of a call: in writing.
            began: the one that has just begun.
            has_left: the last call of the session has just ended.
        """
        if not self.is_step or self.to is None:
            return None
        if is_reached(self.to, media) or (self.to in SEEN and began in SEEN):
            return TierEvent.REACHED
        return TierEvent.EXPIRED if has_left else None

    def payload(self) -> dict[str, Any]:
        """Return the payload of the event that records this tier."""
        known: dict[str, Any] = {"tier": self.tier.value, "epoch": self.epoch, "reason": self.reason}
        more = {"note": self.note, "cause": self.cause, "to": "" if self.to is None else self.to.value}
        if self.declined:
            known["declined"] = sorted(self.declined)
        return known | {name: text for name, text in more.items() if text}


def is_reached(to: Medium, media: Collection[Medium]) -> bool:
    """Return whether a caller with these media is where a step leads."""
    if to in SEEN:
        return to in media
    return set(media) == ({Medium.VOICE} if to is Medium.VOICE else set())


def read_tier(payload: Mapping[str, Any], *, at_us: int) -> SessionTier | None:
    """Return the tier that an event records; None for a payload that no release writes."""
    epoch, reason = payload.get("epoch"), payload.get("reason")
    note, cause = payload.get("note", ""), payload.get("cause", "")
    declined = payload.get("declined", [])
    try:
        tier = Tier(payload.get("tier"))
        to = Medium(payload["to"]) if "to" in payload else None
        media = frozenset(Medium(each) for each in declined)
    except (ValueError, TypeError):
        return None
    if type(epoch) is not int or not all(isinstance(text, str) for text in (reason, note, cause)):
        return None
    if tier in STEPS and to is None:
        return None
    return SessionTier(tier, epoch, str(reason), note, at_us, cause, to, media)
