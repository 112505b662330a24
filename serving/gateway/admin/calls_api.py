"""Live calls of this process, for the operator.

    GET    /api/admin/calls                       {can_listen, calls: [...]}, the newest first
    GET    /api/admin/calls/{call_id}/audio.wav   the call from now on: stereo, the caller on the left
    DELETE /api/admin/calls/{call_id}             end it; what is being said goes on for 2 s at most

Listed are spoken calls, conversations over a chat socket, phone calls as text, and calls of humans at the
desk. A request to ``/api/sessions`` is no call, and callers who wait are in the queue.

404: this process has no such call. 409: the deployment does not let operators listen
(``operations.listen_in``), or the call has no audio of its own: it is in writing, or a human's at the desk,
who is heard in the caller's call. Both acts are in the audit log; listening is in the session too, whose
owner can read it there. Its answer has no end until the call ends, or the listener's login.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, HTTPException, Path, Request
from pydantic import BaseModel

from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.requests import client_of
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.rows import SHOWN_CHARS

PATH = "/api/admin/calls"
MOST_LISTENERS, CALL_LISTENERS = 16, 4
NONE = "this process has no such call: it has ended, or another server of the deployment holds it"
NO_AUDIO = "this call has no audio of its own: read its session, or listen to the caller's call"
NOT_PERMITTED = "this deployment does not let operators listen: set 'listen_in: true' in 'operations:'"


class LiveCallView(BaseModel):
    """A live call.

    Attributes:
        call_id: of the call.
        session_id: of its session.
        transport: of the caller.
        mode: of the call.
        began_at: beginning of the call.
        listeners: number of operators who listen.
        has_audio: it can be listened to, where the deployment lets operators listen.
    """

    call_id: str
    session_id: str
    transport: str
    mode: str
    began_at: datetime
    listeners: int
    has_audio: bool


class LiveCallEntry(Protocol):
    """A live call of this process."""

    def view(self) -> LiveCallView:
        """Return what the list shows of it."""
        ...

    def end(self) -> None:
        """End it."""
        ...

    def listen(self) -> AsyncGenerator[bytes, None]:
        """Return a WAV file of it that begins now and grows while it lasts."""
        ...


class LiveCallEntries(Protocol):
    """Live calls of a process."""

    @property
    def can_listen(self) -> bool:
        """Return whether operators may listen."""
        ...

    def listed(self) -> Sequence[LiveCallView]:
        """Return the calls, the newest first."""
        ...

    def find(self, call_id: str) -> LiveCallEntry | None:
        """Return a call; None when there is none of this id."""
        ...


class LiveCallList(BaseModel):
    """Live calls of this process, the newest first."""

    can_listen: bool
    calls: list[LiveCallView]


class NoLiveCalls:
    """Entries of a process that holds no calls (``LiveCallEntries``)."""

    can_listen = False

    def listed(self) -> Sequence[LiveCallView]:
        """Return no calls."""
        return ()

    def find(self, call_id: str) -> LiveCallEntry | None:
        """Return None."""
        return None


CallId = Annotated[str, Path(max_length=64)]


def calls_api(
    entries: LiveCallEntries, operators: AdminAuth, audit: AuditLog, settings: ServerTuning
) -> APIRouter:
    """Return the routes.

    Args:
        entries: live calls of this process.
        operators: checks that a request is an operator's.
        audit: records who was listened to.
        settings: of the server.
    """
    router = APIRouter(prefix=PATH, dependencies=[Depends(operators.check)])
    places = ConcurrencyLimit(
        MOST_LISTENERS,
        f"{MOST_LISTENERS} listeners are connected to this server: end one of them",
        each=CALL_LISTENERS,
        each_full=f"{CALL_LISTENERS} operators listen to this call: end one of them",
    )

    @router.get("")
    async def listed() -> LiveCallList:
        """Return the live calls of this process."""
        return LiveCallList(can_listen=entries.can_listen, calls=list(entries.listed()))

    def record(act: str, request: Request, entry: LiveCallEntry) -> None:
        call = entry.view()
        facts = {"session": call.session_id[:SHOWN_CHARS], "call": call.call_id[:SHOWN_CHARS]}
        address = client_of(request, trusted_proxies=settings.trusted_proxies)
        audit.record(act, address=address, **facts)

    @router.get("/{call_id}/audio.wav")
    async def listen(request: Request, call_id: CallId) -> EventStream:
        """Stream the audio of a call from now on, until it ends or the listener is logged out."""
        if not entries.can_listen:
            raise HTTPException(409, NOT_PERMITTED)
        entry = _found(entries, call_id)
        if not entry.view().has_audio:
            raise HTTPException(409, NO_AUDIO)

        async def heard() -> AsyncGenerator[bytes, None]:
            with places.take(call_id):
                record("call.listened", request, entry)
                async with aclosing(entry.listen()) as chunks:
                    async for chunk in chunks:
                        if not operators.holds(request):
                            return
                        yield chunk

        return EventStream(heard(), stall_s=settings.reader_stall_s, media_type="audio/wav")

    @router.delete("/{call_id}", status_code=204)
    async def end(request: Request, call_id: CallId) -> None:
        """End a call; what is being said goes on for 2 s at most."""
        entry = _found(entries, call_id)
        entry.end()
        record("call.ended", request, entry)

    return router


def _found(entries: LiveCallEntries, call_id: str) -> LiveCallEntry:
    found = entries.find(call_id)
    if found is None:
        raise HTTPException(404, NONE)
    return found
