"""A browser that hangs up while its pipeline is being built ends its call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.workers.runner import WorkerRunner

from parley.runtime.event_stream import CallEvents
from parley.transports.webrtc.early_peer import EarlyPeer
from parley.transports.webrtc.signaling import OfferRequest, Signaling
from parley.transports.webrtc.transport import PacedWebRTCTransport
from tests.peers.webrtc_caller import Caller, until_state
from tests.unit.transports.test_signaling import until


@asynccontextmanager
async def ended_connection() -> AsyncIterator[SmallWebRTCConnection]:
    """Yield a connection whose peer was connected and has hung up."""
    connections: list[SmallWebRTCConnection] = []

    async def on_call(connection: SmallWebRTCConnection, _body: dict[str, Any]) -> None:
        connections.append(connection)

    signaling = Signaling(on_call, max_calls=1)
    caller = Caller()
    answer = await signaling.offer(OfferRequest(**await caller.offer()))
    await caller.accept(answer)
    await until_state(caller.connection, "connected")
    (connection,) = connections
    await until_state(connection.pc, "connected")
    await caller.hang_up()
    await until(lambda: not signaling.is_open(answer["pc_id"]))
    yield connection
    await signaling.hang_up(connection)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_pipeline_that_begins_after_its_peer_has_hung_up_ends():
    async with ended_connection() as connection:
        transport = PacedWebRTCTransport(
            connection,
            TransportParams(audio_in_enabled=True, audio_out_enabled=True),
            events=CallEvents(),
        )
        worker = PipelineWorker(Pipeline([transport.input(), transport.output()]))

        @transport.event_handler("on_client_disconnected")
        async def on_gone(_transport: object, _connection: object) -> None:
            await worker.cancel()

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        try:
            # Not ``asyncio.timeout``: a worker that is cancelled returns as if it had ended.
            ended, _ = await asyncio.wait({running}, timeout=5)
            assert ended
        finally:
            await runner.cancel()
            await running


async def test_a_browser_that_hung_up_before_it_was_watched_has_left():
    async with ended_connection() as connection:
        async with asyncio.timeout(1):
            await EarlyPeer(connection, vanish_ms=600).left()
