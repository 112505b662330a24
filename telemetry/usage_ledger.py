"""Use and cost of the calls of a process, for its operator: sums by model, and the newest calls.

Input: ``TurnPriced`` of every call. The sums begin with the process; the durable record of a call is in its
session. Bounded: the newest ``MOST_CALLS`` calls, and ``MOST_MODELS`` models, of which further ones are
counted as ``other``.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from parley.core.call_events import TurnPriced
from parley.core.usage import PricedUsage, Stage, Usage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall

MOST_CALLS = 50
MOST_MODELS = 50
OTHER = "other"


@dataclass(slots=True)
class CallCost:
    """Cost of one call so far.

    Attributes:
        call: its identity.
        began_s: Unix time.
        turns: priced turns of the bot.
        last_known: known cost of the last one.
        last_is_known: true when that is its whole cost.
        known: known cost of all.
        is_known: true when that is their whole cost.
        is_over: the call has ended.
    """

    call: ObservedCall
    began_s: float
    turns: int = 0
    last_known: Decimal = Decimal(0)
    last_is_known: bool = True
    known: Decimal = Decimal(0)
    is_known: bool = True
    is_over: bool = False


class UsageLedger:
    """Use of all calls of one process.

    Args:
        now_s: wall clock.

    Attributes:
        since_s: Unix time at which the sums begin.
    """

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self.since_s = now_s()
        self._models: dict[tuple[Stage, str, str], PricedUsage] = {}
        self._calls: OrderedDict[str, CallCost] = OrderedDict()

    def begin(self, call: ObservedCall) -> CallCost:
        """Add a call, and forget the oldest one when there are too many."""
        cost = self._calls[call.call_id] = CallCost(call, self._now_s())
        while len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)
        return cost

    def add(self, used: PricedUsage) -> None:
        """Add the use of a model to its sum."""
        key = used.stage, used.engine, used.model
        if key not in self._models and len(self._models) >= MOST_MODELS:
            key = used.stage, OTHER, OTHER
        before = self._models.get(key, PricedUsage(*key, Usage(), Decimal(0), ()))
        self._models[key] = PricedUsage(
            *key,
            before.usage + used.usage,
            before.known_cost + used.known_cost,
            tuple(dict.fromkeys((*before.unpriced, *used.unpriced))),
        )

    def models(self) -> list[PricedUsage]:
        """Return the sum of each model, in the order of first use."""
        return list(self._models.values())

    def calls(self) -> list[CallCost]:
        """Return the newest calls, the newest first."""
        return list(reversed(self._calls.values()))


class CallLedger:
    """Observer that enters one call in the ledger (``runtime.observers.CallObserver``).

    Args:
        events: events of the call.
        call: its identity.
        ledger: of the process.
    """

    def __init__(self, events: CallEvents, call: ObservedCall, ledger: UsageLedger) -> None:
        self._ledger, self._cost = ledger, ledger.begin(call)
        events.subscribe(TurnPriced, self._on_turn_priced)

    def close(self) -> None:
        """Mark the call as over."""
        self._cost.is_over = True

    def _on_turn_priced(self, event: TurnPriced) -> None:
        cost = self._cost
        cost.turns += 1
        cost.last_known = sum((each.known_cost for each in event.used), Decimal(0))
        cost.last_is_known = not any(each.unpriced for each in event.used)
        cost.known += cost.last_known
        cost.is_known = cost.is_known and cost.last_is_known
        for each in event.used:
            self._ledger.add(each)
