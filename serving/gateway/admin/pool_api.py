"""Routes of the pool of workers and its queue.

    GET    /workers               each worker; its session and its address for the operator only
    GET    /api/queue             callers who wait for a line or an engine, with tickets; for the operator
    GET    /api/queue/{ticket}    {found, ...}: for a client with the ticket
    DELETE /api/queue/{ticket}    {success}: give a place up; the caller is sent the reason
    GET    /api/config/eta        estimates: the settings, and the learnt values
    PUT    /api/config/eta        other baselines, until the process ends; for the operator

A ticket has 144 random bits and is a bearer token. The ticket of a phone caller is the id of their call,
and only the operator can remove such a caller with it. A server without a pool has no workers, and its
callers wait for a line only.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from parley.serving.gateway.admin.pool_view import (
    EtaView,
    PoolView,
    QueueView,
    TicketView,
    WorkerList,
    eta_view,
)
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.settings import ServerSettings
from parley.serving.pool.pool import REASONS, Pool
from parley.serving.scheduler.eta import Eta, EtaSettings
from parley.serving.scheduler.types import RefusalReason

Ticket = Annotated[str, Path(min_length=1, max_length=100)]
EtaSeconds = Annotated[float | None, Field(gt=0, le=86_400)]


class FoundTicket(BaseModel):
    """A place in the queue was found for the ticket."""

    found: Literal[True] = True
    ticket: TicketView


class NoTicket(BaseModel):
    """There is no place for the ticket, or not any more."""

    found: Literal[False] = False
    message: str


class PlaceGivenUp(BaseModel):
    """Result of giving up a place."""

    success: bool


class EtaChange(BaseModel):
    """Body of a change; a value that is left out or null stays as it is. Bounds as in ``EtaSettings``."""

    model_config = ConfigDict(extra="forbid")

    eta_chat_s: EtaSeconds = None
    eta_half_duplex_s: EtaSeconds = None
    eta_audio_duplex_s: EtaSeconds = None
    eta_omni_duplex_s: EtaSeconds = None
    ema_alpha: Annotated[float | None, Field(gt=0, le=1)] = None


def pool_api(
    pool: Pool | None, calls: CallTasks, operators: AdminAuth, settings: ServerSettings
) -> APIRouter:
    """Return the routes.

    Args:
        pool: of this process, if it has one.
        calls: whose callers may wait for a line.
        operators: checks that a client is an operator.
        settings: of the server.
    """
    router = APIRouter()

    @router.get("/workers")
    async def workers(request: Request) -> WorkerList:
        """Return each worker with its state; the operator also gets sessions and addresses."""
        return PoolView(pool).workers(whole=await operators.is_operator(request))

    @router.get("/api/queue", dependencies=[Depends(operators.check)])
    async def queue() -> QueueView:
        """Return the callers who wait for a line or an engine, with their tickets."""
        return PoolView(pool, calls).queue()

    @router.get("/api/queue/{ticket_id}")
    async def ticket(ticket_id: Ticket) -> FoundTicket | NoTicket:
        """Return the place of a ticket in the queue."""
        found = PoolView(pool, calls).ticket(ticket_id)
        if found is None:
            return NoTicket(message="there is no waiting request with this ticket")
        return FoundTicket(ticket=found)

    @router.delete("/api/queue/{ticket_id}")
    async def give_up(ticket_id: Ticket, request: Request) -> PlaceGivenUp:
        """Give up a place in the queue; the caller is sent the reason."""
        check_origin(request, allowed=settings.allowed_origins)
        is_operator = await operators.is_operator(request)
        reason = RefusalReason.CANCELLED if is_operator else RefusalReason.WITHDRAWN
        if pool is not None and pool.evict(ticket_id, reason=reason):
            return PlaceGivenUp(success=True)
        # The ticket of a phone caller is the id of their call, which other systems have too.
        is_theirs = all(not each.is_polled for each in calls.queued() if each.ticket == ticket_id)
        return PlaceGivenUp(
            success=(is_operator or is_theirs) and calls.remove_queued(ticket_id, REASONS[reason])
        )

    @router.get("/api/config/eta")
    async def eta() -> EtaView:
        """Return the settings and the learnt values of waiting-time estimates."""
        return eta_view(Eta() if pool is None else pool.eta)

    @router.put("/api/config/eta", dependencies=[Depends(operators.check)])
    async def change_eta(body: EtaChange, request: Request) -> EtaView:
        """Change the baselines of waiting-time estimates until the process ends."""
        check_origin(request, allowed=settings.allowed_origins)
        if pool is None:
            raise HTTPException(
                409, "this server has no worker pool, so there are no waiting times to estimate"
            )
        changed = {**pool.eta.settings.model_dump(), **body.model_dump(exclude_none=True)}
        pool.configure_eta(EtaSettings.model_validate(changed))
        return eta_view(pool.eta)

    return router
