"""Use and cost of this process's calls, for the operator.

    GET /api/admin/usage    {since, currency, models: [...], calls: [...]}

A cost is a decimal number as text. It is null where a part of it is not known, because a model has no price;
``known_cost`` is then the rest. Without prices in the deployment ``currency`` is null, and so is every cost.
"""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.session_store.rows import SHOWN_CHARS
from parley.telemetry.prices import PriceTable, shown
from parley.telemetry.usage_ledger import CallCost, UsageLedger

PATH = "/api/admin/usage"


class ModelUse(BaseModel):
    """Use of one model since the start of the process.

    Attributes:
        stage: stage of its engine.
        engine: name of the engine.
        model: name of the model; empty where the engine reports none.
        amounts: tokens, milliseconds of audio and characters by kind.
        cost: whole cost; null: not known.
        known_cost: cost of the amounts that have a price.
        unpriced: names of the amounts that have none.
    """

    stage: str
    engine: str
    model: str
    amounts: dict[str, float]
    cost: str | None
    known_cost: str | None
    unpriced: list[str]


class CallUse(BaseModel):
    """Cost of one of the newest calls.

    Attributes:
        call_id: of the call.
        session_id: beginning of the id of its session.
        transport: of the caller.
        mode: of the call.
        began_at: beginning of the call.
        is_over: the call has ended.
        turns: turns of the bot so far.
        last_cost: whole cost of the last one; null: not known.
        cost: whole cost; null: not known.
        known_cost: known part of it.
    """

    call_id: str
    session_id: str
    transport: str
    mode: str
    began_at: datetime
    is_over: bool
    turns: int
    last_cost: str | None
    cost: str | None
    known_cost: str | None


class UsageView(BaseModel):
    """Use of all calls since the start of the process, and the newest calls, the newest first."""

    since: datetime
    currency: str | None
    models: list[ModelUse]
    calls: list[CallUse]


def usage_api(ledger: UsageLedger, prices: PriceTable, operators: AdminAuth) -> APIRouter:
    """Return the route.

    Args:
        ledger: of the process.
        prices: of the deployment.
        operators: checks that a request is an operator's.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    @router.get(PATH)
    async def usage() -> UsageView:
        """Return use and cost of this process's calls."""
        has_prices = prices.settings is not None
        return UsageView(
            since=datetime.fromtimestamp(ledger.since_s, UTC),
            currency=prices.settings.currency if prices.settings is not None else None,
            models=[
                ModelUse(
                    stage=each.stage,
                    engine=each.engine,
                    model=each.model,
                    amounts=each.usage.amounts(),
                    cost=shown(each.cost),
                    known_cost=shown(each.known_cost) if has_prices else None,
                    unpriced=list(each.unpriced),
                )
                for each in ledger.models()
            ],
            calls=[_call(each, has_prices=has_prices) for each in ledger.calls()],
        )

    return router


def _call(cost: CallCost, *, has_prices: bool) -> CallUse:
    # A call without any use has cost nothing so far only where prices say what costs something.
    return CallUse(
        call_id=cost.call.call_id,
        session_id=cost.call.session_id[:SHOWN_CHARS],
        transport=cost.call.transport,
        mode=cost.call.mode,
        began_at=datetime.fromtimestamp(cost.began_s, UTC),
        is_over=cost.is_over,
        turns=cost.turns,
        last_cost=shown(cost.last_known if has_prices and cost.last_is_known else None),
        cost=shown(cost.known if has_prices and cost.is_known else None),
        known_cost=shown(cost.known) if has_prices else None,
    )
