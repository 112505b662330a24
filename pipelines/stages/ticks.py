"""Destinations of the record of each unit of a full-duplex engine: a log, and a client that shows votes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial

from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.call_events import ReplyCut, UnitTaken, VoteChanged
from parley.core.units import Tick, Vote
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.pipeline_input import PipelineInput
from parley.runtime.event_stream import CallEvents
from parley.telemetry.ticks import SUFFIX, TickLog

# Largest log of the ticks of one call, and how long it is kept.
LOG_BYTES = 64_000_000
LOG_DAYS = 30

# Longest wait, at the end of a call, for lines of a log on a slow disk.
LOG_S = 2.0
# Interval at which votes are sent to a client, and the most at a time.
VOTES_S = 0.4
MOST_VOTES = 64

WriteTick = Callable[[Tick], None]


class UnitRecords:
    """Records of one call's units: written to a log, and sent to a client as one letter each, some at a time.

    Args:
        events: events of the call.
        write: writes one record.
    """

    def __init__(self, events: CallEvents, write: WriteTick) -> None:
        self._events, self._write = events, write
        self._votes = ""
        self._vote: Vote | None = None
        events.subscribe(UnitTaken, self._on_unit_taken)

    def _on_unit_taken(self, event: UnitTaken) -> None:
        tick = event.tick
        self._write(tick)
        if tick.vote is not self._vote:
            self._vote = tick.vote
            self._events.publish(VoteChanged(self._events.now_ms(), tick.vote.value))
        if tick.vote is Vote.YIELD:
            self._events.publish(ReplyCut(self._events.now_ms(), "engine", None))
        self._votes = (self._votes + tick.vote.value[0])[-MOST_VOTES:]

    async def run(self, pipeline: PipelineInput, unit_ms: Callable[[], int]) -> None:
        """Send the client its votes until cancelled; ``unit_ms`` returns the unit of the present engine."""
        while True:
            await asyncio.sleep(VOTES_S)
            votes, self._votes = self._votes, ""
            if votes:
                data = {"kind": "votes", "votes": votes, "unit_ms": unit_ms()}
                await pipeline.queue(RTVIServerMessageFrame(data=data))


@asynccontextmanager
async def tick_log(engines: Engines, call: Call) -> AsyncIterator[WriteTick]:
    """Open the log of a call's units, where the deployment has one."""
    duplex = engines.deployment.duplex
    if duplex.tick_log is None:
        yield lambda _tick: None
        return
    head = {
        "call_id": call.call_id,
        "engine": duplex.engine.name,
        "transport": call.transport,
        "deployment": engines.deployment.name,
    }
    path = duplex.tick_log / f"{call.call_id}{SUFFIX}"
    log = TickLog(path, head, limit_bytes=LOG_BYTES, keep_days=LOG_DAYS)
    try:
        yield partial(_write, log)
    finally:
        log.close()
        await asyncio.to_thread(log.join, LOG_S)


def _write(log: TickLog, tick: Tick) -> None:
    line = asdict(tick)
    # Spoken text is in the session, and nowhere else.
    line["letters"] = len(line.pop("text"))
    line["vote"] = tick.vote.value
    log.write(line)
