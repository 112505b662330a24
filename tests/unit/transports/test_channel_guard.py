"""The data channel of a real peer: accepted messages, and the effect of a flood."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSctpTransport
from aiortc.rtcsctptransport import WEBRTC_STRING

from parley.runtime.loop_clock import LoopClock
from parley.transports.webrtc.channel_guard import MOST_DROPPED, SHARE, ChannelGuard
from tests.peers.webrtc_caller import until_state


class HandClock(LoopClock):
    """Clock of a budget that advances when the test says so."""

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us


class Line:
    """Two peers on loopback; the messages of the first are guarded at the second.

    Attributes:
        channel: channel of the first peer.
        sctp: SCTP transport of the second peer.
        got: messages that passed the guard.
        refused: refusals that the first peer received.
        flooded: set when the call would be ended.
    """

    def __init__(self, channel: RTCDataChannel, clock: HandClock | None) -> None:
        self.channel = channel
        self.sctp: RTCSctpTransport | None = None
        self.got: list[str] = []
        self.refused: list[dict[str, Any]] = []
        self.flooded = asyncio.Event()
        self.floods = 0
        self._news = asyncio.Event()
        self.guard = ChannelGuard(refuse=self.refused.append, on_flood=self._flood, clock=clock)

    def _flood(self) -> None:
        self.floods += 1
        self.flooded.set()

    def take(self, message: str) -> None:
        self.got.append(message)
        self._news.set()

    async def receive(self, message: str) -> None:
        """Pass a message of the first to the transport of the second, as SCTP does with a whole one."""
        assert self.sctp is not None
        await self.sctp._data_channel_receive(self.channel.id, WEBRTC_STRING, message.encode())

    async def until(self, message: str, within_s: float = 10) -> None:
        async with asyncio.timeout(within_s):
            while message not in self.got:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def line(clock: HandClock | None = None) -> AsyncIterator[Line]:
    near, far = (RTCPeerConnection(RTCConfiguration(iceServers=[])) for _ in range(2))
    one = Line(near.createDataChannel("rtvi"), clock)

    @far.on("datachannel")
    def on_channel(channel: RTCDataChannel) -> None:
        channel.on("message", one.take)

    try:
        await near.setLocalDescription(await near.createOffer())
        await far.setRemoteDescription(near.localDescription)
        await far.setLocalDescription(await far.createAnswer())
        one.sctp = far.sctp
        one.guard.attach(far.sctp)
        await near.setRemoteDescription(far.localDescription)
        await until_state(near, "connected")
        async with asyncio.timeout(5):
            while one.channel.readyState != "open":
                await asyncio.sleep(0.01)
        yield one
    finally:
        one.guard.detach()
        await asyncio.gather(near.close(), far.close())


def message(number: int, text: str = "") -> str:
    data = {"t": "note", "d": text}
    return json.dumps({"label": "rtvi-ai", "type": "client-message", "id": str(number), "data": data})


MUTED = '{"type": "signalling", "message": {"type": "trackStatus", "receiver_index": 0, "enabled": false}}'


async def test_messages_of_a_page_pass():
    async with line() as one:
        for number in range(20):
            one.channel.send(message(number, "x" * 20_000))
        one.channel.send(MUTED)
        one.channel.send("ping: 1")
        await one.until("ping: 1")
        assert one.got == [message(number, "x" * 20_000) for number in range(20)] + [MUTED, "ping: 1"]
        assert one.refused == [] and one.guard.dropped == 0


async def test_what_comes_over_the_rate_is_dropped_and_the_peer_is_told_once():
    async with line(HandClock()) as one:
        for number in range(SHARE.burst_messages + 100):
            await one.receive(message(number))
        # The message that opened the channel counted too.
        assert one.got == [message(number) for number in range(SHARE.burst_messages - 1)]
        assert one.guard.dropped == 101
        [told] = one.refused
        assert told["type"] == "error" and "messages a second" in told["data"]["error"]
        assert not one.flooded.is_set()


async def test_a_flood_ends_the_call_once_and_nothing_more_is_taken():
    clock = HandClock()
    async with line(clock) as one:
        for number in range(SHARE.burst_messages + MOST_DROPPED + 500):
            await one.receive(message(number))
        assert one.flooded.is_set()
        taken = list(one.got)
        # All that the peer has used up has come back.
        clock.us += 3_600_000_000
        await one.receive(message(0))
        assert one.got == taken and one.floods == 1


async def test_a_flood_over_a_connection_ends_the_call():
    async with line() as one:
        for number in range(SHARE.burst_messages + MOST_DROPPED + 500):
            one.channel.send(message(number))
        async with asyncio.timeout(30):
            await one.flooded.wait()


@pytest.mark.parametrize("sent", ["[" * 5_000, '{"a":', "7", b"\xff\xfe", "[" + "{}," * 30_000 + "{}]"])
async def test_what_is_no_json_object_is_answered_and_not_passed_on(sent: str | bytes):
    async with line() as one:
        one.channel.send(sent)
        one.channel.send(message(1))
        await one.until(message(1))
        assert one.got == [message(1)]
        assert len(one.refused) == 1


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"label": "rtvi-ai", "type": "client-message", "id": "1", "data": "text"},
        {"label": "rtvi-ai", "type": "client-message", "data": {}},
        {"label": "rtvi-ai", "type": "x" * 65, "id": "1"},
        {"label": "rtvi-ai", "type": ["send-text"], "id": "1"},
        {"label": "rtvi-ai", "type": "send-text", "id": "1" * 257},
        {"label": "other", "type": "send-text", "id": "1"},
        {"type": "signalling"},
        {"type": "signalling", "message": {"type": "trackStatus"}},
        {"type": "signalling", "message": [{"type": "renegotiate"}] * 1_000},
    ],
)
async def test_what_is_neither_rtvi_nor_signalling_is_answered_and_not_passed_on(sent: dict[str, Any]):
    async with line() as one:
        one.channel.send(json.dumps(sent))
        one.channel.send(message(1))
        await one.until(message(1))
        assert one.got == [message(1)]
        [refusal] = one.refused
        assert refusal["type"] == "error" and len(refusal["data"]["error"]) < 200


async def test_a_transport_that_is_left_is_as_it_was():
    async with line() as one:
        one.guard.detach()
        one.channel.send("no JSON")
        await one.until("no JSON")
