"""Transactions that count the use of tenants, for all processes of a deployment.

Use is counted by hour, day and month of UTC, one row each. A running call is a row that its process renews;
the row of a process that died expires. The row of the month is written first, so that two processes which
begin calls of one tenant at the same time wait for each other, and the limit of running calls is exact. The
reports of a process are numbered: one that comes twice, because its answer was lost, is counted once.

Plain functions over a connection, the same for both databases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.session_store.schema import (
    session_table,
    tenant_call_table,
    tenant_report_table,
    tenant_use_table,
)

_call, _use, _report = tenant_call_table.c, tenant_use_table.c, tenant_report_table.c
US_PER_S = 1_000_000
# The month comes first: its row is the lock of a tenant.
PERIODS = ("month", "day", "hour")
# Days for which the rows of a period are kept.
KEPT_DAYS = {"hour": 2, "day": 70}
# Time after its last report at which a process has ended.
REPORTER_DAYS = 2
# Characters of an owner that name the key of its application (``core.grants``).
APPLICATION_CHARS = 32


@dataclass(frozen=True, slots=True)
class UseAmounts:
    """Use of a tenant in a period.

    Attributes:
        calls: that began.
        call_ms: duration of calls.
        tokens: of language models, read and written.
        cost_nano: known cost, in billionths of the currency of the deployment's prices.
    """

    calls: int = 0
    call_ms: int = 0
    tokens: int = 0
    cost_nano: int = 0

    def __add__(self, other: "UseAmounts") -> "UseAmounts":
        return UseAmounts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


NO_USE = UseAmounts()


@dataclass(frozen=True, slots=True)
class UseReport:
    """Use that a process reports.

    Attributes:
        reporter: id of the process.
        number: of the report; that of a later one is greater.
        used: by each tenant since the report before.
    """

    reporter: str
    number: int
    used: Mapping[str, UseAmounts]


@dataclass(frozen=True, slots=True)
class TenantUse:
    """Use of a tenant over all processes.

    Attributes:
        running: number of running calls.
        periods: use in the present hour, day and month, by name.
    """

    running: int = 0
    periods: Mapping[str, UseAmounts] = field(default_factory=dict)

    def of(self, period: str) -> UseAmounts:
        """Return the use in a present period."""
        return self.periods.get(period, NO_USE)


def period_us(period: str, now_us: int) -> tuple[int, int]:
    """Return the begin and the end of the present period of UTC, in microseconds since the Unix epoch."""
    now = datetime.fromtimestamp(now_us // US_PER_S, UTC)
    start = now.replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        end = start + timedelta(hours=1)
    else:
        start = start.replace(hour=0)
        end = start + timedelta(days=1)
        if period == "month":
            start = start.replace(day=1)
            end = (start + timedelta(days=32)).replace(day=1)
    return round(start.timestamp()) * US_PER_S, round(end.timestamp()) * US_PER_S


def read_use(connection: sa.Connection, *, tenants: Sequence[str], now_us: int) -> dict[str, TenantUse]:
    """Return the present use of tenants."""
    counted = connection.execute(
        sa.select(_call.tenant, sa.func.count().label("calls"))
        .where(_call.tenant.in_(tenants), _call.until_us > now_us)
        .group_by(_call.tenant)
    )
    running = {row.tenant: int(row.calls) for row in counted}
    present = [
        sa.and_(_use.period == period, _use.start_us == period_us(period, now_us)[0]) for period in PERIODS
    ]
    periods: dict[str, dict[str, UseAmounts]] = {}
    for row in connection.execute(
        sa.select(tenant_use_table).where(_use.tenant.in_(tenants), sa.or_(*present))
    ):
        amounts = UseAmounts(row.calls, row.call_ms, row.tokens, row.cost_nano)
        periods.setdefault(row.tenant, {})[row.period] = amounts
    return {name: TenantUse(running.get(name, 0), periods.get(name, {})) for name in tenants}


def begin_call(
    connection: sa.Connection,
    *,
    tenant: str,
    call_id: str,
    now_us: int,
    until_us: int,
    may_begin: Callable[[TenantUse], bool],
    counts: bool = True,
) -> TenantUse | None:
    """Count a call that begins; return None, or the use with which it may not.

    Args:
        connection: of a transaction.
        tenant: of the call.
        call_id: unique to it.
        now_us: present time.
        until_us: time at which the call is over, unless its process renews it.
        may_begin: returns whether there may be another call.
        counts: False for a call that has begun before.
    """
    known = connection.scalar(sa.select(_call.id).where(_call.id == call_id))
    if known is not None:
        # The answer to an earlier attempt was lost.
        return None
    # First, so that only one transaction of a tenant comes further at a time.
    _add(connection, tenant, NO_USE, now_us)
    connection.execute(sa.delete(tenant_call_table).where(_call.until_us <= now_us, _call.tenant == tenant))
    use = read_use(connection, tenants=[tenant], now_us=now_us)[tenant]
    if not may_begin(use):
        return use
    connection.execute(sa.insert(tenant_call_table).values(id=call_id, tenant=tenant, until_us=until_us))
    _add(connection, tenant, UseAmounts(calls=int(counts)), now_us)
    for period, days in KEPT_DAYS.items():
        connection.execute(
            sa.delete(tenant_use_table).where(
                _use.tenant == tenant,
                _use.period == period,
                _use.start_us < now_us - days * 86_400 * US_PER_S,
            )
        )
    return None


def end_calls(connection: sa.Connection, *, ended: Collection[str]) -> None:
    """Delete the rows of calls that have ended."""
    connection.execute(sa.delete(tenant_call_table).where(_call.id.in_(sorted(ended))))


def report_use(
    connection: sa.Connection,
    *,
    running: Mapping[str, str],
    report: UseReport,
    now_us: int,
    until_us: int,
) -> None:
    """Add the use of one process, unless this report of it is counted.

    Args:
        connection: of a transaction.
        running: tenants of its running calls, by id.
        report: of its use.
        now_us: present time.
        until_us: time at which the running calls are over, unless they are reported again.
    """
    if report.used and _is_new(connection, report, now_us):
        for tenant in sorted(report.used):
            _add(connection, tenant, report.used[tenant], now_us)
    for call_id in sorted(running):
        # A row may have expired while its process, or the store, was away.
        values = {"id": call_id, "tenant": running[call_id], "until_us": until_us}
        connection.execute(
            _insert(connection, tenant_call_table)
            .values(**values)
            .on_conflict_do_update(index_elements=["id"], set_={"until_us": until_us})
        )


def read_stored(connection: sa.Connection, *, applications: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the number of sessions of each application and their bytes; reads every row of ``session``."""
    application = sa.func.substr(session_table.c.owner, 1, APPLICATION_CHARS)
    rows = connection.execute(
        sa.select(application, sa.func.count(), sa.func.sum(session_table.c.bytes))
        .where(application.in_(applications))
        .group_by(application)
    )
    return {str(name): (int(count), int(size)) for name, count, size in rows}


def _is_new(connection: sa.Connection, report: UseReport, now_us: int) -> bool:
    """Note the number of a report; return whether it was not noted before."""
    values = {"number": report.number, "reported_us": now_us}
    noted = connection.execute(
        _insert(connection, tenant_report_table)
        .values(reporter=report.reporter, **values)
        .on_conflict_do_update(index_elements=["reporter"], set_=values, where=_report.number < report.number)
    )
    oldest_us = now_us - REPORTER_DAYS * 86_400 * US_PER_S
    connection.execute(sa.delete(tenant_report_table).where(_report.reported_us < oldest_us))
    return noted.rowcount == 1


def _add(connection: sa.Connection, tenant: str, amounts: UseAmounts, now_us: int) -> None:
    given = {each.name: getattr(amounts, each.name) for each in fields(amounts)}
    for period in PERIODS:
        connection.execute(
            _insert(connection, tenant_use_table)
            .values(tenant=tenant, period=period, start_us=period_us(period, now_us)[0], **given)
            .on_conflict_do_update(
                index_elements=["tenant", "period", "start_us"],
                set_={name: tenant_use_table.c[name] + amount for name, amount in given.items()},
            )
        )


def _insert(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
