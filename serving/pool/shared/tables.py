"""Statements on the tables of a shared pool (migration 0013 of the session store).

All changes of a line happen in transactions that hold its lock. Requests of one rank are ordered by the time
of their arrival, in times of the database's clock, to which each gateway measures the offset of its own
(``clock_offset``). A request that comes to the tables late is put before others by ``LATE_US`` at most, which
also bounds what a change of that clock does to the order. Every function takes a connection of asyncpg; the
lock, and thus a transaction, is the caller's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parley.models.llm.kv.segments import CacheHandle
from parley.serving.scheduler.free_slots import ReportedSlots, SharedSlots
from parley.serving.scheduler.types import (
    Lease,
    Rank,
    RefusalReason,
    Task,
    WorkerCapacity,
    WorkerRequest,
)

CHANNEL = "parley_pool"
# First half of the lock of a line; any number that no other program is likely to use.
LOCK = 727540
NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
LATE_US = 5_000_000
# Below zero for all signs of life that a member gives before it opens a line whose rows were lost.
RESTORING = 1 << 40
# Requests that are looked at in one go: bounds the time in which the loop does nothing else.
HEADS = 64
# Rows of a long line that are read at once, for the same reason.
PART = 500


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Request of this gateway that waits.

    Attributes:
        want: the request.
        number: its place among those of its rank, by the time of its arrival.
        is_new: it has not been in the line, and the number is an estimate.
        is_resumed: true for a conversation that lost its worker.
        age_ms: time since it was made.
        lost: number of the lease that it lost; 0: none.
    """

    want: WorkerRequest
    number: int
    is_new: bool = False
    is_resumed: bool = False
    age_ms: int = 0
    lost: int = 0

    @property
    def rank(self) -> Rank:
        """Group of the request in the order of service."""
        return Rank.of(self.want.task, is_resumed=self.is_resumed)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Lease of this gateway.

    Attributes:
        want: the request.
        number: of the request.
        granted: number of the grant.
        lease: the lease.
        asked_age_ms: time since the request.
        age_ms: time since the grant.
    """

    want: WorkerRequest
    number: int
    granted: int
    lease: Lease
    asked_age_ms: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class GrantedRow:
    """New lease of this gateway, as the tables have it."""

    ticket: str
    lease: Lease
    number: int
    granted: int


class SeenRequest(NamedTuple):
    """Request of any gateway in the line; ``is_own``: of this one."""

    ticket: str
    is_own: bool
    session_id: str
    task: Task
    age_ms: int


class SeenLease(NamedTuple):
    """Lease of any gateway; ``is_own``: of this one."""

    ticket: str
    is_own: bool
    lease: Lease
    task: Task
    age_ms: int


async def lock(connection: Any, line: str) -> None:
    """Wait for the lock of a line, until the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", LOCK, line)


# Members.


async def beat(connection: Any, member: str) -> int | None:
    """Count a sign of life; return the time of the database, or None for a member that is not in the line."""
    found: int | None = await connection.fetchval(
        f"UPDATE pool_member SET beats = beats + 1 WHERE id = $1 RETURNING {NOW_US}", member
    )
    return found


async def join(connection: Any, line: str, member: str, *, restores: bool) -> tuple[int, bool]:
    """Add a member, which is not in the line; return the time of the database, and whether the line is held.

    Where it was in the line before (``restores``) and no member is in it now, the rows of all were lost.
    Nothing is granted then until this member opens the line: leases of others are not there yet.
    """
    row = await connection.fetchrow(
        "INSERT INTO pool_member (id, line, beats) SELECT $1, $2, CASE WHEN $3 AND NOT EXISTS"
        " (SELECT 1 FROM pool_member WHERE line = $2 AND beats >= 0) THEN -$4::bigint ELSE 0 END"
        f" RETURNING {NOW_US} AS now_us, beats < 0 AS is_held",
        member,
        line,
        restores,
        RESTORING,
    )
    return row["now_us"], row["is_held"]


async def open_line(connection: Any, member: str) -> None:
    """Let a line be granted again that a member holds."""
    await connection.execute(
        "UPDATE pool_member SET beats = beats + $2 WHERE id = $1 AND beats < 0", member, RESTORING
    )


async def leave(connection: Any, member: str) -> None:
    """Remove a member with its requests, leases and reports."""
    await connection.execute("DELETE FROM pool_member WHERE id = $1", member)


async def other_members(connection: Any, line: str, member: str) -> dict[str, int]:
    """Return the signs of life of the other members of a line."""
    rows = await connection.fetch(
        "SELECT id, beats FROM pool_member WHERE line = $1 AND id <> $2", line, member
    )
    return {row["id"]: row["beats"] for row in rows}


