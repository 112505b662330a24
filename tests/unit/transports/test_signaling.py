"""Offers against the real aiortc: the answers to a hostile or broken peer, and leftovers."""

import asyncio
import gc
import itertools
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psutil
import pytest
from aiortc import RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.core.errors import CapacityError, ConfigError, PeerError
from parley.transports.webrtc.signaling import CandidateBody, CandidatesRequest, OfferRequest, Signaling
from tests.peers.webrtc_caller import Caller


class Room:
    """A door with the connections that it announced."""

    def __init__(self, **bounds: Any) -> None:
        self.connections: list[SmallWebRTCConnection] = []
        self.door = Signaling(self.on_call, **{"max_calls": 4, "connect_s": 5.0, "hang_up_s": 1.0, **bounds})

    async def on_call(self, connection: SmallWebRTCConnection, _body: dict[str, object]) -> None:
        self.connections.append(connection)
        # As a transport does when its pipeline is up.
        await connection.connect()

    async def call(self, caller: Caller, **more: Any) -> dict[str, str]:
        return await self.door.offer(OfferRequest(**await caller.offer(), **more))


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    room = Room()
    yield room
    await room.door.close()


def udp_sockets() -> int:
    return len(psutil.Process().net_connections(kind="udp"))


async def until(condition: Callable[[], Any], *, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


async def offer_sdp(*, video: bool = False) -> str:
    """Return a browser's offer: audio, data channel, and perhaps a camera."""
    caller = Caller()
    if video:
        caller.connection.addTransceiver("video")
    sdp = (await caller.offer())["sdp"]
    await caller.hang_up()
    return sdp


def without_video_codecs(sdp: str) -> str:
    """Return an offer with a camera that parses, and that aiortc cannot negotiate."""
    return re.sub(r"(a=rtpmap:\d+) \w+/90000", r"\1 nonsense/90000", sdp)


def garbled(line: str) -> str:
    """Return the line with its value reversed, its type kept."""
    return line[:2] + line[2:][::-1]


def mutations(sdp: str) -> Iterator[tuple[str, str]]:
    """Yield every offer that differs in one line: missing, repeated, cut off, or garbled."""
    lines = sdp.splitlines()
    changes: dict[str, Callable[[str], list[str]]] = {
        "dropped": lambda _line: [],
        "twice": lambda line: [line, line],
        "empty": lambda line: [line[:2]],
        "cut off": lambda line: [line[: max(2, len(line) * 2 // 3)]],
        "garbled": lambda line: [garbled(line)],
    }
    seen = set[str]()
    for index, (name, change) in itertools.product(range(len(lines)), changes.items()):
        text = "\r\n".join([*lines[:index], *change(lines[index]), *lines[index + 1 :]]) + "\r\n"
        if text not in seen:
            seen.add(text)
            yield f"{name}: {lines[index]}", text


async def test_a_mutated_offer_is_answered_or_refused_and_leaves_nothing_behind():
    room = Room()
    sockets = udp_sockets()
    refused = 0
    for what, sdp in mutations(await offer_sdp(video=True)):
        try:
            await room.door.offer_json({"sdp": sdp, "type": "offer"})
        except PeerError:
            refused += 1
            assert room.door.open_calls == 0, what
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        else:
            await room.door.close()
            assert room.door.open_calls == 0, what
        assert udp_sockets() == sockets, what
    assert refused > 40
    assert len(room.connections) > 100


async def test_a_mutated_renegotiation_is_answered_or_refused():
    room = Room(max_calls=1)
    sockets = udp_sockets()
    whole = await offer_sdp()
    outcomes = set[bool]()
    for restart, (what, sdp) in itertools.product((False, True), mutations(whole)):
        answer = await room.door.offer_json({"sdp": whole, "type": "offer"})
        again = {"sdp": sdp, "type": "offer", "pc_id": answer["pc_id"], "restart_pc": restart}
        try:
            await room.door.offer_json(again)
            outcomes.add(True)
        except PeerError:
            outcomes.add(False)
        except Exception as error:
            pytest.fail(f"{what}, restart {restart}: {error!r}")
        await room.door.close()
        assert room.door.open_calls == 0, what
        assert udp_sockets() == sockets, what
    assert outcomes == {True, False}


async def test_an_offer_without_a_codec_of_ours_is_refused(room: Room):
    sdp = await offer_sdp()
    # G.711 and G.722 remain.
    sdp = sdp.replace("opus/48000/2", "nonsense/8000")
    with pytest.raises(PeerError, match="has no Opus"):
        await room.door.offer_json({"sdp": sdp, "type": "offer"})
    assert room.door.open_calls == 0


async def test_opus_is_agreed_on_where_the_offer_has_it_last(room: Room):
    caller = Caller()
    [transceiver] = caller.connection.getTransceivers()
    codecs = RTCRtpSender.getCapabilities("audio").codecs
    transceiver.setCodecPreferences([*codecs[1:], codecs[0]])
    offered = await caller.offer()
    answer = await room.door.offer_json(offered)
    assert not re.search(r"m=audio \S+ \S+ 96 ", offered["sdp"])
    assert re.search(r"m=audio \S+ \S+ 96 .*\r\n(?:.*\r\n)*a=rtpmap:96 opus/48000/2\r\n", answer["sdp"])
    await caller.accept(answer)
    await caller.hang_up()


async def test_a_bundle_of_a_section_that_is_not_there_is_refused(room: Room):
    sdp = (await offer_sdp()).replace("a=group:BUNDLE 0", "a=group:BUNDLE 9 0")
    with pytest.raises(PeerError, match="bundles a media section that it does not have"):
        await room.door.offer_json({"sdp": sdp, "type": "offer"})
    assert room.door.open_calls == 0


async def test_an_unusable_renegotiation_leaves_the_call_as_it_is(room: Room):
    caller = Caller()
    answer = await room.call(caller)
    await caller.accept(answer)
    await until(lambda: caller.connection.connectionState == "connected")
    caller.connection.addTransceiver("video")
    sdp = without_video_codecs((await caller.offer())["sdp"])
    with pytest.raises(PeerError, match="cannot be negotiated"):
        await room.door.offer_json({"sdp": sdp, "type": "offer", "pc_id": answer["pc_id"]})
    assert room.door.is_open(answer["pc_id"])
    assert room.connections[0].pc.connectionState == "connected"
    await caller.hang_up()


async def test_a_restarted_call_is_known_by_its_new_id_only(room: Room):
    first = Caller()
    answer = await room.call(first)
    await first.accept(answer)
    await until(lambda: first.connection.connectionState == "connected")
    seen = [answer["pc_id"]]
    callers = [first]
    for _ in range(2):
        caller = Caller()
        callers.append(caller)
        answer = await room.call(caller, pc_id=seen[-1], restart_pc=True)
        await caller.accept(answer)
        await until(lambda peer=caller: peer.connection.connectionState == "connected")
        seen.append(answer["pc_id"])
    # One conversation, under its last id, that accepts candidates.
    assert len(set(seen)) == 3
    assert len(room.connections) == 1
    assert [room.door.is_open(pc_id) for pc_id in seen] == [False, False, True]
    end = CandidateBody(candidate="", sdp_mid="0", sdp_mline_index=0)
    await room.door.add_candidates(CandidatesRequest(pc_id=seen[-1], candidates=[end]))
    with pytest.raises(PeerError, match="no such call"):
        await room.door.add_candidates(CandidatesRequest(pc_id=seen[0], candidates=[end]))
    await room.door.hang_up(room.connections[0])
    assert room.door.open_calls == 0
    for caller in callers:
        await caller.hang_up()


async def test_a_restart_that_cannot_be_negotiated_ends_the_call(room: Room):
    caller = Caller()
    answer = await room.call(caller)
    await caller.accept(answer)
    closed = asyncio.Event()

    @room.connections[0].event_handler("closed")
    async def on_closed(_connection: SmallWebRTCConnection) -> None:
        closed.set()

    sdp = without_video_codecs(await offer_sdp(video=True))
    with pytest.raises(PeerError, match="cannot be negotiated"):
        await room.door.offer_json(
            {"sdp": sdp, "type": "offer", "pc_id": answer["pc_id"], "restart_pc": True}
        )
    await asyncio.wait_for(closed.wait(), 5)
    assert room.door.open_calls == 0
    await caller.hang_up()


async def test_a_peer_that_never_connects_gives_its_line_back():
    room = Room(max_calls=1, connect_s=0.05)
    caller = Caller()
    sdp = "\r\n".join(
        line for line in (await caller.offer())["sdp"].splitlines() if not line.startswith("a=candidate")
    )
    await room.door.offer_json({"sdp": sdp + "\r\n", "type": "offer"})
    with pytest.raises(CapacityError):
        await room.call(caller)
    await until(lambda: room.door.open_calls == 0)
    assert room.connections[0].pc.connectionState == "closed"
    await caller.hang_up()


async def test_a_connected_peer_outlives_the_deadline_for_connecting():
    room = Room(connect_s=0.3)
    caller = Caller()
    await caller.accept(await room.call(caller))
    await until(lambda: caller.connection.connectionState == "connected")
    deadline = next(iter(room.door._deadlines.values()))
    await until(deadline_passed := lambda: not room.door._deadlines)
    assert deadline_passed() and not deadline.cancelled()
    assert room.door.open_calls == 1
    assert caller.connection.connectionState == "connected"
    await room.door.close()
    await caller.hang_up()


async def test_calls_are_hung_up_at_the_same_time_and_no_longer_than_the_deadline():
    """Calls are hung up at the same time.

    Peers whose closing hangs are not waited for one after the other.
    """
    room = Room(hang_up_s=0.05, max_calls=10)
    sdp = await offer_sdp()
    for _ in range(10):
        await room.door.offer_json({"sdp": sdp, "type": "offer"})
    released, together = asyncio.Event(), asyncio.Barrier(10)
    stopping = []

    async def stop() -> None:
        await together.wait()
        stopping.append(stop)
        await released.wait()

    for connection in room.connections:
        # aiortc's close() waits for the senders to stop.
        connection.pc.getTransceivers()[0].sender.stop = stop
    async with asyncio.timeout(30):
        await room.door.close()
    # One after the other, none would pass the barrier before its deadline.
    assert len(stopping) >= 10
    assert room.door.open_calls == 0
    released.set()


async def test_hanging_up_a_connection_that_cannot_close_gives_its_sockets_back():
    room = Room()
    sockets = udp_sockets()
    caller = Caller()
    await room.door.offer_json({"sdp": await offer_sdp(), "type": "offer"})
    assert udp_sockets() > sockets
    closed = asyncio.Event()

    @room.connections[0].event_handler("closed")
    async def on_closed(_connection: SmallWebRTCConnection) -> None:
        closed.set()

    # The effect of a bundle without its first section in aiortc.
    room.connections[0].pc.getTransceivers()[0].receiver.setTransport(None)
    await room.door.close()
    await asyncio.wait_for(closed.wait(), 5)
    assert udp_sockets() == sockets
    assert room.door.open_calls == 0
    await caller.hang_up()


async def test_two_renegotiations_at_once_do_not_mix(room: Room):
    caller = Caller()
    answer = await room.call(caller)
    again = [
        room.door.offer_json({"sdp": sdp, "type": "offer", "pc_id": answer["pc_id"], "restart_pc": True})
        for sdp in (await offer_sdp(), await offer_sdp())
    ]
    first, second = await asyncio.gather(*again, return_exceptions=True)
    assert isinstance(first, dict) and isinstance(second, PeerError)
    assert room.door.is_open(first["pc_id"])
    assert room.door.open_calls == 1
    await caller.hang_up()


async def test_a_plain_peer_is_answered(room: Room):
    """Control of the tests above: an unchanged offer is answered."""
    peer = RTCPeerConnection()
    peer.addTransceiver("audio")
    await peer.setLocalDescription(await peer.createOffer())
    answer = await room.door.offer_json({"sdp": peer.localDescription.sdp, "type": "offer"})
    await peer.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
    await until(lambda: peer.connectionState == "connected")
    await peer.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("stun.example.org:3478", "'stun.example.org:3478' does not have the form stun:host:port"),
        ("https://stun.example.org", "does not have the form stun:host:port"),
        ("stun:", "does not have the form stun:host:port"),
        ("turn:turn.example.org:3478", "only STUN servers are supported"),
    ],
)
def test_an_ice_server_that_would_fail_every_call_is_a_wrong_setting(url: str, says: str):
    with pytest.raises(ConfigError, match=says):
        Room(ice_servers=["stun:stun.example.org:3478", url])


# Binding requests of STUN (RFC 8489): the type, a length, the cookie, a transaction, the attributes.
def stun(attributes: bytes) -> bytes:
    return struct.pack(">HHI", 0x0001, len(attributes), 0x2112A442) + b"transaction!" + attributes


WRONG_LENGTHS = (
    struct.pack(">HH", 0x8028, 1) + b"\1\0\0\0",
    struct.pack(">HH", 0x802A, 4) + b"\1\2\3\4",
    struct.pack(">HH", 0x8029, 0),
    struct.pack(">HH", 0x000C, 1) + b"\1\0\0\0",
    struct.pack(">HH", 0x0024, 8) + bytes(8),
)


async def test_stun_with_attributes_of_a_wrong_length_is_dropped(room: Room):
    loop = asyncio.get_running_loop()
    faults, answers = list[dict[str, Any]](), asyncio.Queue[bytes]()
    caller = Caller()
    sdp = (await room.call(caller))["sdp"]
    [host, port] = re.findall(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", sdp)[0]
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Answers(answers), remote_addr=(host, int(port))
    )
    try:
        for attributes in WRONG_LENGTHS:
            transport.sendto(stun(attributes))
        # Datagrams of one socket are read in their order: this one comes after all others.
        transport.sendto(stun(b""))
        async with asyncio.timeout(10):
            answer = await answers.get()
        # Binding error response.
        assert answer[:2] == b"\x01\x11"
        assert answers.empty() and faults == []
    finally:
        transport.close()
        loop.set_exception_handler(None)
        await caller.hang_up()


async def test_a_browser_is_asked_for_copies_of_its_packets(room: Room):
    caller = Caller()
    answer = await room.call(caller)
    [payload_type] = re.findall(r"a=rtpmap:(\d+) opus/48000/2\r\n", answer["sdp"])
    assert f"\r\na=fmtp:{payload_type} minptime=10;useinbandfec=1\r\n" in answer["sdp"]
    # A peer reads it as it reads a browser's.
    await caller.accept(answer)
    await caller.hang_up()


@pytest.mark.parametrize("datagram", [b"", bytes((0x80, 0x6F)) + bytes(1_499)], ids=["empty", "long"])
async def test_a_datagram_of_a_stranger_does_not_end_a_call(room: Room, datagram: bytes):
    caller = Caller()
    sdp = await room.call(caller)
    await caller.accept(sdp)
    [connection] = room.connections
    await until(lambda: connection.is_connected() and caller.channel.readyState == "open", within_s=20)
    [host, port] = re.findall(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", sdp["sdp"])[0]
    heard = asyncio.Event()

    @connection.event_handler("app-message")
    async def on_message(*_arguments: object) -> None:
        heard.set()

    try:
        # asyncio's own endpoints send no empty datagram.
        with socket.socket(type=socket.SOCK_DGRAM) as stranger:
            stranger.sendto(datagram, (host, int(port)))
        caller.channel.send('{"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {}}')
        async with asyncio.timeout(10):
            await heard.wait()
        assert connection.pc.connectionState == "connected"
    finally:
        await caller.hang_up()


async def test_a_message_as_the_line_closes_leaves_no_failed_task(room: Room):
    loop = asyncio.get_running_loop()
    faults, caller = list[dict[str, Any]](), Caller()
    await caller.accept(await room.call(caller))
    [connection] = room.connections
    await until(lambda: connection.is_connected() and caller.channel.readyState == "open", within_s=20)
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    try:
        sctp = connection.pc.sctp
        assert sctp is not None
        await sctp.transport.stop()
        for _ in range(3):
            connection.send_app_message({"label": "rtvi-ai", "type": "server-message", "data": {}})
            # The task that sends it runs, and ends.
            await asyncio.sleep(0.01)
        gc.collect()
        assert faults == []
    finally:
        loop.set_exception_handler(None)
        await caller.hang_up()


class Answers(asyncio.DatagramProtocol):
    """Queue of what comes back."""

    def __init__(self, queue: asyncio.Queue[bytes]) -> None:
        self.queue = queue

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.queue.put_nowait(data)
