"""Routes by which the operator pins the recordings of a session, so that no retention removes them.

    GET    /api/sessions/{id}/pin     {is_pinned}
    PUT    /api/sessions/{id}/pin     pins them
    DELETE /api/sessions/{id}/pin     unpins them

PUT and DELETE answer 204 and may be repeated. A session without recordings is a 404, and a bucket that does
not answer a 503. Deleting the session removes pinned recordings as well.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.recording.pins import Pins
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.recording_routes import found_file
from parley.serving.gateway.session_api import SessionId
from parley.session_store.rows import shown_id

_T = TypeVar("_T")
PATH = "/api/sessions/{session_id}/pin"
# Requests that may wait for a bucket at a time; others wait for them.
THREADS = 2


class PinState(BaseModel):
    """Pin of a session."""

    is_pinned: bool


def pin_api(pins: Pins, operators: AdminAuth, audit: AuditLog) -> APIRouter:
    """Return the routes.

    Args:
        pins: of the deployment's recordings.
        operators: checks that a request is an operator's, and the origin of its page.
        audit: records what was pinned and unpinned.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])
    # A bucket that answers nothing keeps threads of its own, which no call waits for.
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pins")

    async def done(act: Callable[[str], _T], session_id: str) -> _T:
        loop = asyncio.get_running_loop()
        return await found_file(loop.run_in_executor(threads, act, session_id))

    @router.get(PATH)
    async def state(session_id: SessionId) -> PinState:
        """Return whether the recordings of a session are pinned."""
        return PinState(is_pinned=await done(pins.has, session_id))

    @router.put(PATH, status_code=204)
    async def pin(session_id: SessionId) -> None:
        """Pin the recordings of a session: they stay whatever their age and size."""
        await done(pins.add, session_id)
        audit.record("recordings.pinned", session=shown_id(session_id))

    @router.delete(PATH, status_code=204)
    async def unpin(session_id: SessionId) -> None:
        """Unpin the recordings of a session: retention removes them as any others."""
        await done(pins.remove, session_id)
        audit.record("recordings.unpinned", session=shown_id(session_id))

    return router
