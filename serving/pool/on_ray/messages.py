"""Messages between a gateway, its Ray process and the actors. Values only, carried as JSON.

JSON, because the processes need not run the same release: an actor outlives the gateways that use it.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from parley.serving.pool.shared.scheduler import LineChanges
from parley.serving.pool.shared.tables import GrantedRow, SeenLease, SeenRequest
from parley.serving.scheduler.types import RefusalReason

# Requests in one part of a line, which are read in less than a millisecond.
PART = 500


@dataclass(frozen=True, slots=True)
class Exchange:
    """Changes of one gateway for a line, and what it knows of it.

    Attributes:
        member: id of the gateway.
        number: of this message; grows with each. Changes of one that is overtaken are not used.
        life: of the line that the gateway has joined; empty: none.
        has_joined: the gateway has been in this line before, so the line should know of it.
        after: number of the last grant or refusal that it has read.
        most_waiting: queued requests of all gateways; more are refused.
        changes: of its requests, leases and workers.
    """

    member: str
    number: int
    life: str = ""
    has_joined: bool = False
    after: int = 0
    most_waiting: int = 1_000
    changes: LineChanges = field(default_factory=LineChanges)


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """Request that was removed from the line; ``number`` as in ``GrantedRow.granted``."""

    ticket: str
    reason: RefusalReason
    number: int


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """Answer to an ``Exchange``.

    Attributes:
        life: of the line; another one after it was restarted.
        is_joined: the changes were used. False: the gateway has just joined, and has to send all it has.
        clock_us: time of the line's clock.
        version: of the requests and leases in the line.
        numbers: places of the requests of the exchange.
        granted: news after ``Exchange.after``.
        refused: the same.
    """

    life: str
    is_joined: bool
    clock_us: int
    version: int
    numbers: dict[str, int] = field(default_factory=dict)
    granted: tuple[GrantedRow, ...] = ()
    refused: tuple[RefusedRow, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeLine:
    """Requests and leases of all gateways, as one of them sees them.

    Attributes:
        version: of the places in the line.
        requests: in order, in parts: the JSON of ``PART`` requests each, so that a gateway can read them with
            pauses, in which its calls go on.
        leases: of all gateways.
    """

    version: int
    requests: tuple[str, ...]
    leases: tuple[SeenLease, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """Request to be notified of news of a line.

    Attributes:
        member: id of the gateway.
        life: of the line that it has joined.
        after: number of the last grant or refusal that it has read.
        version: of the places that it has seen; None: it needs no newer ones.
        wait_s: longest wait.
    """

    member: str
    life: str
    after: int
    version: int | None
    wait_s: float


@dataclass(frozen=True, slots=True)
class Notice:
    """Answer to an ``Attention``: ``has_news`` of the gateway, and the version of the places."""

    has_news: bool
    version: int


@dataclass(frozen=True, slots=True)
class HeldSession:
    """Session that has a lease of a worker, by the worker's own report."""

    session_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class HostReport:
    """State of a worker that an actor hosts.

    Attributes:
        name: of the worker.
        life: of the actor; another one after it was restarted.
        version: changes with every other attribute except ``held``.
        spec: digest of the settings with which it was started.
        url: address of the process; None while there is none.
        starts: number of processes so far.
        status: exit status of the last one that ended.
        fault: why no process can be started; empty: none.
        incarnation: of the process that reports; None: none does.
        slots: of it.
        held: sessions with a lease.
        kind: of its engine: omni, stt, tts or llm.
        is_retired: it was drained, and starts no further process.
    """

    name: str
    life: str
    version: int
    spec: str
    url: str | None = None
    starts: int = 0
    status: int | None = None
    fault: str = ""
    incarnation: str | None = None
    slots: int = 1
    held: tuple[HeldSession, ...] = ()
    kind: str = "omni"
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class RayCall:
    """Request of a gateway to its Ray process.

    Attributes:
        number: of the call.
        method: of ``RayCluster``.
        facts: its arguments.
        within_s: time after which the gateway does not wait for the answer any more.
    """

    number: int
    method: str
    facts: dict[str, Any]
    within_s: float


@dataclass(frozen=True, slots=True)
class RayReply:
    """Answer to a ``RayCall``; ``error`` is empty where it succeeded."""

    number: int
    result: str = ""
    error: str = ""


EXCHANGE = TypeAdapter(Exchange)
ANSWER = TypeAdapter(LineAnswer)
ATTENTION = TypeAdapter(Attention)
NOTICE = TypeAdapter(Notice)
WHOLE_LINE = TypeAdapter(WholeLine)
SEEN_REQUESTS = TypeAdapter(tuple[SeenRequest, ...])
HOST_REPORT = TypeAdapter(HostReport)
CALL = TypeAdapter(RayCall)
REPLY = TypeAdapter(RayReply)
