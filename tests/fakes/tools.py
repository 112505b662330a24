"""A tool that counts its effects and follows the test's script."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ORDER = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["item"],
    "additionalProperties": False,
}


@dataclass(eq=False)
class FakeTool:
    """Tool that keeps the idempotency that it claims: a key takes effect once.

    Attributes:
        answer: value to return, or an exception to raise.
        hold: event to wait for between the effect and the answer.
        takes_s: time between the effect and the answer.
        reached: set when a run has taken effect.
        runs: keys of all runs, in order.
        effects: keys that took effect.
    """

    name: str = "order"
    description: str = "Orders something."
    parameters: Mapping[str, Any] = field(default_factory=lambda: ORDER)
    idempotent: bool = False
    timeout_s: float = 5.0
    answer: Any = field(default_factory=lambda: {"number": 7})
    hold: asyncio.Event | None = None
    takes_s: float = 0.0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    runs: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    arguments: list[Mapping[str, Any]] = field(default_factory=list)

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        self.runs.append(key)
        self.arguments.append(arguments)
        if not self.idempotent or key not in self.effects:
            self.effects.append(key)
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