async def expire(connection: Any, members: Mapping[str, int]) -> None:
    """Remove members that have given no further sign of life."""
    await connection.execute(
        "DELETE FROM pool_member m USING unnest($1::text[], $2::bigint[]) AS gone(id, beats)"
        " WHERE m.id = gone.id AND m.beats = gone.beats",
        list(members),
        list(members.values()),
    )


# Own rows.


async def drop(connection: Any, member: str, tickets: Collection[str]) -> None:
    """Delete the requests and leases of conversations that are over."""
    await connection.execute(
        "WITH withdrawn AS (DELETE FROM pool_request WHERE member = $1 AND ticket = ANY($2::text[]))"
        " DELETE FROM pool_lease WHERE member = $1 AND ticket = ANY($2::text[])",
        member,
        list(tickets),
    )


async def put_requests(connection: Any, line: str, member: str, rows: Sequence[RequestRow]) -> dict[str, int]:
    """Put requests into the line, in their order; return the numbers of those that are there now."""
    await connection.execute(
        "DELETE FROM pool_lease l USING unnest($1::text[], $2::bigint[]) AS lost(ticket, granted)"
        " WHERE l.ticket = lost.ticket AND l.granted <= lost.granted",
        [row.want.ticket_id for row in rows],
        [row.lost for row in rows],
    )
    numbers = await _numbers(connection, line, rows)
    wants = [row.want for row in rows]
    placed = await connection.fetch(
        "INSERT INTO pool_request (ticket, member, line, number, session_id, task, epoch, kv_bytes,"
        " asked_us, rank, handle_worker, handle_incarnation)"
        f" SELECT ticket, $1, $2, number, session_id, task, epoch, kv_bytes, {NOW_US} - age_ms * 1000,"
        " rank, handle_worker, handle_incarnation"
        " FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],"
        " $9::bigint[], $10::int[], $11::text[], $12::text[])"
        " AS new(ticket, number, session_id, task, epoch, kv_bytes, age_ms, rank, handle_worker,"
        " handle_incarnation)"
        " WHERE NOT EXISTS (SELECT 1 FROM pool_lease l WHERE l.ticket = new.ticket)"
        " ON CONFLICT (ticket) DO NOTHING RETURNING ticket, number",
        member,
        line,
        [want.ticket_id for want in wants],
        numbers,
        [want.session_id for want in wants],
        [want.task.value for want in wants],
        [want.epoch for want in wants],
        [want.kv_bytes for want in wants],
        [row.age_ms for row in rows],
        [row.rank.value for row in rows],
        [_of_handle(want.handle, "worker") for want in wants],
        [_of_handle(want.handle, "incarnation") for want in wants],
    )
    return {row["ticket"]: row["number"] for row in placed}


async def _numbers(connection: Any, line: str, rows: Sequence[RequestRow]) -> list[int]:
    """Return the numbers of requests; those that have none yet are in the order of the rows."""
    found = await connection.fetch(
        "SELECT rank, (SELECT max(number) FROM pool_request r WHERE r.line = $1 AND r.rank = each.rank)"
        " AS newest FROM unnest($2::int[]) AS each(rank)",
        line,
        [rank.value for rank in Rank],
    )
    newest = {row["rank"]: row["newest"] or 0 for row in found}
    last, numbers = 0, []
    for row in rows:
        number = row.number
        if row.is_new:
            last = number = max(number, newest[row.rank] - LATE_US, last + 1)
        numbers.append(number)
    return numbers


def _of_handle(handle: CacheHandle | None, field: str) -> str | None:
    return None if handle is None else str(getattr(handle, field))


async def put_leases(connection: Any, line: str, member: str, rows: Sequence[LeaseRow]) -> None:
    """Put leases that the tables have lost back; those that are there stay."""
    await connection.execute(
        "INSERT INTO pool_lease (ticket, member, line, number, session_id, task, epoch, kv_bytes, asked_us,"
        " worker, incarnation, granted, granted_us)"
        f" SELECT ticket, $1, $2, number, session_id, task, epoch, kv_bytes, {NOW_US} - asked_age_ms * 1000,"
        f" worker, incarnation, granted, {NOW_US} - age_ms * 1000"
        " FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],"
        " $9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::bigint[])"
        " AS kept(ticket, number, session_id, task, epoch, kv_bytes, asked_age_ms, worker, incarnation,"
        " granted, age_ms) ON CONFLICT (ticket) DO NOTHING",
        member,
        line,
        [row.want.ticket_id for row in rows],
        [row.number for row in rows],
        [row.want.session_id for row in rows],
        [row.want.task.value for row in rows],
        [row.want.epoch for row in rows],
        [row.want.kv_bytes for row in rows],
        [row.asked_age_ms for row in rows],
        [row.lease.worker for row in rows],
        [row.lease.incarnation for row in rows],
        [row.granted for row in rows],
        [row.age_ms for row in rows],
    )


