"""Limits of long answers: how much one client may read at a time, and how fast.

A page of a timeline, an export, the replay of a stream of events and a sound may each be megabytes, and
sending them takes time of the loop that all calls share. Reads of a client are counted by their bytes. A
client that is ahead of its share waits for its next page, and all clients wait while they are together ahead
of the server's. That refuses nothing; only a client with too many concurrent reads is refused.
"""

import asyncio
from collections.abc import Callable

from fastapi import Response

from parley.core.token_bucket import TokenBucket
from parley.runtime.loop_clock import LoopClock
from parley.serving.gateway.limits import ConcurrencyLimit, Slot
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerTuning

# A page of an administrator reads a session or two at once.
BURST_S = 4
# Share of all clients together, as a multiple of the share of one.
ALL_SHARES = 4
MOST_READS = 64
# A view for the model is small and takes 20 ms to make, about as long as sending a page of this size.
VIEW_COST_BYTES = 1_000_000


class ReadPace:
    """Reads of all clients of a server.

    Args:
        settings: share of one client.
    """

    def __init__(self, settings: ServerTuning) -> None:
        self._bytes_per_s = settings.read_bytes_per_s
        self._counted = COUNTED_CLIENTS
        self._clock = LoopClock()
        self._reads = ConcurrencyLimit(
            MOST_READS,
            f"{MOST_READS} long answers are being read, try again in a moment",
            each=settings.max_client_reads,
            each_full=f"you read {settings.max_client_reads} long answers already, end those first",
        )
        # Least recently seen first: the oldest is evicted.
        self._clients: dict[str, TokenBucket] = {}
        self._all = TokenBucket(ALL_SHARES * self._bytes_per_s, ALL_SHARES * BURST_S * self._bytes_per_s)

    def take(self, client: str) -> Slot:
        """Begin to read.

        Raises:
            ShareError, CapacityError: too many reads are in progress.
        """
        return self._reads.take(client)

    async def made(self, client: str, make: Callable[[], str]) -> Response:
        """Return a JSON answer that ``make`` writes in a thread, when it may be sent.

        Raises:
            ShareError, CapacityError: as ``take`` does.
        """
        with self.take(client):
            body = (await asyncio.to_thread(make)).encode()
            await self.read(client, len(body))
        return Response(body, media_type="application/json")

    async def read(self, client: str, size_bytes: int) -> None:
        """Count a read of a client, and return when it may be sent."""
        now_us = self._clock.now_us()
        own = self._clients.pop(client, None) or TokenBucket(self._bytes_per_s, BURST_S * self._bytes_per_s)
        self._clients[client] = own
        if len(self._clients) > self._counted:
            del self._clients[next(iter(self._clients))]
        own.overdraw(size_bytes, now_us)
        self._all.overdraw(size_bytes, now_us)
        await asyncio.sleep(max(own.owed_us(now_us), self._all.owed_us(now_us)) / 1_000_000)
