"""Limit the turns that a client has the language model answer, over all surfaces of one process.

A turn is counted where its question goes to the model (``processors.dialogue.commit_gate`` in calls,
``pipelines.chat`` for typed turns), not where it comes in: one limit holds for speech, typed text and
requests for a response alike. Tool calls and summaries inside a turn are not counted.
"""

import asyncio

from core.client_rules import ClientRules
from serving.gateway.limits import ShareError

# A client that is quiet may use up so much of its minute at once.
BURST_SHARE = 4
# A second's worth of tokens cannot be told from none by floating point.
NEARLY_ZERO = 1e-6


class TurnAllowance:
    """Token buckets, one for each client.

    Args:
        per_minute: turns of a client whose grants name no number.
        clients: buckets that are remembered; the one used least recently is forgotten first.
    """

    def __init__(self, *, per_minute: int, clients: int = 10_000) -> None:
        self._per_minute = per_minute
        self._clients = clients
        # Tokens left, and the loop's seconds at which they were counted; least recently used first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, rules: ClientRules) -> None:
        """Make sure that the client may have another turn, without taking it.

        Raises:
            ShareError: it may not now.
        """
        if not rules.identity.is_operator:
            self._left(rules)

    def has(self, rules: ClientRules) -> bool:
        """Whether ``take`` would count a turn."""
        try:
            self.check(rules)
        except ShareError:
            return False
        return True

    def try_take(self, rules: ClientRules) -> bool:
        """Count a turn of the client, if it may have one; whether it may."""
        try:
            self.take(rules)
        except ShareError:
            return False
        return True

    def take(self, rules: ClientRules) -> None:
        """Count a turn of the client.

        Raises:
            ShareError: it may not have one now; nothing is counted.
        """
        if rules.identity.is_operator:
            return
        left, now_s = self._left(rules)
        self._buckets.pop(rules.key, None)
        self._buckets[rules.key] = (left - 1, now_s)
        if len(self._buckets) > self._clients:
            del self._buckets[next(iter(self._buckets))]

    def _left(self, rules: ClientRules) -> tuple[float, float]:
        now_s = asyncio.get_running_loop().time()
        granted = rules.identity.grants.turns_per_minute
        per_minute = self._per_minute if granted is None else granted
        burst = float(max(1, per_minute // BURST_SHARE)) if per_minute else 0.0
        left, counted_s = self._buckets.get(rules.key, (burst, now_s))
        left = min(burst, left + (now_s - counted_s) * per_minute / 60)
        if left < 1 - NEARLY_ZERO:
            raise ShareError(
                f"over {per_minute} turns a minute, try again in a moment",
                limit=per_minute,
                retry_s=(1 - left) * 60 / max(1, per_minute),
            )
        return left, now_s