async def put_reports(connection: Any, line: str, member: str, offers: Sequence[WorkerCapacity]) -> None:
    """Report workers that this gateway reaches and that take conversations."""
    await connection.execute(
        "INSERT INTO pool_report (member, worker, line, incarnation, slots, kv_bytes)"
        " SELECT $1, worker, $2, incarnation, slots, kv_bytes"
        " FROM unnest($3::text[], $4::text[], $5::int[], $6::bigint[])"
        " AS new(worker, incarnation, slots, kv_bytes)"
        " ON CONFLICT (member, worker) DO UPDATE SET incarnation = excluded.incarnation,"
        " slots = excluded.slots, kv_bytes = excluded.kv_bytes",
        member,
        line,
        [offer.worker for offer in offers],
        [offer.incarnation for offer in offers],
        [offer.slots for offer in offers],
        [offer.kv_bytes for offer in offers],
    )


async def drop_reports(connection: Any, member: str, workers: Collection[str]) -> None:
    """Delete the reports of workers that this gateway does not reach, or that take none."""
    await connection.execute(
        "DELETE FROM pool_report WHERE member = $1 AND worker = ANY($2::text[])", member, list(workers)
    )


async def put_refusals(connection: Any, line: str, tickets: Mapping[str, RefusalReason]) -> None:
    """Remove requests of other gateways from the line, which notify their callers."""
    rows = await connection.fetch(
        "UPDATE pool_request r SET refused = new.reason"
        " FROM unnest($2::text[], $3::text[]) AS new(ticket, reason)"
        " WHERE r.line = $1 AND r.ticket = new.ticket AND r.refused IS NULL RETURNING r.member",
        line,
        list(tickets),
        [reason.value for reason in tickets.values()],
    )
    await notify(connection, {row["member"] for row in rows})


# Grants.


async def grant(connection: Any, line: str) -> set[str]:
    """Give free slots to the first requests of the line; return the members that got one.

    Nothing is given while a member holds the line.
    """
    if await connection.fetchval(
        "SELECT EXISTS (SELECT 1 FROM pool_member WHERE line = $1 AND beats < 0)", line
    ):
        return set()
    rows = await connection.fetch(
        "SELECT r.member, r.worker, r.incarnation, r.slots, r.kv_bytes, coalesce(t.taken, 0) AS taken,"
        " coalesce(t.used, 0)::bigint AS used_bytes FROM pool_report r LEFT JOIN"
        " (SELECT worker, incarnation, count(*) AS taken, sum(kv_bytes) AS used FROM pool_lease"
        " WHERE line = $1 GROUP BY worker, incarnation) t USING (worker, incarnation)"
        " WHERE r.line = $1 AND coalesce(t.taken, 0) < r.slots",
        line,
    )
    slots = SharedSlots(ReportedSlots(**row) for row in rows)
    members: set[str] = set()
    while open_members := slots.members:
        # One that no worker of its gateway could hold, even an empty one, does not block the others.
        heads = await connection.fetch(
            "SELECT ticket, member, r.kv_bytes, handle_worker, handle_incarnation FROM pool_request r JOIN"
            " (SELECT member, bool_or(kv_bytes IS NULL) AS all_fit, max(kv_bytes) AS most FROM pool_report"
            " WHERE line = $1 GROUP BY member) f USING (member)"
            " WHERE line = $1 AND refused IS NULL AND member = ANY($2::text[])"
            " AND (f.all_fit OR r.kv_bytes <= f.most) ORDER BY rank, number, ticket LIMIT $3",
            line,
            open_members,
            HEADS,
        )
        chosen, is_blocked = _chosen(slots, heads)
        await _insert_leases(connection, chosen)
        members |= {member for member, _, _ in chosen.values()}
        if is_blocked or not chosen:
            break
    return members


def _chosen(slots: SharedSlots, heads: Sequence[Any]) -> tuple[dict[str, tuple[str, str, str]], bool]:
    """Return member, worker and process for the tickets that get one, and whether one waits for memory."""
    chosen: dict[str, tuple[str, str, str]] = {}
    for head in heads:
        member, kv_bytes = head["member"], head["kv_bytes"]
        name = head["handle_worker"]
        worker = slots.choose(member, kv_bytes, None if name is None else (name, head["handle_incarnation"]))
        if worker is not None:
            slots.take(worker, kv_bytes)
            chosen[head["ticket"]] = member, worker.worker, worker.incarnation
        elif slots.is_open(member):
            # It is not overtaken by smaller ones.
            return chosen, True
    return chosen, False


