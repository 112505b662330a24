"""``/ready``: whether a process should get new calls; ``/health`` reports that it is alive."""

import asyncio
from pathlib import Path

import httpx
from pipecat.runner.types import RunnerArguments

from parley.serving.gateway.app import create_app
from parley.serving.gateway.health import FULL_S
from parley.serving.gateway.settings import ServerTuning
from parley.transports.webrtc.signaling import Signaling
from tests import virtual_time
from tests.peers.session_gateway import Turns, application, client_of


async def ready(client: httpx.AsyncClient) -> tuple[int, list[str]]:
    answer = await client.get("/ready")
    assert (await client.get("/health")).status_code == 200
    return answer.status_code, answer.json()["reasons"]


def test_a_full_server_is_not_ready_after_a_while_and_lives():
    async def scenario() -> None:
        ends = asyncio.Event()

        async def run_call(_arguments: RunnerArguments) -> None:
            await ends.wait()

        async def hang_up() -> None: ...

        deaf: list[str] = []
        app = create_app(
            ServerTuning(max_calls=1),
            run_call=run_call,
            describe=dict,
            open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
            readiness=lambda: deaf,
        )
        async with client_of(app) as client:
            assert await ready(client) == (200, [])
            call = app.state.calls.start(RunnerArguments(), call_id="one", hang_up=hang_up)
            await asyncio.sleep(FULL_S - 1)
            assert await ready(client) == (200, [])
            await asyncio.sleep(1)
            assert await ready(client) == (503, ["every line has been taken for 10 s"])
            ends.set()
            await call
            await asyncio.sleep(0)
            assert await ready(client) == (200, [])
            deaf.append("the recogniser hears nothing")
            assert await ready(client) == (503, ["the recogniser hears nothing"])
            deaf.clear()
            await app.state.drain()
            assert await ready(client) == (503, ["the server is stopping"])

    virtual_time.run(scenario())


async def test_a_server_whose_store_is_away_is_not_ready_and_lives(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, _), client_of(app) as client:
        assert await ready(client) == (200, [])
    async with application(tmp_path, Turns()) as (app, store), client_of(app) as client:
        # The store had no request yet, and nothing is written.
        await store.close()
        assert await ready(client) == (503, ["the session store is unavailable"])
