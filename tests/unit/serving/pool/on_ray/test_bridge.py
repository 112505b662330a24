"""Calls in the Ray process of a gateway: their deadlines and faults."""

import asyncio

from parley.core.errors import PeerError
from parley.serving.pool.on_ray.bridge import answer_call
from parley.serving.pool.on_ray.messages import RayCall


class Methods:
    """Methods that calls name."""

    def __init__(self) -> None:
        self.is_over = False

    async def hang(self) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            self.is_over = True
        return ""

    async def fail(self, key: str) -> str:
        raise KeyError(key)

    async def miss(self) -> str:
        raise PeerError("w: it is being restarted")

    async def double(self, text: str) -> str:
        return 2 * text


async def test_a_call_ends_when_its_gateway_waits_no_longer() -> None:
    methods = Methods()
    async with asyncio.timeout(20):
        reply = await answer_call(methods, RayCall(3, "hang", {}, 0.01))
    assert methods.is_over and (reply.number, reply.error) == (3, "hang: no answer within 0.01 s")


async def test_a_fault_of_one_call_is_its_reply() -> None:
    methods = Methods()
    replies = [
        await answer_call(methods, RayCall(1, "fail", {"key": "w"}, 5)),
        await answer_call(methods, RayCall(2, "miss", {}, 5)),
        await answer_call(methods, RayCall(3, "double", {"text": "ab"}, 5)),
    ]
    assert [each.error for each in replies] == ["fail failed: KeyError", "w: it is being restarted", ""]
    assert replies[2].result == "abab"
