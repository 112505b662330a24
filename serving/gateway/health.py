"""Health of the server: ``GET /health``, ``GET /ready`` and ``GET /status``.

``/health`` reports that the process is alive, and a supervisor restarts one that is not. ``/ready`` reports
whether this process should get new calls, for balancers: a process that cannot hold calls at the moment is
alive and must not be restarted, and answers 503 there, with the reasons. ``/status`` has figures for people.
"""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from parley.core.errors import StoreError
from parley.serving.gateway.admin.pool_view import PoolView
from parley.serving.gateway.calls import CallTasks
from parley.serving.pool.pool import Pool
from parley.session_store.store import SessionStore

# A server that is full for a moment stays in the balancer: its callers wait, or are refused, for that long.
FULL_S = 10.0
# Shortest interval between reads of the store, however many requests arrive, and its time to answer.
READ_EVERY_S, READ_S = 2.0, 2.0


def health_router(
    calls: CallTasks,
    *,
    max_calls: int,
    describe: Callable[[], dict[str, object]],
    served: Callable[[], dict[str, object]],
    pool: Pool | None = None,
    store: SessionStore | None = None,
    readiness: Callable[[], Sequence[str]] | None = None,
) -> APIRouter:
    """Return the three routes.

    Args:
        calls: conversations of this process.
        max_calls: maximum number of calls.
        describe: returns facts for ``/status`` (engines, versions).
        served: returns the ways to reach the server (``entrances``), for ``/status``.
        pool: of workers, to be counted in ``/status``.
        store: of sessions, if there is one, to be read for ``/ready``.
        readiness: returns other reasons against new calls, for example that the recogniser fails.
    """
    router = APIRouter()
    probe = None if store is None else _StoreProbe(store)

    @router.get("/health")
    async def health() -> dict[str, object]:
        """Report that the process is alive, for supervisors."""
        return {
            "status": "ok",
            "calls": calls.active,
            "max_calls": max_calls,
            "timestamp": datetime.now(UTC).isoformat(),
        }

    @router.get("/ready")
    async def ready() -> JSONResponse:
        """Report whether this process should get new calls, for balancers: 503 with the reasons if not."""
        reasons = list(readiness()) if readiness is not None else []
        if calls.is_stopping:
            reasons.append("the server is stopping")
        elif calls.full_for_s >= FULL_S:
            reasons.append(f"every line has been taken for {FULL_S:g} s")
        if probe is not None and await probe.is_away():
            reasons.append("the session store is unavailable")
        status = "not ready" if reasons else "ready"
        return JSONResponse({"status": status, "reasons": reasons}, status_code=503 if reasons else 200)

    @router.get("/status")
    async def status() -> dict[str, object]:
        """Return figures for people: engines, transports, sockets, calls, threads, workers."""
        return {
            "status": "ready",
            **served(),
            "calls": calls.active,
            "tasks": len(asyncio.all_tasks()),
            "threads": threads_by_name(),
            **PoolView(pool).counts().model_dump(mode="json"),
            **describe(),
        }

    return router


def entrances(app: FastAPI, served: Callable[[Iterable[str]], Sequence[str]]) -> dict[str, object]:
    """Return how this server can be reached: transports by name, and the paths of its sockets.

    Args:
        app: with all its routes.
        served: returns the names of the transports that an application with some paths serves.
    """
    paths = list(_paths(app.routes))
    return {
        "transports": list(served(path for path, _ in paths)),
        "sockets": sorted({path for path, is_socket in paths if is_socket}),
    }


def _paths(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, bool]]:
    """Yield the path of each route, with whether it is a socket's."""
    for route in routes:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            yield route.path, isinstance(route, APIWebSocketRoute)
        # Later releases of FastAPI keep an included router whole instead of copying its routes.
        yield from _paths(getattr(getattr(route, "original_router", None), "routes", ()))


def threads_by_name() -> dict[str, int]:
    """Return the number of Python threads of each name, without the numbers that pools append.

    A pool starts its threads as they are needed and keeps them. A count that grows to the size of its pool is
    not a leak.
    """
    return dict(Counter(re.sub(r"[_-]\d+( .*)?$", "", thread.name) for thread in threading.enumerate()))


class _StoreProbe:
    """Availability of a session store, also on an idle server."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._is_away = False
        self._read_s: float | None = None

    async def is_away(self) -> bool:
        """Return whether the store does not answer."""
        if not self._store.available:
            return True
        now_s = asyncio.get_running_loop().time()
        async with self._lock:
            if self._read_s is None or now_s - self._read_s >= READ_EVERY_S:
                try:
                    async with asyncio.timeout(READ_S):
                        await self._store.sessions(limit=1)
                except (StoreError, TimeoutError):
                    self._is_away = True
                else:
                    self._is_away = False
                self._read_s = asyncio.get_running_loop().time()
            return self._is_away
