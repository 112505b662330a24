"""``GET /metrics``: the metrics of this process in the text formats of Prometheus; for the operator.

The numbers of the queue, the pool and the store are read on the event loop, where they live; the text is
written in a thread. One text is written at a time and serves all scrapes of the next ``FRESH_S``, so that
scrapers never cost more than one rendering a second. A scraper that does not read holds its connection and
nothing else: its answer is complete before it is sent.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response

from parley.core.durations import DurationCounts
from parley.serving.gateway.admin.pool_view import PoolView
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.tenants import Tenants
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.session_api import SessionRecordings
from parley.serving.pool.pool import Pool
from parley.session_store.store import SessionStore
from parley.telemetry import definitions
from parley.telemetry.definitions import Definition
from parley.telemetry.metrics import MOST_VALUES, OTHER, ProcessReading, ServerMetrics

PATH = "/metrics"
FRESH_S = 1.0
OPEN_METRICS = "application/openmetrics-text"
# Of the header of a request; Prometheus sends 200 characters.
MOST_ACCEPT = 500


class MetricsPage:
    """The text of all metrics, renewed at most once in ``FRESH_S``.

    Args:
        metrics: of the process.
        calls: conversations of the process.
        pool: of workers, if there is one.
        store: of sessions, if there is one.
        tenants: with limits; None: there are none.
        recordings: of calls; None for none.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        calls: CallTasks,
        pool: Pool | None,
        store: SessionStore | None,
        tenants: Tenants | None = None,
        recordings: SessionRecordings | None = None,
    ) -> None:
        self._tenants, self._recordings = tenants, recordings
        self._metrics, self._calls, self._pool, self._store = metrics, calls, pool, store
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
                self._metrics.read(self._reading())
            kind = OPEN_METRICS if OPEN_METRICS in accept else ""
            if kind not in self._texts:
                self._texts[kind] = await asyncio.to_thread(self._metrics.render, kind)
            return self._texts[kind]

    def _reading(self) -> ProcessReading:
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
        labelled = self._of_tenants()
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
