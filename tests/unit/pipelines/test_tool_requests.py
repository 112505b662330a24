"""Calls of tools that the client of a socket runs: outputs on their way when the client leaves."""

import asyncio

from pipecat.transports.base_transport import TransportParams

from parley.pipelines.sockets.reply_usage import ReplyUsage
from parley.pipelines.sockets.tool_requests import REQUESTED_S, ToolRequests
from parley.protocols.client_protocol import Began
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.runtime.event_stream import CallEvents
from parley.transports.websocket.session import SocketCall
from parley.transports.websocket.transport import SocketTransport
from tests import virtual_time
from tests.unit.pipelines.test_chat_sockets import Client


def output_of(left_after_s: float, *, timeout_s: float = 60.0) -> str:
    """Return the result of a call whose client answers after a second, and leaves some time later."""

    async def scenario() -> str:
        client = Client()
        session = SocketCall(client, OpenAIRealtime("parley"), rate_hz=16_000)
        session.open()
        session.happen(Began("session-1"))
        transport = SocketTransport(
            session,
            TransportParams(),
            input_rate_hz=16_000,
            on_packet=lambda _pcm: None,
            receiver=lambda: None,
            reply_of=lambda _context: None,
            reply_named=lambda _frame: None,
        )
        asked = ToolRequests(transport, ReplyUsage(CallEvents(), transport.report))
        call = asyncio.create_task(asked.run("key", "order", "{}", timeout_s))
        called = await client.until("response.function_call_arguments.done")
        await asyncio.sleep(1)
        asked.answer(called["call_id"], '{"order": 7}')
        await asyncio.sleep(left_after_s)
        client.leave()
        try:
            return await call
        finally:
            await session.close()

    return virtual_time.run(scenario())


def test_an_output_is_kept_when_the_client_leaves_directly_after_it():
    assert output_of(REQUESTED_S / 3) == '{"order": 7}'


def test_an_output_that_comes_at_the_end_of_its_time_is_kept():
    assert output_of(5.0, timeout_s=1 + REQUESTED_S / 3) == '{"order": 7}'