async def _insert_leases(connection: Any, chosen: Mapping[str, tuple[str, str, str]]) -> None:
    if not chosen:
        return
    tickets = list(chosen)
    await connection.execute(
        "INSERT INTO pool_lease (ticket, member, line, number, session_id, task, epoch, kv_bytes, asked_us,"
        " worker, incarnation, granted, granted_us)"
        " SELECT r.ticket, r.member, r.line, r.number, r.session_id, r.task, r.epoch, r.kv_bytes, r.asked_us,"
        f" g.worker, g.incarnation, nextval('pool_grant'), {NOW_US}"
        " FROM pool_request r JOIN unnest($1::text[], $2::text[], $3::text[])"
        " AS g(ticket, worker, incarnation) USING (ticket)",
        tickets,
        [worker for _, worker, _ in chosen.values()],
        [incarnation for _, _, incarnation in chosen.values()],
    )
    await connection.execute("DELETE FROM pool_request WHERE ticket = ANY($1::text[])", tickets)


async def overflow(connection: Any, line: str, tickets: Collection[str], most: int) -> list[str]:
    """Remove the last of these requests while more than ``most`` wait; return the removed ones."""
    waiting = await connection.fetchval(
        "SELECT count(*) FROM pool_request WHERE line = $1 AND refused IS NULL", line
    )
    if waiting <= most:
        return []
    rows = await connection.fetch(
        "DELETE FROM pool_request WHERE ticket IN (SELECT ticket FROM pool_request"
        " WHERE ticket = ANY($1::text[]) ORDER BY rank DESC, number DESC, ticket DESC LIMIT $2)"
        " RETURNING ticket",
        list(tickets),
        waiting - most,
    )
    return [row["ticket"] for row in rows]


# Notifications.


async def notify(connection: Any, words: Collection[str]) -> None:
    """Notify gateways when the transaction commits: by their ids of news, by a line's name of new places."""
    if words:
        await connection.execute(
            "SELECT pg_notify($1, word) FROM unnest($2::text[]) AS each(word)", CHANNEL, sorted(words)
        )


# Reads.


async def granted_rows(connection: Any, member: str, after: int) -> list[GrantedRow]:
    """Return the leases of a member that were granted after the one with the number ``after``."""
    rows = await connection.fetch(
        "SELECT ticket, session_id, worker, incarnation, epoch, number, granted FROM pool_lease"
        " WHERE member = $1 AND granted > $2 ORDER BY granted",
        member,
        after,
    )
    return [
        GrantedRow(
            row["ticket"],
            Lease(row["session_id"], row["worker"], row["incarnation"], row["epoch"]),
            row["number"],
            row["granted"],
        )
        for row in rows
    ]


async def take_refusals(connection: Any, member: str) -> dict[str, RefusalReason]:
    """Delete the requests of a member that an operator removed; return the reasons."""
    rows = await connection.fetch(
        "DELETE FROM pool_request WHERE member = $1 AND refused IS NOT NULL RETURNING ticket, refused", member
    )
    return {row["ticket"]: RefusalReason(row["refused"]) for row in rows}


async def seen_requests(connection: Any, line: str, member: str) -> list[SeenRequest]:
    """Return the line in order."""
    seen: list[SeenRequest] = []
    query = (
        f"SELECT ticket, member = $2 AS is_own, session_id, task, ({NOW_US} - asked_us) / 1000 AS age_ms"
        " FROM pool_request WHERE line = $1 AND refused IS NULL ORDER BY rank, number, ticket"
    )
    # In parts, so that the loop runs in between.
    async for row in connection.cursor(query, line, member, prefetch=PART):
        ticket, is_own, session_id, task, age_ms = row
        seen.append(SeenRequest(ticket, is_own, session_id, Task(task), age_ms))
    return seen


async def seen_leases(connection: Any, line: str, member: str) -> list[SeenLease]:
    """Return the leases of all gateways."""
    rows = await connection.fetch(
        "SELECT ticket, member = $2 AS is_own, session_id, worker, incarnation, epoch, task,"
        f" ({NOW_US} - granted_us) / 1000 AS age_ms FROM pool_lease WHERE line = $1",
        line,
        member,
    )
    return [
        SeenLease(
            row["ticket"],
            row["is_own"],
            Lease(row["session_id"], row["worker"], row["incarnation"], row["epoch"]),
            Task(row["task"]),
            row["age_ms"],
        )
        for row in rows
    ]
