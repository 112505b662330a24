"""Totals of model requests of a token, over two servers with one store."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from parley.core.errors import StoreUnavailableError
from parley.core.grants import ClientIdentity, Grants
from parley.serving.gateway.limits import ShareError
from tests.unit.serving.test_tenants import gateway, keys, settings_of  # noqa: F401

TOTAL = 3
CLIENT = ClientIdentity(owner=f"{'k' * 32}:ann", grants=Grants(max_requests=TOTAL, budget="a"))

pytestmark = pytest.mark.usefixtures("keys")


async def test_a_total_holds_over_two_servers_and_after_a_restart(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(gateway(tmp_path, settings_of())) for _ in range(2)]
        first, second = [server.usage for server in servers]
        await first.take(CLIENT)
        assert await second.try_take_further(CLIENT) and await first.try_take(CLIENT)
        assert not await second.try_take(CLIENT) and not await second.try_take_further(CLIENT)
        with pytest.raises(ShareError, match="has used its 3 model requests"):
            await first.take(CLIENT)
        # A turn that no total counts is not in the store.
        await first.take(replace(CLIENT, grants=Grants()))
    async with gateway(tmp_path, settings_of()) as again:
        with pytest.raises(ShareError, match="has used its 3 model requests"):
            await again.usage.take(CLIENT)


async def test_a_request_that_a_server_did_not_make_is_made_by_another(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings_of()) as first:
        for _ in range(TOTAL):
            (await first.usage.take(CLIENT)).give_back()
        for _ in range(TOTAL - 1):
            await first.usage.take(CLIENT)
        (await first.usage.take(CLIENT)).give_back()
    async with gateway(tmp_path, settings_of()) as second:
        assert [await second.usage.try_take(CLIENT) for _ in range(2)] == [True, False]


async def test_without_an_answer_of_the_store_a_token_with_a_total_gets_no_request(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings_of()) as server:
        await server.store.close()
        with pytest.raises(StoreUnavailableError):
            await server.usage.take(CLIENT)
        assert not await server.usage.try_take(CLIENT) and not await server.usage.try_take_further(CLIENT)
        assert await server.usage.try_take(replace(CLIENT, grants=Grants()))
