"""STUN transactions without a response, which are freed when they have failed."""

import asyncio
import gc
import weakref

import pytest
from aioice import stun

from parley.transports.pipecat_internals import free_late_transactions


class Silence:
    """Sender to an address that does not answer."""

    def send_stun(self, message: stun.Message, addr: tuple[str, int]) -> None:
        pass


async def _check() -> "weakref.ref[stun.Transaction]":
    request = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    transaction = stun.Transaction(request, ("127.0.0.1", 9), Silence(), retransmissions=0)
    with pytest.raises(stun.TransactionTimeout):
        await transaction.run()
    return weakref.ref(transaction)


def test_a_check_without_a_response_is_freed_without_a_collection():
    free_late_transactions()
    gc.disable()
    try:
        assert asyncio.run(_check())() is None
    finally:
        gc.enable()
