"""Reports of outside specialists faster than a server takes them, about calls of the attackers' own."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from parley.core.errors import AgentError
from parley.evals.abuse.attacks.floods import drain
from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.protocols import ANNOTATIONS, PROTOCOLS
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.serving.gateway.annotations_api import BURST, REPORTS_PER_S

CLIENTS, BATCHES_A_S, BATCH = 3, 1_000, 64
# The session has no call yet.
CONFLICT = 409
POINTING = {"stream": "vision", "age_ms": 100, "payload": {"gesture": "pointing", "ref": "the fee"}}


@asynccontextmanager
async def own_call(run: AttackRun, number: int) -> AsyncIterator[str]:
    """Hold a call that says nothing; yield the path of the socket for reports about it."""
    async with await run.socket(PROTOCOLS[0].path, number) as call:
        created = json.loads(await call.recv())
        reading = asyncio.create_task(drain(call), name="annotations.call")
        try:
            yield ANNOTATIONS.path.replace("{session_id}", created["session"]["id"])
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def when_live(run: AttackRun, path: str, number: int) -> ClientConnection:
    """Open the socket for reports as soon as its call has begun."""
    while True:
        try:
            return await run.socket(path, number)
        except InvalidStatus as error:
            if error.response.status_code != CONFLICT:
                raise
        await asyncio.sleep(0.1)


@attack("annotation-flood", "reports of outside specialists, a thousand batches a second about each call")
async def annotation_flood(run: AttackRun) -> Outcome:
    """Report as fast as it goes; a socket that is closed for its rate is opened again at once."""
    counts, ends_s = Counter[str](), run.ends_at()

    async def client(number: int) -> None:
        with suppress(*GONE, AgentError, TimeoutError):
            async with asyncio.timeout_at(ends_s), own_call(run, number) as path:
                while True:
                    async with await when_live(run, path, number) as socket:
                        await _report(socket, counts)
                    counts["closed"] += 1

    await asyncio.gather(*(client(number) for number in range(1, CLIENTS + 1)))
    faults = []
    # A batch overdraws, and the next one waits.
    if counts["accepted"] > CLIENTS * (BURST + BATCH + REPORTS_PER_S * run.seconds):
        faults.append(f"{counts['accepted']} reports were accepted")
    if not counts["accepted"]:
        faults.append("no report was accepted")
    if not counts["closed"]:
        faults.append("no socket was closed for its rate")
    return Outcome(counts["sent"], dict(counts), faults)


async def _report(socket: ClientConnection, counts: Counter[str]) -> None:
    """Send until the server closes the socket, and count the answers."""

    async def read() -> None:
        with suppress(*GONE):
            async for text in socket:
                answer = json.loads(text)
                counts["accepted"] += answer.get("accepted", 0)
                counts["refused"] += "error" in answer

    reading = asyncio.create_task(read(), name="annotations.read")
    text = json.dumps({"annotations": [POINTING] * BATCH})
    try:
        with suppress(*GONE):
            while True:
                await socket.send(text)
                counts["sent"] += 1
                await asyncio.sleep(1 / BATCHES_A_S)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
