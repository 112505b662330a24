"""Limits of tenants: a tenant is the account of one or more keys, in all processes of a deployment.

Inputs: calls that begin and end, tokens and costs as they are used, and the use of all processes, which the
session store holds (``session_store.tenant_use``). Outputs: refusals (``TenantLimitError``), the state of
each tenant for the operator, and an event for calls whose tenant has used up its limits.

A call is checked before it is accepted, by a read of the store, and counted when its task begins, in one
transaction with the check: the number of running calls is exact over all processes. Minutes, tokens and costs
are reported every ``REPORT_S``, so calls may exceed these limits by what is used within that time; a report
whose answer was lost is sent again as it was, and counted once. Turns are checked against the newest totals
in memory. Ends of calls are reported ``TOGETHER_S`` after the first one. What is stored is measured every
``MEASURE_S``. Owns one task, from ``start`` to ``close``.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

from loguru import logger

from parley.core.errors import StoreError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.auth.tenant_settings import TenantLimits, TenantsSettings
from parley.serving.gateway.limits import RETRY_S, ShareError
from parley.session_store.store import SessionStore
from parley.session_store.tenant_use import (
    NO_USE,
    TenantUse,
    UseAmounts,
    UseReport,
    begin_call,
    end_calls,
    period_us,
    read_stored,
    read_use,
    report_use,
)

OTHERS = "others"
REPORT_S = 5.0
# Time in which the ends of calls are gathered into one transaction.
TOGETHER_S = 0.2
# Time after its last report at which the calls of a process that died are no longer counted.
LEASE_S = 30.0
MEASURE_S = 60.0
# A tenant without a name of its own has the beginning of its key's digest.
SHOWN_CHARS = 12
# Time after which stored sessions may have been deleted.
STORAGE_RETRY_S = 3_600.0
NANO = Decimal(1_000_000_000)
US_PER_S, MS_PER_MINUTE = 1_000_000, 60_000


class TenantLimitError(ShareError):
    """A tenant has used up a limit.

    Attributes:
        name: of the limit, as in ``TenantLimits``.
    """

    def __init__(self, tenant: str, name: str, limit: float, *, retry_s: float, frees: str) -> None:
        super().__init__(
            f"tenant {tenant} has used up its limit {name} ({limit:.15g}); {frees}",
            limit=int(limit),
            retry_s=retry_s,
        )
        self.name = name


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored sessions of a tenant.

    Attributes:
        sessions: their number.
        size: bytes of their events.
    """

    sessions: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class LimitUse:
    """Use of one limit.

    Attributes:
        name: of the limit, as in ``TenantLimits``.
        used: in its unit.
        limit: the most; None: there is none.
        period: in which it counts; empty for one that counts what exists.
    """

    name: str
    used: float
    limit: float | None
    period: str = ""

    @property
    def is_used_up(self) -> bool:
        """True when nothing more is allowed."""
        return self.limit is not None and self.used >= self.limit


@dataclass(slots=True)
class _Tenant:
    """State of one tenant in this process.

    Attributes:
        name: of the tenant.
        limits: of the tenant.
        use: over all processes, as last read, with the moment of that.
        pending: use of this process that is not reported.
        stored: as last measured.
        used_up: set while running calls are to end.
    """

    name: str
    limits: TenantLimits
    use: TenantUse = TenantUse()
    read_us: int = 0
    pending: UseAmounts = NO_USE
    stored: Stored = Stored()
    used_up: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Running:
    """Running call of this process.

    Attributes:
        tenant: of the call.
        talks: returns whether it has its line; a caller who waits uses no minutes.
        since_s: monotonic time up to which it was counted.
    """

    tenant: _Tenant
    talks: Callable[[], bool]
    since_s: float


