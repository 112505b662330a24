"""``GET /ready``: whether this process should get new calls, for what balances servers.

``/health`` says that the process lives, and a supervisor restarts one that does not. A process that cannot
hold calls at the moment lives, and must not be restarted: it answers 503 here, with the reasons.
"""

from collections.abc import Callable, Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from serving.gateway.calls import CallTasks
from session_store.store import SessionStore

# A server that is full for a moment is not taken out: its callers are refused, or wait, for as long.
FULL_S = 10.0


def readiness_router(
    calls: CallTasks,
    *,
    store: SessionStore | None = None,
    more: Callable[[], Sequence[str]] | None = None,
) -> APIRouter:
    """The route.

    Args:
        calls: the conversations of this process.
        store: of sessions, if there is one.
        more: other reasons, as that engines hear nothing.
    """
    router = APIRouter()

    @router.get("/ready")
    async def ready() -> JSONResponse:
        reasons = list(more()) if more is not None else []
        if calls.is_stopping:
            reasons.append("the server is stopping")
        elif calls.full_for_s >= FULL_S:
            reasons.append(f"every line has been taken for {FULL_S:g} s")
        if store is not None and not store.available:
            reasons.append("the session store is away")
        status = "not ready" if reasons else "ready"
        return JSONResponse({"status": status, "reasons": reasons}, status_code=503 if reasons else 200)

    return router
