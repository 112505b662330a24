"""Process of the fuzzer: ``python -m evals.fuzz.sender``; its order and the target on standard input.

It holds conversations of all protocols in turn, several at a time, at a pace for all of them together. It
prints lines of JSON: ``finding`` with the last messages of its conversation, ``active`` when a line ``look``
arrives (the last messages of all conversations that are under way or just over), and ``end`` with the counts.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count, cycle
from typing import Any

from parley.core.errors import AgentError
from parley.evals.abuse.attackers import NICENESS
from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.target import Target
from parley.evals.fuzz.conversation import FuzzConversation, Pacer
from parley.evals.fuzz.dialects import dialect

# Longest conversation, and number of those just over that are shown.
CONVERSATION_S, RECENT = 60.0, 12
# After a conversation that could not begin.
PAUSE_S = 0.05
PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """Work of the process.

    Attributes:
        seed: of everything random.
        messages: number of messages after which no conversation begins.
        seconds: longest time.
        rate: messages a second.
        clients: conversations at a time.
        protocols: names.
        conversation: number of the only conversation of each protocol; None for all.
    """

    seed: int
    messages: int
    seconds: float
    rate: float
    clients: int
    protocols: tuple[str, ...]
    conversation: int | None = None


class Sender:
    """Fuzzer of one server.

    Args:
        order: its work.
        target: the server.
    """

    def __init__(self, order: Order, target: Target) -> None:
        self._order = order
        self._target = target
        self._pacer = Pacer(order.rate)
        self._active: set[FuzzConversation] = set()
        self._recent: deque[FuzzConversation] = deque(maxlen=RECENT)
        self._numbers = {name: count() for name in order.protocols}
        self._sent: Counter[str] = Counter()
        self._conversations: Counter[str] = Counter()
        self._tallies: dict[str, Counter[str]] = {name: Counter() for name in order.protocols}
        self._until_s = 0.0

    async def run(self) -> None:
        """Hold all conversations, and print the counts."""
        order = self._order
        self._until_s = time.monotonic() + order.seconds
        if order.conversation is not None:
            for name in order.protocols:
                await self._hold(name, order.conversation)
        else:
            turns = cycle(order.protocols)
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report(), name="fuzz.progress")
                clients = [
                    tasks.create_task(self._client(turns), name=f"fuzz.{number}")
                    for number in range(order.clients)
                ]
                await asyncio.wait(clients)
                reporting.cancel()
        _say("end", **self._counts())

    def look(self) -> None:
        """Print the last messages of the conversations that are under way or just over."""
        shown = [
            {"protocol": each.name, "conversation": each.number, "last": each.last}
            for each in (*self._recent, *self._active)
        ]
        _say("active", conversations=shown)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            _say("progress", sent=self._sent.total() + sum(each.sent for each in self._active))

    async def _client(self, turns: "cycle[str]") -> None:
        order = self._order
        while time.monotonic() < self._until_s and self._sent.total() < order.messages:
            name = next(turns)
            before = self._sent[name]
            await self._hold(name, next(self._numbers[name]))
            if self._sent[name] == before:
                await asyncio.sleep(PAUSE_S)

    async def _hold(self, name: str, number: int) -> None:
        conversation = FuzzConversation(
            self._target, name, number, seed=self._order.seed, pacer=self._pacer, on_finding=_say_finding
        )
        self._active.add(conversation)
        try:
            left_s = max(0.1, self._until_s - time.monotonic())
            async with asyncio.timeout(min(CONVERSATION_S, left_s)):
                await dialect(name)(conversation)
        except (*GONE, AgentError, LookupError, ValueError) as error:
            # A server that is full, or ends, may answer with less than a conversation needs.
            conversation.tally[f"{type(error).__name__}: {error}"[:60]] += 1
        finally:
            self._active.discard(conversation)
            self._recent.append(conversation)
            self._sent[name] += conversation.sent
            self._conversations[name] += 1
            self._tallies[name] += conversation.tally

    def _counts(self) -> dict[str, Any]:
        return {
            "sent": dict(self._sent),
            "conversations": dict(self._conversations),
            "tallies": {name: dict(tally.most_common(12)) for name, tally in self._tallies.items()},
        }


def _say(kind: str, **given: Any) -> None:
    print(json.dumps({"kind": kind, **given}), flush=True)


def _say_finding(conversation: FuzzConversation, detail: str) -> None:
    _say(
        "finding",
        protocol=conversation.name,
        conversation=conversation.number,
        detail=detail,
        last=conversation.last,
    )


def encoded(order: Order, target: Target) -> bytes:
    """Return the input of the process."""
    return f"{json.dumps(asdict(order))}\n{target.as_json()}\n".encode()


async def main(lines: Sequence[str]) -> None:
    """Run the work that two lines describe; each further line of standard input asks for a look."""
    given = json.loads(lines[0])
    order = Order(**{**given, "protocols": tuple(given["protocols"])})
    sender = Sender(order, Target.from_json(lines[1]))
    loop = asyncio.get_running_loop()

    def on_line() -> None:
        if not os.read(sys.stdin.fileno(), 4_096):
            loop.remove_reader(sys.stdin.fileno())
        else:
            sender.look()

    loop.add_reader(sys.stdin.fileno(), on_line)
    try:
        await sender.run()
    finally:
        with suppress(ValueError):
            loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    os.nice(NICENESS)
    # Not ``sys.stdin``, whose buffer would keep later lines.
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as _input:
        _given = [_input.readline().decode() for _ in range(2)]
    asyncio.run(main(_given))
