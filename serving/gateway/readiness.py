"""Route ``GET /ready``: whether this process should get new calls, for balancers.

``/health`` reports that the process is alive, and a supervisor restarts one that is not. A process that
cannot hold calls at the moment is alive and must not be restarted: it answers 503 here, with the reasons.
"""

import asyncio
from collections.abc import Callable, Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from parley.core.errors import StoreError
from parley.serving.gateway.calls import CallTasks
from parley.session_store.store import SessionStore

# A server that is full for a moment stays in the balancer: its callers wait, or are refused, for that long.
FULL_S = 10.0
# Shortest interval between reads of the store, however many requests arrive, and its time to answer.
READ_EVERY_S, READ_S = 2.0, 2.0


def readiness_router(
    calls: CallTasks,
    *,
    store: SessionStore | None = None,
    more: Callable[[], Sequence[str]] | None = None,
) -> APIRouter:
    """Return the route.

    Args:
        calls: conversations of this process.
        store: of sessions, if there is one.
        more: returns other reasons, for example that the recogniser fails.
    """
    router = APIRouter()
    probe = None if store is None else _StoreProbe(store)

    @router.get("/ready")
    async def ready() -> JSONResponse:
        reasons = list(more()) if more is not None else []
        if calls.is_stopping:
            reasons.append("the server is stopping")
        elif calls.full_for_s >= FULL_S:
            reasons.append(f"every line has been taken for {FULL_S:g} s")
        if probe is not None and await probe.is_away():
            reasons.append("the session store is unavailable")
        status = "not ready" if reasons else "ready"
        return JSONResponse({"status": status, "reasons": reasons}, status_code=503 if reasons else 200)

    return router


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
