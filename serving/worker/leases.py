"""Who has the worker, and until when. Pure: time comes in from the worker's own clock, which nobody can set.

A lease is of a session and an epoch of it. It is renewed by whoever uses it and ends by itself when it is
not: a gateway that died, or that the network cut off, holds nothing for longer than ``lease_ms``. The epoch
is the session's: a new owner of the same session, with a higher one, takes its lease over, and the old owner
is told so or finds out with its next message. Nobody else's lease is ever taken.

A lease that is over is not free yet: ``give_back`` is called when everything of it is cleaned up, and until
then its place is taken.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.errors import AgentError
from core.newest import Newest

# Sessions whose newest epoch is known: more than a worker has in the time that an old owner may live on.
REMEMBERED = 1_024


class RefusedBecause(StrEnum):
    """Why a worker does not take a lease."""

    BUSY = "busy"
    """Others have it."""
    STALE = "stale"
    """A newer owner of the session has it, or had."""
    OTHER_INCARNATION = "other_incarnation"
    """The lease is for a process that is gone."""
    UNAUTHORISED = "unauthorised"
    UNREADABLE = "unreadable"
    NOT_READY = "not_ready"
    """It loads, drains, or is suspect."""


class LeaseRefused(AgentError):
    """The worker keeps what it has.

    Attributes:
        because: why.
    """

    def __init__(self, because: RefusedBecause, message: str) -> None:
        super().__init__(message)
        self.because = because


@dataclass(slots=True)
class Held:
    """One lease.

    Attributes:
        session_id: whose.
        epoch: of the session.
        expires_ms: when it ends unless it is renewed.
        is_over: it ended, and is being cleaned up.
    """

    session_id: str
    epoch: int
    expires_ms: int
    is_over: bool = False

    def end(self) -> None:
        """Note that it is over."""
        self.is_over = True


class Leases:
    """Of one process.

    Args:
        incarnation: of the process.
        slots: at a time.
        lease_ms: without a renewal.
    """

    def __init__(self, incarnation: str, *, slots: int, lease_ms: int) -> None:
        self.incarnation = incarnation
        self.slots = slots
        self.lease_ms = lease_ms
        self._held: dict[str, Held] = {}
        # The newest epoch of each session that was here lately: an owner that was superseded stays so.
        self._newest: Newest[str, int] = Newest(REMEMBERED)

    def resize(self, slots: int) -> None:
        """Have as many places as an engine that is loaded."""
        self.slots = slots

    @property
    def held(self) -> tuple[Held, ...]:
        """Those that take a place."""
        return tuple(self._held.values())

    @property
    def has_room(self) -> bool:
        """Whether another session would be taken."""
        return len(self._held) < self.slots

    def supersede(self, session_id: str, epoch: int) -> Held | None:
        """A newer owner of a session is here: the lease of the one before, which is over, or None.

        Its place is taken until it is given back.
        """
        held = self._held.get(session_id)
        if held is None or epoch <= held.epoch:
            return None
        held.is_over = True
        self._remember(session_id, epoch)
        return held

    def take(self, session_id: str, epoch: int, incarnation: str, now_ms: int) -> Held:
        """A session wants it.

        Raises:
            LeaseRefused: it does not get it.
        """
        if incarnation != self.incarnation:
            raise LeaseRefused(RefusedBecause.OTHER_INCARNATION, "this process is another one")
        if epoch < self._newest.get(session_id, epoch):
            raise LeaseRefused(RefusedBecause.STALE, "a newer owner of the session was here")
        if session_id in self._held:
            raise LeaseRefused(RefusedBecause.BUSY, "the session has it already, or is being cleaned up")
        if not self.has_room:
            raise LeaseRefused(RefusedBecause.BUSY, f"all {self.slots} places are taken")
        self._remember(session_id, epoch)
        held = self._held[session_id] = Held(session_id, epoch, now_ms + self.lease_ms)
        return held

    def renew(self, session_id: str, epoch: int, now_ms: int) -> bool:
        """Whoever uses it is still there; False when it is not theirs any more."""
        held = self._held.get(session_id)
        if held is None or held.epoch != epoch or held.is_over or held.expires_ms <= now_ms:
            return False
        held.expires_ms = now_ms + self.lease_ms
        return True

    def give_back(self, session_id: str) -> None:
        """Everything of it is cleaned up."""
        self._held.pop(session_id, None)

    def expired(self, now_ms: int) -> tuple[Held, ...]:
        """Those that nobody has renewed in time; each is told once, and is over."""
        gone = tuple(held for held in self._held.values() if not held.is_over and held.expires_ms <= now_ms)
        for held in gone:
            held.is_over = True
        return gone

    def next_deadline_ms(self) -> int | None:
        """When the first of them ends by itself."""
        return min((held.expires_ms for held in self._held.values() if not held.is_over), default=None)

    def _remember(self, session_id: str, epoch: int) -> None:
        self._newest[session_id] = epoch
