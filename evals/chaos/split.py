"""Network between the server and a worker that is split: nothing passes, and no connection is closed.

A relay stands for the network. While it is split it keeps what either side sends, as TCP does, which sends
it again when packets pass. The client of the engine must give the clause up at its deadline, the worker must
end the lease by its own clock, and after the split nothing of the old clause may be spoken.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parley.evals.chaos.workers import BEYOND_S, OPEN_S, REQUEST_S, Clause, voice_of
from parley.evals.fuzz.run import SECRET_ENV, WORKER_NAME, voice_worker
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.worker import OneWorker, WorkerAddress
from parley.runtime.engine_hosting.messages import MessageType
from parley.serving.worker.settings import WorkerServerSettings

if TYPE_CHECKING:
    from parley.evals.chaos.rows import ChaosRun

PIECE_BYTES = 65_536
# A lease that is not renewed ends; then the conversation is cleaned up.
LEASE_S = WorkerServerSettings().lease_ms / 1000
STATE_S = 5.0


class Relay:
    """Way to a server that can be split.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._whole = asyncio.Event()
        self._whole.set()
        self._ways: set[asyncio.Task[None]] = set()
        self.url = ""

    def split(self) -> None:
        """Let nothing pass."""
        self._whole.clear()

    def heal(self) -> None:
        """Let everything pass, also what waits."""
        self._whole.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Relay"]:
        """Serve on a free port until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for way in self._ways:
                way.cancel()
            await asyncio.gather(*self._ways, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        way = asyncio.current_task()
        assert way is not None
        self._ways.add(way)
        try:
            await self._whole.wait()
            server, to_server = await asyncio.open_connection(self._host, self._port)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(client, to_server), name="split.up")
                    both.create_task(self._pass(server, to_client), name="split.down")
            finally:
                to_server.close()
        except* OSError:
            # One side has closed: so does the other.
            pass
        finally:
            self._ways.discard(way)
            to_client.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(PIECE_BYTES):
            await self._whole.wait()
            target.write(data)
            await target.drain()
        await self._whole.wait()
        with suppress(OSError):
            target.write_eof()


async def split_network(run: "ChaosRun") -> list[str]:
    """Split the network between the client of an engine and its worker, and heal it."""
    folder = run.folder / "worker-split"
    async with voice_worker(folder) as (url, _), Relay(url).running() as relay:
        voice = await asyncio.to_thread(voice_of, relay.url)
        before, during, after = Clause(), Clause(), Clause()
        try:
            await asyncio.to_thread(before.speak, voice)
            relay.split()
            began_s = time.monotonic()
            await asyncio.to_thread(during.speak, voice)
            held_s = await asyncio.to_thread(_until_free, url, began_s)
            relay.heal()
            await asyncio.to_thread(after.speak, voice)
        finally:
            await asyncio.to_thread(voice.close)
    faults = [] if before.bytes and before.error is None else [f"nothing is spoken before: {before.error}"]
    if during.error is None or during.bytes:
        faults.append("a clause is spoken over a network that is split")
    if during.took_s > REQUEST_S + BEYOND_S:
        faults.append(f"the clause is given up after {during.took_s:.1f} s, not at {REQUEST_S:g} s")
    if held_s > LEASE_S + BEYOND_S:
        faults.append(f"the worker keeps the lease for {held_s:.1f} s, not {LEASE_S:g} s")
    if after.error is not None or after.bytes != before.bytes:
        faults.append(f"afterwards {after.bytes} bytes are spoken, not {before.bytes}: {after.error}")
    return faults


def _until_free(url: str, since_s: float) -> float:
    """Return how long after a moment the worker has no stream any more. Blocks.

    Raises:
        EngineError: the worker is not reached, or does not report.
    """
    leasing = OneWorker(WorkerAddress(url=url, name=WORKER_NAME, secret_env=SECRET_ENV))
    link = ConversationLink(url, leasing.watch(), open_s=OPEN_S, write_s=REQUEST_S, engine="worker")
    try:
        facts = link.facts
        while facts["streams"] and time.monotonic() - since_s < 3 * LEASE_S:
            facts = link.next(MessageType.STATE, within_s=STATE_S).facts
    finally:
        link.close()
    return time.monotonic() - since_s
