"""WebRTC: offers whose SDP is changed, datagrams at the port of a call, and messages of its data channel."""

import asyncio
import json
import re
import socket
import struct
from contextlib import suppress

from aiortc import RTCConfiguration, RTCPeerConnection

from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.mutations import mutated, mutated_bytes, mutated_text
from parley.evals.abuse.protocols import RTVI
from parley.evals.abuse.samples import CANDIDATES, OFFER
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.generate import Dice, payload
from parley.evals.harness.webrtc_caller import Line

OFFERS, DATAGRAMS, MESSAGES = 25, 400, 150
# Share of conversations with datagrams whose call is up, and the time in which it has to hear the server.
UP, SILENT_S = 0.5, 1.0
# Share of the offers that a server may accept, each of which costs it a peer connection for a while.
ACCEPTED = 0.1
# The server takes no larger message of the data channel; larger ones break the negotiated size.
MOST_MESSAGE_CHARS = 60_000
CANDIDATE = re.compile(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", re.IGNORECASE)
MAGIC = 0x2112A442
# SDP lines that browsers know and send seldom.
LINES = (
    "m=video 9 UDP/TLS/RTP/SAVPF 96 97",
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
    "a=sctp-port:0",
    "a=ice-lite",
    "a=candidate:1 1 tcp 1 10.0.0.1 9 typ host tcptype active",
    "a=candidate:x x x x x x x x",
    "a=fingerprint:md5 00",
    "a=setup:active",
    "a=setup:holdconn",
    "a=rtpmap:96",
    "a=rtpmap:300 opus/48000/9",
    "a=fmtp:96 ;;=;x",
    "a=ssrc:4294967296 cname:x",
    "a=extmap:15 urn:x",
    "a=extmap:0 urn:x",
    "a=group:BUNDLE 0 0 1 2 3",
    "a=mid:",
    "a=msid:- -",
    "a=rtcp-fb:* nack pli",
    "b=AS:-1",
    "c=IN IP6 ::1",
    "a=ice-ufrag:",
    "a=ice-pwd:x",
    "a=rid:1 send",
    "a=simulcast:send 1;2;3",
    "a=max-message-size:-1",
    "t=x",
)


async def _sdp() -> str:
    """Return the offer of a caller with sound, pictures and a data channel."""
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        connection.addTransceiver("audio")
        connection.addTransceiver("video")
        connection.createDataChannel("rtvi-ai")
        await connection.setLocalDescription(await connection.createOffer())
        return str(connection.localDescription.sdp)
    finally:
        await connection.close()


def changed(sdp: str, dice: Dice) -> str:
    """Return SDP with other lines, or with the lines in another form."""
    for _ in range(dice.randint(0, 3)):
        lines = sdp.split("\r\n")
        lines.insert(dice.randrange(len(lines)), dice.choice(LINES))
        sdp = "\r\n".join(lines)
    return (
        mutated_text(sdp, dice) if dice.random() < 0.8 else sdp.replace("\r\n", dice.choice(("\n", "\r", "")))
    )


async def offers(conversation: FuzzConversation) -> None:
    """Send offers, and candidates for connections that may exist."""
    dice, known = conversation.dice, conversation.known
    real = await _sdp()
    async with conversation.run.client(conversation.address) as client:
        for _ in range(OFFERS):
            kind = dice.random()
            if kind < ACCEPTED:
                method, data = "POST", json.dumps({"type": "offer", "sdp": changed(real, dice)})
            elif kind < 0.7:
                # It names a session that does not exist: what passes all checks begins no call.
                refused = {"type": "offer", "requestData": {"session": "nosuchsession"}}
                text = changed(dice.choice((real, OFFER["sdp"])), dice)
                made = payload([{**refused, "sdp": text}], dice)
                method, data = "POST", made if isinstance(made, str) else made.decode(errors="replace")
            else:
                made = payload([CANDIDATES], dice, list(known))
                method, data = "PATCH", made if isinstance(made, str) else made.decode(errors="replace")
            await conversation.note(data)
            headers = {"Content-Type": "application/json"}
            with suppress(*GONE):
                async with client.request(
                    method, "/api/offer", data=data.encode("utf-8", "replace"), headers=headers
                ) as response:
                    conversation.answered(response.status, f"{method} /api/offer")
                    conversation.learn(await response.text())


def _stun(dice: Dice) -> bytes:
    """Return a message of STUN with attributes that may be wrong."""
    attributes = b""
    for _ in range(dice.randrange(5)):
        value = dice.randbytes(dice.choice((0, 1, 4, 8, 20, 33)))
        length = len(value) if dice.random() < 0.7 else dice.choice((0, 1, 0xFFFF))
        kind = dice.choice(
            (0x0001, 0x0006, 0x0008, 0x0009, 0x0020, 0x0024, 0x0025, 0x8028, 0x8029, 0x802A, 0xFFFF)
        )
        attributes += struct.pack(">HH", kind, length) + value + bytes(-len(value) % 4)
    kind = dice.choice((0x0001, 0x0011, 0x0101, 0x0111, 0x0003, 0x0115, 0x3FFF))
    length = len(attributes) if dice.random() < 0.8 else dice.randrange(65_536)
    return struct.pack(">HHI", kind, length, MAGIC) + dice.randbytes(12) + attributes


def _dtls(dice: Dice) -> bytes:
    """Return a record of DTLS whose contents are none."""
    data = dice.randbytes(dice.randrange(200))
    kind, version = dice.choice((20, 21, 22, 23, 25)), dice.choice((0xFEFF, 0xFEFD, 0x0303, 0))
    return struct.pack(">BHHIHH", kind, version, 0, 0, dice.randrange(65_536), len(data)) + data


def _rtp(dice: Dice) -> bytes:
    """Return a packet of RTP or RTCP, of a call without keys."""
    kind = dice.choice((96, 111, 127, 0, 200, 201, 205, 206, 207))
    first = dice.choice((0x80, 0x81, 0x8F, 0x90, 0xA0, 0xBF))
    return struct.pack(">BBHII", first, kind, 1, 2, 3) + dice.randbytes(dice.randrange(200))


def datagram(dice: Dice) -> bytes:
    """Return a datagram of any protocol that shares the port of a call."""
    kind = dice.random()
    if kind < 0.35:
        return _stun(dice)
    if kind < 0.5:
        return mutated_bytes(_stun(dice), dice)
    if kind < 0.65:
        return _dtls(dice)
    if kind < 0.85:
        return _rtp(dice)
    return dice.randbytes(dice.choice((0, 1, 2, 19, 20, 1_200, 9_000, 65_000)))


async def datagrams(conversation: FuzzConversation) -> None:
    """Send datagrams of a stranger to the port of a call: one that is up, or was offered and is not."""
    if conversation.dice.random() < UP:
        await _datagrams_to_a_call(conversation)
    else:
        await _datagrams_to_an_offer(conversation)


async def _datagrams_to_a_call(conversation: FuzzConversation) -> None:
    line = Line(conversation.target.url)
    try:
        await line.dial()
        await _send_datagrams(conversation, line.answered_sdp)
        arrived = len(line.ears.arrivals.at_us)
        await asyncio.sleep(SILENT_S)
        if len(line.ears.arrivals.at_us) == arrived:
            conversation.found(f"a call received no packet in {SILENT_S} s after datagrams of a stranger")
    finally:
        await line.hang_up()


async def _datagrams_to_an_offer(conversation: FuzzConversation) -> None:
    body = {"type": "offer", "sdp": await _sdp()}
    async with conversation.run.client(conversation.address) as client:
        await conversation.note(json.dumps(body))
        async with client.post("/api/offer", json=body) as response:
            conversation.answered(response.status, "POST /api/offer")
            answer = await response.text()
    await _send_datagrams(conversation, answer.replace("\\r\\n", "\n"))


async def _send_datagrams(conversation: FuzzConversation, sdp: str) -> None:
    if (found := CANDIDATE.search(sdp)) is None:
        conversation.tally["no port"] += 1
        return
    # A socket of its own: asyncio's endpoints send no empty datagram.
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        for _ in range(DATAGRAMS):
            data = datagram(conversation.dice)
            await conversation.note(data)
            with suppress(BlockingIOError):
                stranger.sendto(data, (found[1], int(found[2])))


async def channel(conversation: FuzzConversation) -> None:
    """Send messages over the data channel of a call."""
    dice = conversation.dice
    line = Line(conversation.target.url)
    try:
        await line.dial()
        await asyncio.sleep(1.0)
        for _ in range(MESSAGES):
            made = payload(RTVI, dice) if dice.random() < 0.7 else mutated(dice.choice(RTVI), dice)
            text = made if isinstance(made, str) else made.decode(errors="replace")
            if len(text) < MOST_MESSAGE_CHARS:
                await conversation.note(text)
                conversation.tally["sent on the channel"] += line.send(
                    text.encode("utf-8", "replace").decode()
                )
        if not line.alive:
            conversation.tally["calls that ended"] += 1
    finally:
        await line.hang_up()
