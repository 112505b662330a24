"""Limits of tenants and their use over all processes, for the operator.

    GET /api/admin/tenants    {tenants: [{name, used_up, limits: [{name, used, limit, period}, ...]}]}

Use is as of the last report of this process, at most some seconds ago; what is stored, a minute.
"""

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.tenants import Tenants

PATH = "/api/admin/tenants"


class LimitView(BaseModel):
    """Use of one limit.

    Attributes:
        name: of the limit, as in ``server.tenants``.
        used: in its unit.
        limit: the most; null: there is none.
        period: "hour", "day" or "month" of UTC; empty for what exists now.
    """

    name: str
    used: float
    limit: float | None
    period: str


class TenantView(BaseModel):
    """Use of one tenant.

    Attributes:
        name: of the tenant.
        used_up: names of the limits that are used up.
        limits: use of every limit.
    """

    name: str
    used_up: list[str]
    limits: list[LimitView]


class TenantsView(BaseModel):
    """Use of all tenants."""

    tenants: list[TenantView]


def tenants_api(tenants: Tenants, operators: AdminAuth) -> APIRouter:
    """Return the route.

    Args:
        tenants: of the process.
        operators: checks that a request is an operator's.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    @router.get(PATH)
    async def use_of_tenants() -> TenantsView:
        """Return the limits of all tenants, and their use over all processes."""
        return TenantsView(tenants=[_view(tenants, name) for name in tenants.names()])

    return router


def _view(tenants: Tenants, name: str) -> TenantView:
    limits = tenants.limits_of(name)
    return TenantView(
        name=name,
        used_up=[each.name for each in limits if each.is_used_up],
        limits=[
            LimitView(name=each.name, used=each.used, limit=each.limit, period=each.period) for each in limits
        ],
    )