class Tenants:
    """Tenants of one process.

    Args:
        settings: of the deployment; None: there are no tenants, and nothing is counted.
        wall_us: microseconds since the Unix epoch.
        clock_s: monotonic.
        report_s: time between two reports.
    """

    def __init__(
        self,
        settings: TenantsSettings | None = None,
        *,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        clock_s: Callable[[], float] = time.monotonic,
        report_s: float = REPORT_S,
    ) -> None:
        self.settings = settings or TenantsSettings()
        self._wall_us, self._clock_s, self._report_s = wall_us, clock_s, report_s
        self._store: SessionStore | None = None
        self._applications: dict[str, str] = {}
        self._known: dict[str, _Tenant] = {}
        if settings is not None and settings.others is not None:
            self._known[OTHERS] = _Tenant(OTHERS, settings.others)
        for name, tenant in self.settings.named.items():
            self._known[name] = _Tenant(name, tenant.limits)
        self._running: dict[str, _Running] = {}
        self._ended: set[str] = set()
        self._has_ended = asyncio.Event()
        self._id = uuid.uuid4().hex
        self._reporting = asyncio.Lock()
        self._unanswered: UseReport | None = None
        self._reports = 0
        self._task: asyncio.Task[None] | None = None
        self._measured_s: float | None = None
        self.refusals: dict[tuple[str, str], int] = {}

    def start(self, store: SessionStore, applications: Mapping[str, str]) -> None:
        """Begin to count; the owner calls ``close``.

        Args:
            store: open.
            applications: name of the tenant of each application with a key; empty for one without a name.
        """
        self._store = store
        for application, name in applications.items():
            each = self.settings.each
            name = name or (application[:SHOWN_CHARS] if each is not None else "")
            if name:
                self._applications[application] = name
                self._known.setdefault(name, _Tenant(name, each or TenantLimits()))
        if self._known:
            self._task = asyncio.create_task(self._report_always(), name="gateway.tenants")

    async def close(self) -> None:
        """Report what is left, and end the task."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            await self.report()
        except StoreError as error:
            logger.warning(f"the use of tenants since the last report is lost: {error}")

    def name_of(self, identity: ClientIdentity) -> str | None:
        """Return the tenant of a client; None for one without limits, such as the operator."""
        if identity.is_operator:
            return None
        name = self._applications.get(identity.application) if identity.owner else OTHERS
        return name if name in self._known else None

    # Admission.

    async def check_call(self, identity: ClientIdentity, *, is_counted: bool = False) -> None:
        """Check that a client's tenant may begin another call, by the use of all processes.

        Args:
            identity: of the client.
            is_counted: as for ``call``.

        Raises:
            TenantLimitError: it may not.
            StoreUnavailableError: the store does not answer.
        """
        tenant = self._tenant(identity)
        if tenant is None or self._store is None:
            return
        now_us = self._wall_us()
        use = await self._store.query(partial(read_use, tenants=[tenant.name], now_us=now_us))
        tenant.use, tenant.read_us = use[tenant.name], now_us
        limits = self._limits(tenant)
        self._require(tenant, _again(limits) if is_counted else limits)

    def check_turn(self, identity: ClientIdentity) -> None:
        """Check that a client's tenant may have another answer of a model, by the newest totals.

        Raises:
            TenantLimitError: it may not.
        """
        tenant = self._tenant(identity)
        if tenant is not None:
            self._require(tenant, self._of_running(tenant))

    def check_session(self, identity: ClientIdentity) -> None:
        """Check that a client's tenant may store another session, by the newest measurement.

        Raises:
            TenantLimitError: it may not.
        """
        tenant = self._tenant(identity)
        if tenant is not None:
            self._require(tenant, self._of_storage(tenant))

    # Use.

    @asynccontextmanager
    async def call(
        self,
        identity: ClientIdentity,
        talks: Callable[[], bool],
        *,
        goes_on: bool = False,
        is_counted: bool = False,
    ) -> AsyncIterator[None]:
        """Count a call while the context lasts.

        Args:
            identity: of its client.
            talks: returns whether it has its line.
            goes_on: it has begun before, as a phone network vouches; it is neither refused nor counted again.
            is_counted: it has begun before, as its client says; the limits of calls in an hour and a day do
                not refuse it, and it is not counted again.

        Raises:
            TenantLimitError: its tenant may not have it; others have begun meanwhile.
            StoreUnavailableError: the store does not answer.
        """
        tenant = self._tenant(identity)
        if tenant is None or self._store is None:
            yield
            return
        call_id = uuid.uuid4().hex
        await self._begin(tenant, call_id, goes_on=goes_on, is_counted=is_counted)
        running = self._running[call_id] = _Running(tenant, talks, self._clock_s())
        try:
            yield
        finally:
            self._count_time(running)
            del self._running[call_id]
            self._ended.add(call_id)
            self._has_ended.set()

    def spend(self, identity: ClientIdentity, *, tokens: int = 0, cost: Decimal = Decimal(0)) -> None:
        """Count tokens and cost of a client."""
        tenant = self._tenant(identity)
        if tenant is not None and self._store is not None:
            tenant.pending += UseAmounts(tokens=tokens, cost_nano=round(cost * NANO))

    def used_up(self, identity: ClientIdentity) -> asyncio.Event | None:
        """Return the event that is set while the calls of a client's tenant are to end; None without one."""
        tenant = self._tenant(identity)
        return None if tenant is None else tenant.used_up

    async def report(self) -> None:
        """Report the use of this process to the store, and read that of all.

        Raises:
            StoreError: the store does not take it, or does not say that it did; it is reported again.
        """
        assert self._store is not None
        async with self._reporting:
            if self._unanswered is not None:
                await self._send(self._unanswered)
            await self._end_calls()
            for running in self._running.values():
                self._count_time(running)
            used = {name: each.pending for name, each in self._known.items() if each.pending != NO_USE}
            if used or self._running:
                self._reports += 1
                await self._send(UseReport(self._id, self._reports, used))
        now_us = self._wall_us()
        use = await self._store.query(partial(read_use, tenants=list(self._known), now_us=now_us))
        for name, read in use.items():
            self._known[name].use, self._known[name].read_us = read, now_us
        self._end_used_up()

    async def _send(self, report: UseReport) -> None:
        """Send a report, which is counted once however often it is sent."""
        assert self._store is not None
        self._unanswered = report
        now_us = self._wall_us()
        work = partial(
            report_use,
            running={call_id: each.tenant.name for call_id, each in self._running.items()},
            report=report,
            now_us=now_us,
            until_us=now_us + round(LEASE_S * US_PER_S),
        )
        await self._store.transact(work)
        self._unanswered = None
        for name, amounts in report.used.items():
            tenant = self._known[name]
            tenant.pending = _less(tenant.pending, amounts)

    # State.

    def names(self) -> list[str]:
        """Return the names of the tenants."""
        return list(self._known)

    def limits_of(self, name: str) -> list[LimitUse]:
        """Return the use of every limit of a tenant, as last read."""
        return list(self._limits(self._known[name]))

    def _tenant(self, identity: ClientIdentity) -> _Tenant | None:
        name = self.name_of(identity)
        return None if name is None else self._known[name]

    async def _begin(self, tenant: _Tenant, call_id: str, *, goes_on: bool, is_counted: bool) -> None:
        assert self._store is not None
        now_us = self._wall_us()

        def may_begin(use: TenantUse) -> bool:
            limits = _limits_of_use(tenant.limits, use, tenant.pending)
            return goes_on or not any(each.is_used_up for each in (_again(limits) if is_counted else limits))

        work = partial(
            begin_call,
            tenant=tenant.name,
            call_id=call_id,
            now_us=now_us,
            until_us=now_us + round(LEASE_S * US_PER_S),
            may_begin=may_begin,
            counts=not (goes_on or is_counted),
        )
        try:
            refused = await self._store.transact(work)
        except BaseException:
            # It may be stored all the same.
            self._ended.add(call_id)
            self._has_ended.set()
            raise
        if refused is not None:
            tenant.use, tenant.read_us = refused, now_us
            limits = self._limits(tenant)
            self._require(tenant, _again(limits) if is_counted else limits)

    def _limits(self, tenant: _Tenant) -> Iterable[LimitUse]:
        yield from _limits_of_use(tenant.limits, self._use(tenant), tenant.pending)
        yield from self._of_storage(tenant)

    def _of_running(self, tenant: _Tenant) -> Iterable[LimitUse]:
        """Return the limits that a running call may pass."""
        return [
            each
            for each in _limits_of_use(tenant.limits, self._use(tenant), tenant.pending)
            if each.name.startswith(("minutes", "tokens", "cost"))
        ]

    def _of_storage(self, tenant: _Tenant) -> Iterable[LimitUse]:
        limits, stored = tenant.limits, tenant.stored
        yield LimitUse("sessions", stored.sessions, limits.sessions)
        yield LimitUse("storage_mb", round(stored.size / 1e6, 6), limits.storage_mb)

    def _use(self, tenant: _Tenant) -> TenantUse:
        """Return the use as last read, without periods that have ended since."""
        now_us = self._wall_us()
        present = {
            period: amounts
            for period, amounts in tenant.use.periods.items()
            if period_us(period, tenant.read_us) == period_us(period, now_us)
        }
        return TenantUse(tenant.use.running, present)

    def _require(self, tenant: _Tenant, limits: Iterable[LimitUse]) -> None:
        used_up = next((each for each in limits if each.is_used_up), None)
        if used_up is None:
            return
        key = tenant.name, used_up.name
        self.refusals[key] = self.refusals.get(key, 0) + 1
        raise _error(tenant.name, used_up, self._wall_us())

    def _count_time(self, running: _Running) -> None:
        now_s = self._clock_s()
        if running.talks():
            running.tenant.pending += UseAmounts(call_ms=round((now_s - running.since_s) * 1_000))
        running.since_s = now_s

    def _end_used_up(self) -> None:
        for tenant in self._known.values():
            used_up = next((each for each in self._of_running(tenant) if each.is_used_up), None)
            if used_up is None:
                tenant.used_up.clear()
            elif self.settings.at_limit == "end" and not tenant.used_up.is_set():
                logger.info(f"tenant {tenant.name}: {used_up.name} is used up, its calls end")
                tenant.used_up.set()

    async def _report_always(self) -> None:
        while True:
            try:
                await self._measure()
                await self.report()
            except StoreError as error:
                # The store is away: the next report has everything.
                logger.warning(f"postponing the report of tenants' use: {error}")
            reported_s = self._clock_s()
            with suppress(TimeoutError):
                while (left_s := reported_s + self._report_s - self._clock_s()) > 0:
                    await self._end_calls_within(left_s)

    async def _end_calls_within(self, within_s: float) -> None:
        """Wait for ends of calls, and report them: another process may begin one at once.

        Raises:
            TimeoutError: none has ended.
        """
        async with asyncio.timeout(within_s):
            await self._has_ended.wait()
        # Calls that end at about the same time are one transaction.
        await asyncio.sleep(TOGETHER_S)
        self._has_ended.clear()
        try:
            async with self._reporting:
                await self._end_calls()
        except StoreError as error:
            logger.warning(f"postponing the report of calls that have ended: {error}")

    async def _end_calls(self) -> None:
        """Report the calls that have ended."""
        assert self._store is not None
        if ended := set(self._ended):
            await self._store.transact(partial(end_calls, ended=ended))
            self._ended -= ended

    async def _measure(self) -> None:
        assert self._store is not None
        now_s = self._clock_s()
        is_due = self._measured_s is None or now_s - self._measured_s >= MEASURE_S
        if not self._applications or not is_due:
            return
        self._measured_s = now_s
        work = partial(read_stored, applications=list(self._applications))
        found = await self._store.query(work, is_long=True)
        totals: dict[str, tuple[int, int]] = {}
        for application, (sessions, size) in found.items():
            before = totals.get(self._applications[application], (0, 0))
            totals[self._applications[application]] = before[0] + sessions, before[1] + size
        for name, tenant in self._known.items():
            tenant.stored = Stored(*totals.get(name, (0, 0)))


