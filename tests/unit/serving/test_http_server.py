"""The gateway in uvicorn on a real socket: slow bodies, silent sockets, stopping."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from pipecat.evals.serializer import EvalConnectionFlags, eval_connect_message
from pipecat.runner.types import RunnerArguments, WebSocketRunnerArguments
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.transports.webrtc.signaling import Signaling
from tests.peers.webrtc_caller import Caller
from tests.served_app import served_app

EVAL_CONNECT = eval_connect_message(EvalConnectionFlags())
HALF_A_REQUEST = b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


@dataclass
class Gateway:
    """A running server whose conversations last until ``end`` is set.

    Attributes:
        begun: set when a conversation has begun.
    """

    server: uvicorn.Server
    serving: asyncio.Task[None]
    port: int
    arguments: list[RunnerArguments]
    begun: asyncio.Event
    end: asyncio.Event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def half_a_request(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(HALF_A_REQUEST)
        await writer.drain()
        return reader, writer

    def socket(self, **more: Any) -> connect:
        return connect(f"ws://127.0.0.1:{self.port}/ws", **more)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Gateway]:
    bounds = ServerTuning(
        **{"drain_s": 0.05, "hang_up_s": 0.2, "stop_requests_s": 0, "max_calls": 1, **settings}
    )
    arguments: list[RunnerArguments] = []
    begun, end = asyncio.Event(), asyncio.Event()

    async def converse(given: RunnerArguments) -> None:
        arguments.append(given)
        begun.set()
        await end.wait()

    app = create_app(
        bounds,
        run_call=converse,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=bounds.max_calls, hang_up_s=bounds.hang_up_s),
    )
    async with served_app(app, bounds) as here:
        yield Gateway(here.server, here.serving, here.port, arguments, begun, end)


async def closed(peer: ClientConnection) -> tuple[int, str]:
    """Return code and reason with which the server closes a socket."""
    with pytest.raises(ConnectionClosed) as raised:
        await asyncio.wait_for(peer.recv(), 5)
    assert raised.value.rcvd is not None
    return raised.value.rcvd.code, raised.value.rcvd.reason


async def opens_a_call(gateway: Gateway) -> int:
    caller = Caller()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        status = (await client.post("/api/offer", json=await caller.offer())).status_code
    await caller.hang_up()
    return status


async def test_a_body_that_does_not_arrive_gets_408_and_the_connection_closes():
    async with running(body_s=0.05) as gateway:
        reader, writer = await gateway.half_a_request()
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 0.05 s" in answer
        writer.close()


async def test_a_body_over_the_limit_gets_413_and_the_connection_closes():
    async with running() as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(HALF_A_REQUEST.replace(b": 100", b": 1000000"))
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_half_a_request_does_not_keep_a_stopping_server():
    async with running(body_s=600) as gateway:
        _, writer = await gateway.half_a_request()
        # It was answered, so the first half has arrived too.
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            await client.get("/health")
        gateway.server.should_exit = True
        await asyncio.wait_for(gateway.serving, 5)
        writer.close()


async def test_a_connection_without_a_request_is_closed_after_its_time():
    async with running(keep_alive_s=1) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for _ in range(2):
            # Not before: the second request must find an open connection.
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().lower()
            assert head.startswith("http/1.1 200 ")
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
            await asyncio.sleep(0.5)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


def test_a_connection_outlives_the_one_to_the_balancer_in_front():
    assert ServerTuning().keep_alive_s > 60


async def test_a_silent_socket_takes_no_line_and_is_closed():
    async with running(max_calls=1, socket_open_s=0.05) as gateway, gateway.socket() as silent:
        assert await opens_a_call(gateway) == 200
        code, reason = await closed(silent)
        assert code == 1008
        assert "no first message arrived within 0.05 s" in reason
        assert len(gateway.arguments) == 1


async def test_sockets_that_say_nothing_are_bounded():
    async with running(max_calls=2) as gateway, gateway.socket(), gateway.socket(), gateway.socket() as third:
        assert (await closed(third))[0] == 1013


async def test_the_evaluation_tool_gets_a_conversation_and_one_too_many_is_refused():
    async with running(max_calls=1) as gateway, gateway.socket() as first:
        await first.send(EVAL_CONNECT)
        await asyncio.wait_for(gateway.begun.wait(), 5)
        assert isinstance(gateway.arguments[0], WebSocketRunnerArguments)
        assert await opens_a_call(gateway) == 503
        with pytest.raises(InvalidStatus) as refused:
            await gateway.socket()
        assert refused.value.response.status_code == 403
        # After its conversation has ended, the socket is closed and the line free.
        gateway.end.set()
        assert (await closed(first))[0] == 1000
        assert await opens_a_call(gateway) == 200


async def test_one_address_that_says_nothing_more_does_not_hold_every_line():
    limits = {"clients": {"anonymous": {"max_calls": 1}}}
    async with running(max_calls=2, **limits) as gateway, gateway.socket() as first:
        await first.send(EVAL_CONNECT)
        await asyncio.wait_for(gateway.begun.wait(), 5)
        # There is a line, but for another address.
        with pytest.raises(InvalidStatus):
            await gateway.socket()
        gateway.end.set()
        assert (await closed(first))[0] == 1000
        async with gateway.socket():
            pass


@pytest.mark.parametrize(
    "messages",
    [
        ["not json", "nor this"],
        ["[]", "{}"],
        ["5", "6"],
        ["[" * 100_000, "{}"],
        [EVAL_CONNECT.replace("false", "[]"), "{}"],
        [EVAL_CONNECT.replace("eval-connect", "hello"), "{}"],
        [json.dumps({"event": "start", "start": {"streamSid": "a", "callSid": "b"}}), "{}"],
        [json.dumps({"event": "start", "start": None}), json.dumps({"event": "start", "start": 5})],
    ],
)
async def test_a_socket_that_says_something_else_is_closed(messages: list[str | bytes]):
    async with running() as gateway, gateway.socket() as peer:
        for message in messages:
            await peer.send(message)
        assert (await closed(peer))[0] == 1008
        assert gateway.arguments == []


async def test_a_socket_that_leaves_before_it_says_anything_harms_nobody():
    async with running(max_calls=1) as gateway:
        for _ in range(3):
            async with gateway.socket():
                pass
        assert await opens_a_call(gateway) == 200


async def test_a_conversation_over_the_socket_is_a_new_session_of_its_client():
    async with running(max_calls=2, sessions_per_minute=1) as gateway, gateway.socket():
        with pytest.raises(InvalidStatus) as refused:
            await gateway.socket()
        assert refused.value.response.status_code == 403
        assert await opens_a_call(gateway) == 429


async def test_the_socket_can_be_switched_off():
    async with running(eval_socket=False) as gateway:
        with pytest.raises(InvalidStatus):
            await gateway.socket()


@pytest.mark.parametrize(
    "headers", [{"Host": "rebound.example"}, {"Origin": "http://evil.example"}], ids=["host", "origin"]
)
async def test_a_socket_of_a_foreign_page_is_refused(headers: dict[str, str]):
    async with running() as gateway:
        with pytest.raises(InvalidStatus) as refused:
            await gateway.socket(additional_headers=headers)
        assert refused.value.response.status_code == 403


async def test_calls_end_before_their_sockets_are_closed_and_say_why_themselves():
    async with running(drain_s=0.3) as gateway, gateway.socket() as peer:
        await peer.send(EVAL_CONNECT)
        await asyncio.wait_for(gateway.begun.wait(), 5)
        gateway.server.should_exit = True
        asyncio.get_running_loop().call_later(0.15, gateway.end.set)
        # The call ended by itself in time: 1000, and not uvicorn's 1012.
        assert (await closed(peer))[0] == 1000
        await asyncio.wait_for(gateway.serving, 5)


async def test_a_server_that_is_told_twice_waits_for_nobody():
    async with running(drain_s=600) as gateway, gateway.socket() as peer:
        await peer.send(EVAL_CONNECT)
        await asyncio.wait_for(gateway.begun.wait(), 5)
        gateway.server.should_exit = True
        await asyncio.sleep(0.2)
        assert not gateway.serving.done()
        gateway.server.force_exit = True
        await asyncio.wait_for(gateway.serving, 5)


async def test_one_address_leaves_places_to_sockets_of_others_that_open():
    async with running(max_calls=8, trusted_proxies=("127.0.0.1",)) as gateway:
        flood = {"x-forwarded-for": "203.0.113.7"}
        async with (
            gateway.socket(additional_headers=flood),
            gateway.socket(additional_headers=flood),
            gateway.socket(additional_headers=flood) as third,
        ):
            code, reason = await closed(third)
            assert code == 1013 and "of this address" in reason
            async with gateway.socket(additional_headers={"x-forwarded-for": "203.0.113.8"}) as other:
                await other.send(EVAL_CONNECT)
                await asyncio.wait_for(gateway.begun.wait(), 5)
