"""Pace at which clients read, in virtual time."""

import asyncio

import pytest

from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.limits import ShareError
from parley.serving.gateway.settings import ServerTuning
from tests.virtual_time import run

MB = 1_000_000


def test_a_client_over_its_share_waits_and_another_does_not():
    waits: dict[str, float] = {}

    async def scene() -> None:
        pace = ReadPace(ServerTuning(read_bytes_per_s=MB))
        loop = asyncio.get_running_loop()
        for client, size in (("a", 4 * MB), ("a", 2 * MB), ("b", MB), ("a", MB)):
            began_s = loop.time()
            await pace.read(client, size)
            waits[client] = round(loop.time() - began_s, 3)
            if client == "a" and size == 2 * MB:
                assert waits["a"] == 2

    run(scene())
    assert waits == {"a": 1, "b": 0}


def test_all_clients_together_have_a_share_too():
    async def scene() -> float:
        pace = ReadPace(ServerTuning(read_bytes_per_s=MB))
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(pace.read(f"client-{number}", 4 * MB) for number in range(10)))
        return asyncio.get_running_loop().time() - began_s

    took: list[float] = []

    async def noted() -> None:
        took.append(await scene())

    run(noted())
    # 16 MB at once, the other 24 at 4 MB a second.
    assert took[0] == pytest.approx(6, abs=0.01)


def test_a_client_has_so_many_reads_at_a_time():
    pace = ReadPace(ServerTuning(max_client_reads=2))
    first, second = pace.take("a"), pace.take("a")
    with pytest.raises(ShareError):
        pace.take("a")
    pace.take("b")
    first.give_back()
    pace.take("a").give_back()
    second.give_back()
