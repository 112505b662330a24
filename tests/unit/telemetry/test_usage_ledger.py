"""Use and cost of the calls of a process, for its operator."""

from decimal import Decimal

from parley.core.call_events import TurnPriced
from parley.core.usage import PricedUsage, Stage, Usage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.serving.gateway.admin.operations import Operations
from parley.telemetry.prices import PriceRow, PriceSettings, PriceTable
from parley.telemetry.usage_ledger import MOST_CALLS, MOST_MODELS, OTHER, CallLedger, UsageLedger
from tests import virtual_time
from tests.peers.operations_gateway import BEARER, asking, gateway

TABLE = PriceTable(PriceSettings(rows=(PriceRow(engine="hibari", per_million_characters=0),)))


def used(engine: str, cost: str | None, *, model: str = "m", characters: int = 10) -> PricedUsage:
    unpriced = ("characters",) if cost is None else ()
    usage = Usage(characters=characters)
    return PricedUsage(Stage.TTS, engine, model, usage, Decimal(cost or 0), unpriced)


def enter(ledger: UsageLedger, call_id: str, *turns: tuple[PricedUsage, ...]) -> None:
    async def scenario() -> None:
        events = CallEvents()
        call = CallLedger(events, ObservedCall(f"session-{call_id}", call_id, "webrtc", "cascade"), ledger)
        for number, each in enumerate(turns):
            events.publish(TurnPriced(0, number, each))
        call.close()

    virtual_time.run(scenario())


def test_the_newest_calls_and_the_sum_of_each_model_are_kept():
    ledger = UsageLedger()
    enter(ledger, "a", (used("cartesia", "0.5"),), (used("cartesia", "0.25"), used("hibari", "0")))
    enter(ledger, "b", (used("cartesia", "1"),))
    assert [(each.call.call_id, each.turns, each.last_known, each.known) for each in ledger.calls()] == [
        ("b", 1, 1, 1),
        ("a", 2, Decimal("0.25"), Decimal("0.75")),
    ]
    assert [(each.engine, each.known_cost, each.usage.characters) for each in ledger.models()] == [
        ("cartesia", Decimal("1.75"), 30),
        ("hibari", 0, 10),
    ]


def test_one_unpriced_turn_makes_the_cost_of_its_call_unknown():
    ledger = UsageLedger()
    enter(ledger, "a", (used("cartesia", None),), (used("cartesia", "0.25"),))
    [call] = ledger.calls()
    assert (call.is_known, call.last_is_known, call.known) == (False, True, Decimal("0.25"))


def test_the_ledger_is_bounded():
    ledger = UsageLedger()
    for number in range(MOST_CALLS + 10):
        enter(ledger, str(number), (used("cartesia", "1", model=f"model-{number}"),))
    assert len(ledger.calls()) == MOST_CALLS
    assert len(ledger.models()) == MOST_MODELS + 1
    assert ledger.models()[-1].engine == OTHER
    assert sum(each.known_cost for each in ledger.models()) == MOST_CALLS + 10


async def test_the_operator_sees_costs_and_what_is_not_known_of_them():
    ledger = UsageLedger()
    cost = ledger.begin(ObservedCall("0123456789abcdef", "c", "webrtc", "cascade"))
    ledger.add(used("cartesia", None))
    ledger.add(used("hibari", "0"))
    cost.turns, cost.known, cost.is_known = 2, Decimal("0.125"), False
    async with asking(gateway(Operations(ledger=ledger, prices=TABLE))) as client:
        assert (await client.get("/api/admin/usage")).status_code == 403
        view = (await client.get("/api/admin/usage", headers=BEARER)).json()
    assert view["currency"] == "USD"
    assert [(each["engine"], each["cost"], each["unpriced"]) for each in view["models"]] == [
        ("cartesia", None, ["characters"]),
        ("hibari", "0.00", []),
    ]
    [call] = view["calls"]
    assert (call["session_id"], call["cost"], call["known_cost"]) == ("01234567", None, "0.125")


async def test_without_prices_no_cost_is_claimed():
    ledger = UsageLedger()
    ledger.begin(ObservedCall("0123456789abcdef", "c", "webrtc", "cascade"))
    async with asking(gateway(Operations(ledger=ledger)), headers=BEARER) as client:
        view = (await client.get("/api/admin/usage")).json()
    assert view["currency"] is None
    assert [(each["cost"], each["last_cost"], each["known_cost"]) for each in view["calls"]] == [(None,) * 3]
