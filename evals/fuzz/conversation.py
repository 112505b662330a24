"""Conversation of the fuzzer: its dice, its connections, the messages that it sent, and what it found.

A conversation is identified by the seed, the protocol and its number, and draws from dice of its own. It can
thus be repeated alone (``--conversation``).
"""

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from parley.evals.abuse.registry import AttackRun
from parley.evals.abuse.target import Target
from parley.evals.fuzz.generate import Payload, identifiers

# Messages of a conversation that are kept for a finding, and characters of each.
KEPT, SHOWN_CHARS = 8, 600
# Identifiers of the server that are kept.
MOST_KNOWN = 32
# Addresses of the clients: no limit of an address decides alone.
ADDRESSES = 40
# A server that fails closes with 1011 (RFC 6455, 7.4.1).
INTERNAL_ERROR = 1011
LONGEST_ANSWER_CHARS = 20_000
SERVER_FAULT = 500
# The server has no engine for it, or no room.
UNAVAILABLE = (501, 503)


class Pacer:
    """Pace of all conversations together.

    Args:
        rate: messages a second.
    """

    def __init__(self, rate: float) -> None:
        self._step_s = 1 / rate
        self._next_s = 0.0

    async def wait(self, messages: int = 1) -> None:
        """Wait until so many messages may be sent."""
        now_s = asyncio.get_running_loop().time()
        at_s = max(now_s, self._next_s)
        self._next_s = at_s + messages * self._step_s
        await asyncio.sleep(at_s - now_s)


class FuzzConversation:
    """Conversation with a server.

    Args:
        target: the server.
        name: of the protocol.
        number: of the conversation.
        seed: of the run.
        pacer: of all conversations.
        on_finding: called with the kind of a finding and its details.

    Attributes:
        dice: of everything random in it.
        run: opens its connections.
        address: number of its client's address.
        known: identifiers that the server has given.
        tally: counts of closes and statuses.
        sent: number of messages.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        number: int,
        *,
        seed: int,
        pacer: Pacer,
        on_finding: Callable[["FuzzConversation", str], None],
    ) -> None:
        self.name, self.number = name, number
        self.dice = random.Random(f"{seed} {name} {number}")
        self.run = AttackRun(target, 0.0, self.dice)
        self.address = number % ADDRESSES + 1
        self.known: deque[str] = deque(maxlen=MOST_KNOWN)
        self.tally: Counter[str] = Counter()
        self.sent = 0
        self._pacer = pacer
        self._on_finding = on_finding
        self._last: deque[str] = deque(maxlen=KEPT)

    @property
    def target(self) -> Target:
        """The server."""
        return self.run.target

    @property
    def last(self) -> list[str]:
        """Last messages, each with its number in the conversation; the newest last."""
        return list(self._last)

    async def note(self, data: Payload, *, messages: int = 1) -> None:
        """Count a message that is about to be sent, and wait for its turn."""
        await self._pacer.wait(messages)
        shown = data if isinstance(data, str) else repr(bytes(data[:SHOWN_CHARS]))
        size = f" ({len(data)} in all)" if len(data) > SHOWN_CHARS else ""
        self._last.append(f"{self.sent}: {shown[:SHOWN_CHARS]}{size}")
        self.sent += messages

    async def send(self, socket: ClientConnection, data: Payload) -> None:
        """Send a message over a socket."""
        if isinstance(data, str):
            # A lone surrogate has no bytes: such text exists as an escape of JSON, or as a broken frame.
            data = data.encode("utf-8", "replace").decode()
        await self.note(data)
        await socket.send(data)

    def found(self, detail: str) -> None:
        """Report a finding, with the last messages."""
        self._on_finding(self, detail)

    def answered(self, status: int, what: str) -> None:
        """Count the status of a response; one that means a defect is a finding."""
        self.tally[f"status {status}"] += 1
        if status >= SERVER_FAULT and status not in UNAVAILABLE:
            self.found(f"status {status} of {what}")

    async def closed(self, socket: ClientConnection) -> None:
        """Count the end of a socket; a close that means a defect is a finding."""
        code = socket.close_code
        if code is None:
            await socket.close()
            self.tally["closed here"] += 1
            return
        self.tally[f"closed {code}"] += 1
        if code == INTERNAL_ERROR:
            self.found(f"closed {code} {socket.close_reason}")

    async def read(self, socket: ClientConnection) -> None:
        """Read a socket to its end, and keep the identifiers in its messages."""
        with suppress(OSError, WebSocketException):
            async for data in socket:
                self.learn(data)

    def learn(self, data: Payload) -> None:
        """Keep the identifiers of a message of the server."""
        if isinstance(data, bytes) or len(data) > LONGEST_ANSWER_CHARS:
            return
        try:
            message: Any = json.loads(data)
        except ValueError:
            return
        self.known.extend(identifiers(message))
