"""Private pauses of calls, for operators.

    PUT    /api/sessions/{id}/private-pause     nothing of its call is recorded or stored from here on
    DELETE /api/sessions/{id}/private-pause     ends that at the next quiet moment

404: this process has no call of the session, or its deployment no private pauses. Both answer 204 and may be
repeated; a repeated beginning does not make a pause longer (``privacy.pause.longest_s``).
"""

from fastapi import APIRouter, Depends, HTTPException

from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.session_api import SessionId
from parley.session_store.conversations import Conversations
from parley.session_store.rows import shown_id

PATH = "/api/sessions/{session_id}/private-pause"
BY = "operator"


def privacy_api(conversations: Conversations, operators: AdminAuth, audit: AuditLog) -> APIRouter:
    """Return the routes.

    Args:
        conversations: of this process.
        operators: checks that a request is an operator's, and the origin of its page.
        audit: records pauses.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    def request(session_id: str, *, begins: bool) -> None:
        conversation = conversations.get(session_id)
        if conversation is None or not conversation.request_pause(is_on=begins, by=BY):
            raise HTTPException(
                404,
                "this process has no call of this session that can pause; pauses need 'pause: {}' in the "
                "section 'privacy:' of its settings",
            )
        audit.record(f"pause.{'begun' if begins else 'ended'}", session=shown_id(session_id))

    @router.put(PATH, status_code=204)
    async def begin(session_id: SessionId) -> None:
        """Record and store nothing of the session's call from here on."""
        request(session_id, begins=True)

    @router.delete(PATH, status_code=204)
    async def end(session_id: SessionId) -> None:
        """End that at the next quiet moment."""
        request(session_id, begins=False)

    return router
