"""Routes by which a session continues on the phone.

    POST   /api/sessions/{id}/call-code     a code to press in a call, with the number to call
    PUT    /api/sessions/{id}/caller        this number's next call continues the session; for the operator
    DELETE /api/sessions/{id}/caller        deletes the numbers of a session

A client that may use a session (``access``) may get a code, and may delete the session's numbers. Linking a
number is restricted. A client that linked another person's number would receive what that person says in
their next call. Only the operator may do it, or a program with the operator's token that has verified the
owner of the number.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from parley.core.grants import ClientIdentity, KeyScope
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import RequestRate
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.session_api import PATH, SessionId
from parley.serving.gateway.settings import ServerSettings
from parley.session_store.conversations import Conversations


class CallCode(BaseModel):
    """Code, as an answer to a page.

    Attributes:
        code: to be pressed in a call, once.
        number: to call; None where the deployment names none.
        expires_s: time for which the code is valid.
    """

    code: str
    number: str | None
    expires_s: float


class CallerNumber(BaseModel):
    """Body of a link."""

    model_config = ConfigDict(extra="forbid")

    number: str = Field(min_length=1, max_length=40)
    called: str | None = Field(
        None, pattern=r"^\+[1-9][0-9]{6,14}$", description="number that was called; null: phone.number"
    )


def caller_api(
    book: CallerDirectory,
    conversations: Conversations,
    settings: ServerSettings,
    access: Access,
    operators: AdminAuth,
) -> APIRouter:
    """Return the routes.

    Args:
        book: of this process.
        conversations: of this process.
        settings: of the server.
        access: checks that a client may use a session.
        operators: checks that a client may link a number.
    """
    store = conversations.store
    codes = book.codes
    asked = RequestRate(
        settings,
        codes.per_minute if codes is not None else 1,
        key_per_minute=2 * settings.clients.key_sessions_per_minute,
        full="too many codes were requested from this address, try again later",
    )

    def origin_allowed(request: Request) -> None:
        check_origin(request, allowed=settings.allowed_origins)

    async def used(session_id: SessionId, request: Request) -> ClientIdentity:
        info = await store.info(session_id)
        scope = KeyScope.TALK if request.method == "POST" else KeyScope.OPERATE
        identity = await access.identify(request, scope)
        access.check_use(identity, session_id, info.owner)
        return identity

    router = APIRouter(prefix=PATH, dependencies=[Depends(origin_allowed)])

    @router.post("/{session_id}/call-code", status_code=201)
    async def call_code(
        session_id: SessionId, identity: Annotated[ClientIdentity, Depends(used)]
    ) -> CallCode:
        """Return a code with which a phone call continues this session."""
        if codes is None:
            raise HTTPException(404, "this server has no call codes (phone.call_codes)")
        asked.take(identity)
        code = await book.new_code(session_id)
        return CallCode(code=code, number=book.number, expires_s=codes.expires_s)

    @router.put("/{session_id}/caller", status_code=204, dependencies=[Depends(operators.check)])
    async def link(session_id: SessionId, body: CallerNumber) -> None:
        """Link a phone number to a session, which its calls then continue."""
        await book.link(session_id, body.number, body.called)

    @router.delete("/{session_id}/caller", status_code=204, dependencies=[Depends(used)])
    async def unlink(session_id: SessionId) -> None:
        """Remove the phone numbers of a session."""
        await store.unlink_callers(session_id)

    return router
