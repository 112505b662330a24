"""``GET /metrics``: the metrics of this process in the text formats of Prometheus; for the operator.

The numbers of the queue, the pool and the store are read on the event loop, where they live; the memory of
devices is read, and the text written, in threads. One text is written at a time and serves all scrapes of
the next ``FRESH_S``, so that scrapers never cost more than one rendering a second. A scraper that does not
read holds its connection and nothing else: its answer is complete before it is sent.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Response

from parley.core.durations import DurationCounts
from parley.core.errors import PeerError
from parley.protocols.facts import from_facts
from parley.serving.gateway.admin.pool_view import PoolView
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.tenants import Tenants
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.pool.pool import Pool
from parley.session_store.store import SessionStore
from parley.telemetry import definitions
from parley.telemetry.definitions import Definition
from parley.telemetry.device_memory import DeviceMemory, DeviceMemoryReader
from parley.telemetry.metrics import MOST_VALUES, OTHER, ProcessReading, ServerMetrics

PATH = "/metrics"
FRESH_S = 1.0
OPEN_METRICS = "application/openmetrics-text"
# Of the header of a request; Prometheus sends 200 characters.
MOST_ACCEPT = 500
# Of one worker, whose report is not trusted.
MOST_DEVICES = 16
DEVICE = re.compile(r"cuda:\d{1,3}")


class MetricsPage:
    """The text of all metrics, renewed at most once in ``FRESH_S``.

    Args:
        metrics: of the process.
        calls: conversations of the process.
        pool: of workers, if there is one.
        store: of sessions, if there is one.
        tenants: with limits; None: there are none.
        recordings: of calls; None for none.
        devices: reads the memory of those that this process uses; the page closes it.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        calls: CallTasks,
        pool: Pool | None,
        store: SessionStore | None,
        tenants: Tenants | None = None,
        recordings: SessionRecordings | None = None,
        devices: DeviceMemoryReader | None = None,
    ) -> None:
        self._tenants, self._recordings = tenants, recordings
        self._metrics, self._calls, self._pool, self._store = metrics, calls, pool, store
        self._devices = devices or DeviceMemoryReader()
        self._lock = asyncio.Lock()
        self._written_s: float | None = None
        # By format: of Prometheus, or OpenMetrics.
        self._texts: dict[str, tuple[bytes, str]] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that a client prefers, and its content type."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if self._written_s is None or now_s - self._written_s >= FRESH_S:
                self._texts.clear()
                self._written_s = now_s
                devices = {"": await self._devices.read(), **self._of_workers()}
                self._metrics.read(self._reading(devices))
            kind = OPEN_METRICS if OPEN_METRICS in accept else ""
            if kind not in self._texts:
                self._texts[kind] = await asyncio.to_thread(self._metrics.render, kind)
            return self._texts[kind]

    def close(self) -> None:
        """End the thread that reads the memory of devices, if there is one."""
        self._devices.close()

    def _of_workers(self) -> dict[str, tuple[DeviceMemory, ...]]:
        """Return the memory of the devices of each worker that reports, a bounded number."""
        reporting = [] if self._pool is None else [each for each in self._pool.seen() if not each.is_silent]
        return {each.name: devices_of(each.facts) for each in reporting[:MOST_VALUES]}

    def _reading(self, devices: Mapping[str, Sequence[DeviceMemory]]) -> ProcessReading:
        calls, pool, store = self._calls, self._pool, self._store
        gauges: dict[Definition, float] = {
            definitions.LINES: calls.lines(),
            definitions.QUEUE_LENGTH: calls.waiting,
        }
        durations: dict[Definition, DurationCounts] = {}
        workers: dict[str, int] = {}
        if calls.queue is not None:
            durations[definitions.QUEUE_WAIT] = calls.queue.waits
        if pool is not None:
            workers = PoolView(pool).states()
            gauges[definitions.POOL_LEASES] = len(pool.running())
            gauges[definitions.POOL_WAITING] = pool.waiting
        if store is not None:
            durations[definitions.STORE_COMMIT] = store.commit_times
            gauges[definitions.STORE_AVAILABLE] = float(store.available)
        labelled = self._of_tenants() | _of_devices(devices)
        uploads = None if self._recordings is None else self._recordings.uploads
        if uploads is not None:
            gauges[definitions.UPLOADS_WAITING] = uploads.waiting
            labelled[definitions.UPLOADS] = {(): uploads.moved}
            labelled[definitions.UPLOAD_FAILURES] = {(): uploads.failures}
        return ProcessReading(gauges, workers, durations, labelled)

    def _of_tenants(self) -> dict[Definition, dict[tuple[str, ...], float]]:
        """Return the series of the first tenants of the deployment, a bounded number."""
        if self._tenants is None or not self._tenants.names():
            return {}
        names = self._tenants.names()[:MOST_VALUES]
        used: dict[tuple[str, ...], float] = {
            (name, each.name): each.used / each.limit if each.limit else 1.0
            for name in names
            for each in self._tenants.limits_of(name)
            if each.limit is not None
        }
        refusals: dict[tuple[str, ...], float] = {}
        for (name, limit), count in self._tenants.refusals.items():
            labels = name if name in names else OTHER, limit
            refusals[labels] = refusals.get(labels, 0) + count
        return {definitions.TENANT_USED: used, definitions.TENANT_REFUSALS: refusals}


def devices_of(facts: Mapping[str, Any]) -> tuple[DeviceMemory, ...]:
    """Return the devices of a worker's report; empty where it has none, or none that can be read."""
    reported = facts.get("devices")
    if not isinstance(reported, list):
        return ()
    try:
        devices = tuple(from_facts(DeviceMemory, each) for each in reported[:MOST_DEVICES])
    except PeerError:
        return ()
    return tuple(each for each in devices if DEVICE.fullmatch(each.device))


def _of_devices(
    devices: Mapping[str, Sequence[DeviceMemory]],
) -> dict[Definition, dict[tuple[str, ...], float]]:
    """Return the series of the devices of this process and the workers; empty without any."""
    found = {(worker, each.device): each for worker, those in devices.items() for each in those}
    if not found:
        return {}
    return {
        definitions.DEVICE_USED: {labels: each.used_bytes for labels, each in found.items()},
        definitions.DEVICE_TOTAL: {labels: each.total_bytes for labels, each in found.items()},
    }


def metrics_api(page: MetricsPage, operators: AdminAuth) -> APIRouter:
    """Return the route.

    Args:
        page: the text.
        operators: checks that a request is an operator's.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    @router.get(PATH)
    async def metrics(accept: Annotated[str, Header(max_length=MOST_ACCEPT)] = "") -> Response:
        """Return the metrics of this process, for Prometheus."""
        text, content_type = await page.text(accept)
        return Response(text, headers={"content-type": content_type})

    return router
