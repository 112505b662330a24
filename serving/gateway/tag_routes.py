"""Routes of the tags of a session, for the operator.

    GET    /{id}/tags          {tags: [...]}, in the order of the alphabet
    POST   /{id}/tags          {tag}: one more; answers as GET does
    DELETE /{id}/tags?tag=     one less; answers as GET does

A tag is stored and compared in one form: small letters, single spaces (``session_store.tags``). Tags are
found by the search of sessions, and go into the session's events, its export too.
"""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.params import Depends as Dependency
from pydantic import BaseModel, ConfigDict, Field

from parley.session_store.tags import SessionTags, TagError, normalised

# Before it is normalised, which may shorten it.
MOST_GIVEN_CHARS = 200


class NewTag(BaseModel):
    """Body of a tag."""

    model_config = ConfigDict(extra="forbid")

    tag: str = Field(max_length=MOST_GIVEN_CHARS, description="up to 40 characters without a comma")


class TagList(BaseModel):
    """Tags of a session, in the order of the alphabet."""

    tags: list[str]


def add_tag_routes(
    router: APIRouter, tags: SessionTags, *, for_operator: Dependency, known: Dependency
) -> None:
    """Add the routes to those of a session.

    Args:
        router: of the sessions.
        tags: of the store.
        for_operator: checks that a client is an operator.
        known: returns the session's id after checking its form.
    """
    session = Annotated[str, known]

    @router.get("/{session_id}/tags", dependencies=[for_operator])
    async def listed(session_id: session) -> TagList:
        """Return the tags of a session."""
        return TagList(tags=list(await tags.of_session(session_id)))

    @router.post("/{session_id}/tags", dependencies=[for_operator])
    async def add(session_id: session, body: NewTag) -> TagList:
        """Add a tag to a session."""
        tag = checked(body.tag)
        try:
            return TagList(tags=list(await tags.add(session_id, tag)))
        except TagError as error:
            raise HTTPException(409, str(error)) from error

    @router.delete("/{session_id}/tags", dependencies=[for_operator])
    async def remove(session_id: session, tag: Annotated[str, Query(max_length=MOST_GIVEN_CHARS)]) -> TagList:
        """Remove a tag from a session."""
        return TagList(tags=list(await tags.remove(session_id, checked(tag))))


def checked(text: str) -> str:
    """Return a tag as it is stored.

    Raises:
        HTTPException: it is none.
    """
    try:
        return normalised(text)
    except TagError as error:
        raise HTTPException(422, f"tag: {error}") from error
