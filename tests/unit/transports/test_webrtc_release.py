"""Closed connections are freed by reference counting."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.core.errors import PeerError
from parley.transports.webrtc.signaling import OfferRequest, Signaling
from tests.peers.webrtc_caller import Caller, until_state
from tests.unit.transports.test_signaling import offer_sdp, until


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Room:
    """A door that keeps no connection alive.

    Attributes:
        parts: weak references to the parts of its connections.
    """

    def __init__(self) -> None:
        self.parts: list[weakref.ref[Any]] = []
        self.door = Signaling(self.on_call, max_calls=4, connect_s=5.0, hang_up_s=1.0)

    async def on_call(self, connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
        self.note(connection)
        await connection.connect()

    def note(self, connection: SmallWebRTCConnection) -> None:
        peer = connection.pc
        parts = [connection, peer, *peer.getTransceivers(), *peer.getReceivers(), *peer.getSenders()]
        parts += [peer.getReceivers()[0].transport, peer.getReceivers()[0].transport.transport]
        self.parts += [weakref.ref(part) for part in parts]

    def alive(self) -> list[str]:
        return [type(part).__name__ for ref in self.parts if (part := ref()) is not None]

    def connection(self) -> SmallWebRTCConnection:
        connection = self.parts[0]()
        assert isinstance(connection, SmallWebRTCConnection)
        return connection


def decoder_of(room: Room) -> threading.Thread | None:
    receiver = room.connection().pc.getReceivers()[0]
    decoder = vars(receiver)["_RTCRtpReceiver__decoder_thread"]
    assert decoder is None or isinstance(decoder, threading.Thread)
    return decoder


async def call(room: Room, *, is_settled: bool = True, **more: Any) -> tuple[Caller, str]:
    caller = Caller()
    answer = await room.door.offer(OfferRequest(**await caller.offer(), **more))
    await caller.accept(answer)
    await until_state(caller.connection, "connected")
    if is_settled:
        await until_state(room.connection().pc, "connected")
    return caller, answer["pc_id"]


async def test_a_connection_that_is_hung_up_is_freed_with_its_decoder_thread():
    room = Room()
    caller, _ = await call(room)
    await until(lambda: decoder_of(room) is not None)
    decoder = decoder_of(room)
    await room.door.hang_up(room.connection())
    await caller.hang_up()
    await until(lambda: not room.alive())
    assert isinstance(decoder, threading.Thread)
    await until(lambda: not decoder.is_alive())


async def test_a_connection_that_is_hung_up_during_its_handshake_is_freed():
    room = Room()
    caller, _ = await call(room, is_settled=False)
    await room.door.hang_up(room.connection())
    await caller.hang_up()
    await until(lambda: not room.alive())


async def test_a_connection_whose_peer_hangs_up_is_freed():
    room = Room()
    caller, pc_id = await call(room)
    await caller.hang_up()
    await until(lambda: not room.door.is_open(pc_id))
    # As the owner of its conversation does, however that ends.
    await room.door.hang_up(room.connection())
    await until(lambda: not room.alive())


async def test_a_peer_connection_that_a_restart_replaces_is_freed_while_the_call_goes_on():
    room = Room()
    first, pc_id = await call(room)
    replaced = room.parts[1:]
    second, pc_id = await call(room, pc_id=pc_id, restart_pc=True)
    await first.hang_up()
    await until(lambda: all(ref() is None for ref in replaced))
    assert room.door.is_open(pc_id)
    await second.hang_up()
    await room.door.close()
    await until(lambda: not room.alive())


async def test_a_connection_whose_conversation_is_refused_is_freed():
    class Full(Room):
        async def on_call(self, connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
            self.note(connection)
            raise PeerError("no")

    room = Full()
    with pytest.raises(PeerError):
        await room.door.offer_json({"sdp": await offer_sdp(), "type": "offer"})
    await until(lambda: not room.alive())


async def test_handlers_of_the_last_event_run_before_a_connection_is_released():
    room = Room()
    caller, _ = await call(room)
    closed = asyncio.Event()

    @room.connection().event_handler("closed")
    async def on_closed(_connection: SmallWebRTCConnection) -> None:
        await asyncio.sleep(0)
        closed.set()

    await room.door.hang_up(room.connection())
    assert closed.is_set()
    await caller.hang_up()
