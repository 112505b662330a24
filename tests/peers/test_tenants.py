"""Limits of two tenants over two real server processes with one store."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.evals.harness.launcher import PRODUCT, Server, command, free_port, started
from parley.evals.harness.sessions import operator_headers

KEYS = {"acme": "acme-key-0123456789", "blue": "blue-key-0123456789"}
PHRASE = "I am sorry, I have to end our call now."
WITHIN_S = 120.0


def server(folder: Path, name: str, limits: str) -> AbstractAsyncContextManager[Server]:
    """Start a server of a deployment whose tenant acme has the limits."""
    config = folder / "tenants.yaml"
    named = f"acme: {{keys_env: ACME_KEYS, limits: {limits}}}, blue: {{keys_env: BLUE_KEYS}}"
    config.write_text(
        "bot: {greeting: 'Hello there.'}\nhearing: {spare_processes: false}\n"
        f"server: {{admission: 'off', tenants: {{named: {{{named}}}, phrase: {json.dumps(PHRASE)}}}}}\n"
    )
    environment = {
        "PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db",
        "ACME_KEYS": KEYS["acme"],
        "BLUE_KEYS": KEYS["blue"],
    }
    port = free_port()
    arguments = command(PRODUCT, port, "--config", str(config))
    return started(arguments, port, folder / f"{name}.log", environment=environment)


def call(url: str, tenant: str) -> connect:
    headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
    address = f"ws{url.removeprefix('http')}/v1/realtime?model=parley-cascade"
    return connect(address, additional_headers=headers, open_timeout=WITHIN_S, max_size=None)


async def until_talking(socket: ClientConnection) -> None:
    async with asyncio.timeout(WITHIN_S):
        while json.loads(await socket.recv())["type"] != "session.created":
            pass


async def test_a_tenant_has_as_many_calls_as_it_may_on_both_servers_together(tmp_path: Path):
    async with AsyncExitStack() as stack:
        limits = "{concurrent_calls: 1}"
        first, second = [
            await stack.enter_async_context(server(tmp_path, name, limits)) for name in ("first", "second")
        ]
        async with call(first.url, "acme") as held, call(second.url, "blue") as other:
            await until_talking(held)
            await until_talking(other)
            for each in (first, second):
                with pytest.raises(InvalidStatus) as refused:
                    await call(each.url, "acme").__aenter__()
                answer = refused.value.response
                assert answer.status_code == 429 and answer.headers["Retry-After"] == "5"
                assert b"tenant acme has used up its limit concurrent_calls (1)" in bytes(answer.body or b"")
        async with asyncio.timeout(WITHIN_S), httpx.AsyncClient(headers=operator_headers()) as client:
            while True:
                view = (await client.get(f"{second.url}/api/admin/tenants")).json()["tenants"]
                used = {each["name"]: each for each in view[0]["limits"]}
                if used["concurrent_calls"]["used"] == 0 and used["calls_per_day"]["used"] == 1:
                    break
                await asyncio.sleep(0.2)
        async with call(second.url, "acme") as again:
            await until_talking(again)


@pytest.mark.slow
async def test_a_call_whose_minutes_are_used_up_ends_after_a_goodbye(tmp_path: Path):
    async with server(tmp_path, "one", "{minutes_per_day: 0.05}") as one, call(one.url, "acme") as socket:
        said: list[str] = []
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(WITHIN_S):
                while True:
                    event = json.loads(await socket.recv())
                    if event["type"].endswith("audio_transcript.done"):
                        said.append(event["transcript"])
        assert PHRASE in said
        with pytest.raises(InvalidStatus) as refused:
            await call(one.url, "acme").__aenter__()
        assert refused.value.response.status_code == 429
