"""Route by which an operator removes everything of a person.

    POST /api/people/forget     by number, user, owner or session; with ``dry_run`` it only counts

The answer names the sessions and has totals by kind (``removed``), what goes by itself later (``pending``),
and whether sessions are left (``more``): the same request goes on with them. 409 has the same fields, and
what the operator must do by hand. 400: the person cannot be looked for here, with the reason.
"""

from typing import Self

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from parley.core.grants import BROWSER_PREFIX, USER_SEPARATOR, ClientIdentity
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.http.requests import check_origin, client_of
from parley.serving.gateway.person_erasure import ForgottenPerson, NamedPerson, PersonEraser
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.rows import SESSION_ID

PATH = "/api/people/forget"
NAMES = ("number", "user", "owner", "session")


class PersonToForget(BaseModel):
    """Body: the person, by exactly one of number, user, owner and session."""

    model_config = ConfigDict(extra="forbid")

    number: str | None = Field(None, min_length=1, max_length=40, description="telephone number")
    user: str | None = Field(
        None, min_length=1, max_length=200, description="an application's name for its user"
    )
    owner: str | None = Field(
        None,
        pattern=rf"^({BROWSER_PREFIX.replace('.', chr(92) + '.')}|[0-9a-f]+{USER_SEPARATOR})[0-9a-f]+$",
        max_length=200,
        description="owner of sessions, as the store has it: a browser, or a user",
    )
    session: str | None = Field(
        None,
        pattern=rf"^{SESSION_ID.pattern}$",
        description="a session; those of its numbers and of its owner are found too",
    )
    called: str | None = Field(
        None, pattern=r"^\+[1-9][0-9]{6,14}$", description="number that was called; null: phone.number"
    )
    tenant: str | None = Field(
        None,
        max_length=100,
        description="tenant whose applications have the user, empty for those without one; null: the only "
        "tenant that has keys",
    )
    linked: bool = Field(
        False, description="also sessions that share a number or an owner with one that is found, and so on"
    )
    dry_run: bool = Field(False, description="delete nothing, and count what the store has")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in NAMES) != 1:
            raise ValueError(f"expected exactly one of {', '.join(NAMES)}")
        if self.called is not None and self.number is None:
            raise ValueError("called: only with number")
        if self.tenant is not None and self.user is None:
            raise ValueError("tenant: only with user")
        return self

    def person(self) -> NamedPerson:
        """Return the person."""
        return NamedPerson(**self.model_dump(exclude={"dry_run"}))

    def named_by(self) -> str:
        """Return by what the person is named."""
        return next(name for name in NAMES if getattr(self, name) is not None)


def people_api(
    eraser: PersonEraser, operators: AdminAuth, audit: AuditLog, settings: ServerTuning
) -> APIRouter:
    """Return the route.

    Args:
        eraser: deletes everything of a person.
        operators: checks that a client is an operator.
        audit: records that a person was forgotten, without their name.
        settings: of the server.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    @router.post(PATH, response_model=None)
    async def forget(request: Request, body: PersonToForget) -> JSONResponse | dict[str, object]:
        """Delete everything of a person: sessions, recordings, what workers keep; return totals by kind."""
        check_origin(request, allowed=settings.allowed_origins)
        person = body.person()
        if body.dry_run:
            return _shown(await eraser.find(person), dry_run=True)
        address = client_of(request, trusted_proxies=settings.trusted_proxies)
        forgotten = await eraser.forget(person, by=ClientIdentity(address=address, is_operator=True))
        audit.record(
            "person.forgotten", address=address, named_by=body.named_by(), sessions=len(forgotten.sessions)
        )
        shown = _shown(forgotten, dry_run=False)
        if forgotten.erased.problem:
            return JSONResponse({**shown, "error": forgotten.erased.problem}, status_code=409)
        return shown

    return router


def _shown(forgotten: ForgottenPerson, *, dry_run: bool) -> dict[str, object]:
    return {
        "sessions": list(forgotten.sessions),
        "removed": forgotten.erased.removed.as_message(),
        "pending": list(forgotten.erased.pending),
        "more": forgotten.more,
        "dry_run": dry_run,
    }