def _limits_of_use(limits: TenantLimits, use: TenantUse, pending: UseAmounts) -> Iterable[LimitUse]:
    hour, day, month = (use.of(period) + pending for period in ("hour", "day", "month"))
    yield LimitUse("concurrent_calls", use.running, limits.concurrent_calls)
    yield LimitUse("calls_per_hour", hour.calls, limits.calls_per_hour, "hour")
    yield LimitUse("calls_per_day", day.calls, limits.calls_per_day, "day")
    for period, amounts in (("day", day), ("month", month)):
        minutes, cost = amounts.call_ms / MS_PER_MINUTE, float(amounts.cost_nano / NANO)
        for unit, used in (("minutes", minutes), ("tokens", amounts.tokens), ("cost", cost)):
            name = f"{unit}_per_{period}"
            yield LimitUse(name, used, getattr(limits, name), period)


def _again(limits: Iterable[LimitUse]) -> Iterable[LimitUse]:
    """Yield the limits of a call that is counted already; its lost connection may still count as running."""
    for each in limits:
        if each.name == "concurrent_calls":
            yield replace(each, used=each.used - 1)
        elif not each.name.startswith("calls_per"):
            yield each


def _error(tenant: str, used_up: LimitUse, now_us: int) -> TenantLimitError:
    assert used_up.limit is not None
    retry_s, frees = RETRY_S, "it frees when one of them ends"
    if used_up.period:
        end_us = period_us(used_up.period, now_us)[1]
        retry_s = max(1.0, (end_us - now_us) / US_PER_S)
        at = datetime.fromtimestamp(end_us // US_PER_S, UTC)
        frees = f"it frees at {at:%Y-%m-%dT%H:%M:%SZ}"
    elif used_up.name in ("sessions", "storage_mb"):
        retry_s, frees = STORAGE_RETRY_S, "it frees when sessions are deleted"
    return TenantLimitError(tenant, used_up.name, used_up.limit, retry_s=retry_s, frees=frees)


def _less(amounts: UseAmounts, reported: UseAmounts) -> UseAmounts:
    return UseAmounts(
        amounts.calls - reported.calls,
        amounts.call_ms - reported.call_ms,
        amounts.tokens - reported.tokens,
        amounts.cost_nano - reported.cost_nano,
    )
