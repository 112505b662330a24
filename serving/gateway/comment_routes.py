"""Routes of the comments on a session, for those who may read it (``session_api`` adds who that is).

    GET    /{id}/comments              all of them, in order of the time that they are about
    POST   /{id}/comments              one more, at a time of the session
    DELETE /{id}/comments/{comment}    by its author or the operator

A comment is text: it is stored as typed, and a page sets it as text content. Comments of one client are
limited in their rate, those of a session in their number (``session_store.comments``).
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from parley.core.grants import ClientIdentity
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.client_auth import OPERATOR
from parley.serving.gateway.limits import Rate
from parley.serving.gateway.settings import COUNTED_CLIENTS
from parley.session_store.comments import SessionComment, SessionComments, TooManyCommentsError
from parley.session_store.rows import MAX_INT, SHOWN_CHARS

COMMENTS_PER_MINUTE = 60
MOST_COMMENT_CHARS = 2_000
MOST_NAME_CHARS = 60


class NewComment(BaseModel):
    """Body of a comment."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    at_us: int = Field(ge=0, le=MAX_INT, description="time of the session, as in its timeline")
    text: str = Field(min_length=1, max_length=MOST_COMMENT_CHARS)
    name: str = Field("", max_length=MOST_NAME_CHARS, description="shown name of the author, as they give it")

    @field_validator("text", "name")
    @classmethod
    def _is_storable(cls, text: str) -> str:
        if "\0" in text:
            raise ValueError("a NUL character is no text")
        return text


def add_comment_routes(
    router: APIRouter,
    comments: SessionComments,
    *,
    identity: Callable[..., object],
    audit: AuditLog,
) -> None:
    """Add the routes to those of a session.

    Args:
        router: of the sessions.
        comments: of the store.
        identity: dependency that checks that a client may read the session, and returns its identity.
        audit: records deletions.
    """
    rate = Rate(COMMENTS_PER_MINUTE, "{limit} comments in a minute: go on later", clients=COUNTED_CLIENTS)
    reader = Annotated[ClientIdentity, Depends(identity)]

    @router.get("/{session_id}/comments")
    async def listed(session_id: str, client: reader) -> dict[str, object]:
        """Return the comments on a session, in order of the time that they are about."""
        found = await comments.of_session(session_id)
        return {"comments": [shown(each, client) for each in found]}

    @router.post("/{session_id}/comments", status_code=201)
    async def add(session_id: str, body: NewComment, client: reader) -> dict[str, object]:
        """Add a comment at a time of a session."""
        rate.take(client.address)
        author = OPERATOR if client.is_operator else client.session_owner or ""
        try:
            made = await comments.add(
                session_id, at_us=body.at_us, author=author, name=body.name, text=body.text
            )
        except TooManyCommentsError as error:
            raise HTTPException(409, str(error)) from error
        return shown(made, client)

    @router.delete("/{session_id}/comments/{comment_id}", status_code=204)
    async def delete(session_id: str, comment_id: str, client: reader) -> Response:
        """Delete a comment: one's own, or any as the operator."""
        found = await comments.find(session_id, comment_id)
        if found is None:
            raise HTTPException(404, "there is no such comment")
        if not may_delete(found, client):
            raise HTTPException(403, "a comment can be deleted only by its author or an operator")
        await comments.delete(session_id, comment_id)
        record_deletion(audit, client, session_id, comment_id)
        return Response(status_code=204)


def record_deletion(audit: AuditLog, client: ClientIdentity, session_id: str, comment_id: str) -> None:
    """Record in the audit log that a client has deleted a comment."""
    audit.record(
        "session.comment_deleted",
        address=client.address,
        session=session_id[:SHOWN_CHARS],
        comment=comment_id,
        by="operator" if client.is_operator else "author",
    )


def may_delete(comment: SessionComment, client: ClientIdentity) -> bool:
    """Return whether a client may delete a comment: its author, or the operator."""
    return client.is_operator or client.owns(comment.author)


def shown(comment: SessionComment, client: ClientIdentity) -> dict[str, object]:
    """Return a comment for a client, without the digest of its author."""
    return {
        "id": comment.id,
        "at_us": comment.at_us,
        "created_us": comment.created_us,
        "name": comment.name,
        "role": "operator" if comment.author == OPERATOR else "client",
        "text": comment.text,
        "may_delete": may_delete(comment, client),
    }
