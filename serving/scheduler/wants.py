"""What somebody wants of a pool of workers, what a worker offers, and what comes of the two. Values only."""

from dataclasses import dataclass
from enum import StrEnum

from models.llm.kv.segments import CacheHandle


class Task(StrEnum):
    """What a worker is wanted for; each kind lasts about as long as its own."""

    CHAT = "chat"
    HALF_DUPLEX = "half_duplex"
    AUDIO_DUPLEX = "audio_duplex"
    OMNI_DUPLEX = "omni_duplex"

    @property
    def is_live(self) -> bool:
        """Whether a person waits in a call, and not for a text."""
        return self is not Task.CHAT


@dataclass(frozen=True, slots=True)
class Want:
    """One conversation that needs a worker.

    Attributes:
        ticket_id: of the wish; unguessable, made by the server.
        session_id: of the conversation.
        task: what for.
        epoch: of the session, which fences an owner that was superseded.
        kv_bytes: that it may come to need.
        digests: of the conversation's segments, the oldest first, with how many tokens they end at: what a
            worker may have kept a beginning of.
        handle: what the last worker said that it kept.
    """

    ticket_id: str
    session_id: str
    task: Task
    epoch: int = 0
    kv_bytes: int = 0
    digests: tuple[tuple[str, int], ...] = ()
    handle: CacheHandle | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker can take.

    Attributes:
        worker: its name.
        incarnation: of its process: what an earlier one held or kept is gone.
        slots: conversations at a time.
        kv_bytes: of memory for their caches; None where slots alone count.
    """

    worker: str
    incarnation: str
    slots: int = 1
    kv_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker for a conversation, until it is given back. The worker decides whether it holds.

    Attributes:
        session_id: of the conversation.
        worker: its name.
        incarnation: of the process that it is for.
        epoch: of the session.
    """

    session_id: str
    worker: str
    incarnation: str
    epoch: int


class Standing(StrEnum):
    """Whether a worker may be given conversations."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Those it has go on, and no more come."""
    SUSPECT = "suspect"
    """It did not answer when it should have: nothing new until it does."""


class Reason(StrEnum):
    """Why somebody gets no worker."""

    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    """No worker's memory holds it, however long one waits."""
    NO_WORKER = "no_worker"
    """There has been none for so long that waiting is a lie."""
    CANCELLED = "cancelled"
    """By an operator."""
    WITHDRAWN = "withdrawn"
    """By whoever knows the ticket."""
    LEFT = "left"
    """It was not heard of any more."""
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Granted:
    """A worker is somebody's: ask it."""

    ticket_id: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Lost:
    """A lease is void, because its worker is gone; the conversation waits at the head of the queue."""

    ticket_id: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody is to wait any more."""

    ticket_id: str
    reason: Reason
    limit: int = 0


Effect = Granted | Lost | Refused


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody stands in the queue.

    Attributes:
        ticket_id: whose.
        session_id: of the conversation.
        task: what for.
        position: 1 is next.
        wait_ms: until it is likely to have a worker; None where no worker is there that may come free.
        since_ms: when it asked.
    """

    ticket_id: str
    session_id: str
    task: Task
    position: int
    wait_ms: int | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Running:
    """A conversation that has a worker.

    Attributes:
        ticket_id: whose.
        lease: what it has.
        task: what for.
        since_ms: when it was granted.
        left_ms: until it is likely to be over.
    """

    ticket_id: str
    lease: Lease
    task: Task
    since_ms: int
    left_ms: int
