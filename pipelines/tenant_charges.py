"""Charge the tokens and the cost of a call to the tenant of its client."""

from decimal import Decimal

from parley.core.call_events import TurnPriced
from parley.core.grants import ClientIdentity
from parley.core.usage import Stage, Usage
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.auth.tenants import Tenants


class TenantCharges:
    """Observer that charges one call (``runtime.observers.CallObserver``).

    Args:
        events: events of the call.
        tenants: of the process.
        identity: client of the call.
    """

    def __init__(self, events: CallEvents, tenants: Tenants, identity: ClientIdentity) -> None:
        self._tenants, self._identity = tenants, identity
        events.subscribe(TurnPriced, self._on_turn_priced)

    def close(self) -> None:
        """Do nothing: every turn is charged when it is priced."""

    def _on_turn_priced(self, event: TurnPriced) -> None:
        tokens = sum(tokens_of(each.usage) for each in event.used if each.stage is Stage.LLM)
        cost = sum((each.known_cost for each in event.used), Decimal(0))
        self._tenants.spend(self._identity, tokens=tokens, cost=cost)


def tokens_of(usage: Usage) -> int:
    """Return all tokens that a model read and wrote."""
    read = usage.prompt_tokens + usage.cached_tokens + usage.cache_write_tokens + usage.audio_prompt_tokens
    return read + usage.completion_tokens + usage.audio_completion_tokens
