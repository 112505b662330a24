"""Leases of the worker, with their expiry. Pure: time comes in from the worker's own monotonic clock.

A lease belongs to a session and an epoch of it. Its user renews it, and it expires otherwise: a gateway that
died, or that the network cut off, holds nothing for longer than ``lease_ms``. The epoch is that of the
session. A new owner of the same session, with a higher epoch, takes its lease over; the old owner is notified
or finds out with its next message. The lease of another session is never taken.

A lease that is over is not free yet: ``give_back`` is called when everything is cleaned up, and until then
its place is taken.
"""

from dataclasses import dataclass
from enum import StrEnum

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import AgentError

# Sessions whose newest epoch is kept: more than a worker has in the time that an old owner may survive.
REMEMBERED = 1_024


class RefusedBecause(StrEnum):
    """Reason for which a worker refuses a lease."""

    BUSY = "busy"
    """Other conversations take all places."""
    STALE = "stale"
    """A newer owner of the session holds it, or has held it."""
    OTHER_INCARNATION = "other_incarnation"
    """The lease is for a process that has ended."""
    UNAUTHORISED = "unauthorised"
    UNREADABLE = "unreadable"
    NOT_READY = "not_ready"
    """The worker is loading, draining or suspect."""


class LeaseRefused(AgentError):
    """The worker refuses a lease and keeps its present ones.

    Attributes:
        because: the reason.
    """

    def __init__(self, because: RefusedBecause, message: str) -> None:
        super().__init__(message)
        self.because = because


@dataclass(slots=True)
class Held:
    """Lease that a session holds.

    Attributes:
        session_id: of the conversation.
        epoch: of the session.
        expires_ms: when it ends unless it is renewed.
        is_over: true when it has ended and is being cleaned up.
    """

    session_id: str
    epoch: int
    expires_ms: int
    is_over: bool = False

    def end(self) -> None:
        """Mark the lease as over."""
        self.is_over = True


class Leases:
    """Leases of one process.

    Args:
        incarnation: of the process.
        slots: maximum number of concurrent leases.
        lease_ms: time to expiry without a renewal.
    """

    def __init__(self, incarnation: str, *, slots: int, lease_ms: int) -> None:
        self.incarnation = incarnation
        self.slots = slots
        self.lease_ms = lease_ms
        self._held: dict[str, Held] = {}
        # Newest epoch of each recent session: a superseded owner stays superseded.
        self._newest: BoundedDict[str, int] = BoundedDict(REMEMBERED)

    def resize(self, slots: int) -> None:
        """Set the number of places to that of a loaded engine."""
        self.slots = slots

    @property
    def held(self) -> tuple[Held, ...]:
        """Leases that take a place."""
        return tuple(self._held.values())

    @property
    def has_room(self) -> bool:
        """True when another session would be accepted."""
        return len(self._held) < self.slots

    def supersede(self, session_id: str, epoch: int) -> Held | None:
        """Supersede the lease of an older owner of the session; return it, or None.

        Its place is taken until ``give_back``.
        """
        held = self._held.get(session_id)
        if held is None or epoch <= held.epoch:
            return None
        held.is_over = True
        self._remember(session_id, epoch)
        return held

    def take(self, session_id: str, epoch: int, incarnation: str, now_ms: int) -> Held:
        """Take a lease for a session.

        Raises:
            LeaseRefused: it does not get one.
        """
        if incarnation != self.incarnation:
            raise LeaseRefused(RefusedBecause.OTHER_INCARNATION, "the lease belongs to another process")
        if epoch < self._newest.get(session_id, epoch):
            raise LeaseRefused(RefusedBecause.STALE, "the session has a newer owner")
        if session_id in self._held:
            raise LeaseRefused(
                RefusedBecause.BUSY, "the session has this lease already, or it is being cleaned up"
            )
        if not self.has_room:
            raise LeaseRefused(RefusedBecause.BUSY, f"all {self.slots} slots are in use")
        self._remember(session_id, epoch)
        held = self._held[session_id] = Held(session_id, epoch, now_ms + self.lease_ms)
        return held

    def renew(self, session_id: str, epoch: int, now_ms: int) -> bool:
        """Renew a lease for its user; return False when it is no longer theirs."""
        held = self._held.get(session_id)
        if held is None or held.epoch != epoch or held.is_over or held.expires_ms <= now_ms:
            return False
        held.expires_ms = now_ms + self.lease_ms
        return True

    def give_back(self, session_id: str) -> None:
        """Free the place of a lease after the cleanup."""
        self._held.pop(session_id, None)

    def expired(self, now_ms: int) -> tuple[Held, ...]:
        """Return the leases that were not renewed in time; each is returned once, and is over."""
        gone = tuple(held for held in self._held.values() if not held.is_over and held.expires_ms <= now_ms)
        for held in gone:
            held.is_over = True
        return gone

    def next_deadline_ms(self) -> int | None:
        """Return when the first of them expires; None without any."""
        return min((held.expires_ms for held in self._held.values() if not held.is_over), default=None)

    def _remember(self, session_id: str, epoch: int) -> None:
        self._newest[session_id] = epoch
