"""Data channel with a client's own protocol, against the real aiortc: both directions, bounds and ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.protocols.client_protocol import ProtocolError
from parley.transports.webrtc.event_channel import MOST_PUT_CHARS, MOST_WAITING, EventChannel, EventConnection
from parley.transports.webrtc.signaling import Signaling
from tests.peers.event_caller import EventCaller
from tests.peers.webrtc_caller import Caller, until_state


@asynccontextmanager
async def answered(caller: Caller) -> AsyncIterator[EventConnection]:
    """Answer a client's offer; yield the connection, which may not be up yet."""
    made: list[SmallWebRTCConnection] = []

    async def on_call(connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
        made.append(connection)

    door = Signaling(on_call, max_calls=1, hang_up_s=2)
    try:
        await caller.accept(await door.offer_json({**await caller.offer()}, has_events=True))
        [connection] = made
        assert isinstance(connection, EventConnection)
        yield connection
    finally:
        await door.close()
        await caller.hang_up()


async def within(seconds: float, events: EventChannel) -> str | None:
    async with asyncio.timeout(seconds):
        return await events.receive()


async def test_events_go_both_ways_in_order_and_pipecat_reads_none():
    caller = EventCaller()
    async with answered(caller) as connection:
        events, read = connection.events, list[object]()

        async def on_message(_connection: SmallWebRTCConnection, message: object) -> None:
            read.append(message)

        connection.add_event_handler("app-message", on_message)
        events.take_when_up("of the offer")
        assert await events.connected()
        assert await events.send('{"type": "session.created"}')
        await caller.until(lambda: caller.messages)
        for number in range(3):
            caller.send({"type": "session.update", "number": number})
        assert await within(5, events) == "of the offer"
        came = [await within(5, events) for _ in range(3)]
        assert [json.loads(str(text))["number"] for text in came] == [0, 1, 2]
        # Not JSON at all, and none of Pipecat's signs of life: its own protocol refuses it.
        caller.channel.send("ping: 1")
        assert await within(5, events) == "ping: 1"
        # None of Pipecat's messages goes to the client either.
        connection.send_app_message({"type": "signalling"})
        await events.send('{"type": "last"}')
        await caller.until(lambda: caller.messages[-1]["type"] == "last")
        assert caller.types() == ["session.created", "last"] and not read


class ChannelFirst(EventCaller):
    """Client whose offer has the data channel before the tracks."""

    async def offer(self) -> dict[str, str]:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.open_channel("oai-events")
        await self.connection.setLocalDescription(await self.connection.createOffer())
        self.connection.addTrack(self.microphone)
        return await super().offer()


async def test_the_data_channel_may_be_offered_before_the_tracks():
    caller = ChannelFirst()
    async with answered(caller) as connection:
        assert caller.connection.localDescription.sdp.index("m=application") < (
            caller.connection.localDescription.sdp.index("m=audio")
        )
        assert await connection.events.connected() and await connection.events.send('{"type": "first"}')
        await caller.until(lambda: caller.types() == ["first"])
        assert connection.audio_input_track() is not None


async def test_a_message_that_the_guard_drops_is_a_refusal():
    caller = EventCaller()
    async with answered(caller) as connection:
        assert await connection.events.connected()
        await connection.events.send("{}")
        await caller.until(lambda: caller.channel.readyState == "open")
        caller.channel.send(b"\xff\xfe")
        with pytest.raises(ProtocolError) as refused:
            await within(5, connection.events)
        assert refused.value.code == "invalid_json"


async def test_events_that_are_not_read_are_bounded():
    caller = EventCaller()
    async with answered(caller) as connection:
        events = connection.events
        for number in range(MOST_WAITING + 50):
            events.take(str(number))
        assert [await within(1, events) for _ in range(MOST_WAITING)] == list(map(str, range(MOST_WAITING)))
        with pytest.raises(ProtocolError, match="too many"):
            await within(1, events)
        events.take("after")
        assert await within(1, events) == "after"


async def test_long_texts_of_further_connections_wait_for_one_another():
    caller = EventCaller()
    async with answered(caller) as connection:
        events = connection.events
        long = "x" * (MOST_PUT_CHARS + 1)
        await events.put(long)
        second = asyncio.create_task(events.put("second"))
        events.take("of the client itself")
        assert [await within(1, events) for _ in range(2)] == [long, "of the client itself"]
        await second
        assert await within(1, events) == "second"


async def test_settings_of_an_offer_are_read_when_its_client_has_come():
    caller = EventCaller()
    await caller.offer()
    events = EventChannel(SmallWebRTCConnection())
    events.take_when_up("of the offer")
    with pytest.raises(TimeoutError):
        await within(0.05, events)
    await caller.hang_up()


async def test_the_events_end_with_the_channel_of_the_client():
    caller = EventCaller()
    async with answered(caller) as connection:
        assert await connection.events.connected()
        await connection.events.send("{}")
        await caller.until(lambda: caller.channel.readyState == "open")
        caller.send({"type": "last"})
        caller.channel.close()
        assert json.loads(str(await within(5, connection.events))) == {"type": "last"}
        assert await within(5, connection.events) is None
        assert not await connection.events.send("{}")


async def test_hanging_up_closes_the_channel_after_the_last_event():
    caller = EventCaller()
    async with answered(caller) as connection:
        assert await connection.events.connected()
        closed = asyncio.Event()
        caller.channel.on("close", closed.set)
        # More than the client's description of the connection says that it takes.
        assert await connection.events.send("x" * 300_000)
        await connection.events.send(json.dumps({"type": "error", "text": "x" * 100_000}))
        await connection.disconnect()
        async with asyncio.timeout(5):
            await closed.wait()
        assert caller.types() == ["error"]
        await until_state(caller.connection, "closed", within_s=5)


async def test_a_client_that_never_connects_is_none():
    caller = Caller()
    sent = await caller.offer()
    made: list[SmallWebRTCConnection] = []

    async def on_call(connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
        made.append(connection)

    door = Signaling(on_call, max_calls=1, connect_s=0.1, hang_up_s=1)
    await door.offer_json({**sent}, has_events=True)
    [connection] = made
    assert isinstance(connection, EventConnection)
    async with asyncio.timeout(5):
        assert not await connection.events.connected()
    assert await connection.events.receive() is None
    await door.close()
    await caller.hang_up()


async def test_a_client_without_a_channel_is_served_without_events():
    connection = SmallWebRTCConnection()
    events = EventChannel(connection, open_s=0.05)
    async with asyncio.timeout(5):
        assert await events.send("{}") and await events.send("{}")
    await connection.disconnect()
    await connection.pc.close()
