"""Work whose amount a client chooses: each of these stalled the event loop, or made memory grow."""

import asyncio
import base64
import json
import struct
from collections import Counter
from contextlib import suppress
from itertools import count
from uuid import UUID

import aiohttp
from websockets.asyncio.client import ClientConnection

from parley.audio.ogg import checksum
from parley.core.errors import AgentError
from parley.evals.abuse.attacks.requests import GONE, new_session, type_turn
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.evals.harness.webrtc_caller import Line

PATTERN = "(?i)" + "[\\0-\U0010ffff]" * 600
EMOJI = "\U0001f600" * 8_000
# A packet of Opus without sound: six frames of 20 ms.
SILENT_PACKET = bytes([0x7B, 0x06])
PACKETS_A_MESSAGE, MESSAGES_A_S = 40, 50
OPUS_CLIENTS, READERS = 4, 10
FILLS_S = 10.0
# 190 are refused for their number before anything else is read; 8 are the most that a server accepts.
LINES_OF_OFFERS = (190, 8)
NOT_FOUND, REFUSALS = 404, frozenset({400, 404, 429, 503})
# Three characters each, below ``MAX_SOCKET_BYTES`` of the server.
PARTS = 1_200_000
HEADER_BYTES_A_S = 4_000_000
RTVI_MESSAGES = 10_000
TYPED, TYPED_S = 338, 10.0
# ``server.clients.anonymous.turns_per_minute`` by default: a quarter of 240 at once, and the share that is
# refilled during the attack and the answers that wait at its end.
MOST_TYPED = 60 + round(240 / 60 * (TYPED_S + 5.0))


@attack("nothing", "the same calls without an attack: what they vary by")
async def nothing(run: AttackRun) -> Outcome:
    """Wait without an attack."""
    await asyncio.sleep(run.seconds)
    return Outcome(None)


@attack("regex-pattern", "a regular expression in session.update is compiled on the loop")
async def regex_pattern(run: AttackRun) -> Outcome:
    """Send tools whose parameters have patterns that are slow to compile, a new one each time."""
    sent, ends_s = 0, run.ends_at()
    while asyncio.get_running_loop().time() < ends_s:
        with suppress(*GONE):
            async with await run.socket("/v1/realtime?model=parley-cascade") as socket:
                pattern = PATTERN + str(run.dice.random())
                parameters = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
                tool = {"type": "function", "name": "look", "description": "", "parameters": parameters}
                await socket.send(json.dumps({"type": "session.update", "session": {"tools": [tool]}}))
                sent += 1
                await asyncio.wait_for(drain(socket), 2.0)
        await asyncio.sleep(1.0)
    return Outcome(sent)


@attack("tiny-opus", "Opus messages of 150 bytes that stand for seconds of sound are decoded on the loop")
async def tiny_opus(run: AttackRun) -> Outcome:
    """Run four clients of Unmute's dialect, each with 50 messages a second."""
    sent = await asyncio.gather(*(_opus_client(run, number) for number in range(1, OPUS_CLIENTS + 1)))
    return Outcome(sum(sent))


async def _opus_client(run: AttackRun, number: int) -> int:
    sent, ends_s = 0, run.ends_at()
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, 0, 24_000, 0, 0)
    while asyncio.get_running_loop().time() < ends_s:
        with suppress(*GONE):
            async with await run.socket("/v1/realtime", number, subprotocols=("realtime",)) as socket:
                reading = asyncio.create_task(drain(socket), name="opus.read")
                try:
                    update = {"instructions": None, "voice": None, "allow_recording": False}
                    await socket.send(json.dumps({"type": "session.update", "session": update}))
                    await _send_audio(socket, page((head,), 0, 0) + page((b"OpusTags" + bytes(8),), 0, 1))
                    for place in count(2):
                        if asyncio.get_running_loop().time() >= ends_s:
                            break
                        packets = (SILENT_PACKET,) * PACKETS_A_MESSAGE
                        await _send_audio(socket, page(packets, place * 48_000, place))
                        sent += 1
                        await asyncio.sleep(1 / MESSAGES_A_S)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        await asyncio.sleep(0.2)
    return sent


def page(packets: tuple[bytes, ...], granule: int, number: int) -> bytes:
    """Return one page of Ogg with several packets, each shorter than 255 bytes (RFC 3533)."""
    lacing = bytes(len(packet) for packet in packets)
    kind = 2 if number == 0 else 0
    header = struct.pack("<4sBBqIIIB", b"OggS", 0, kind, granule, 7, number, 0, len(lacing))
    whole = header + lacing + b"".join(packets)
    return whole[:22] + checksum(whole).to_bytes(4, "little") + whole[26:]


async def _send_audio(socket: ClientConnection, data: bytes) -> None:
    audio = base64.b64encode(data).decode()
    await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


@attack("emoji", "typed messages of 8,000 emoji: what a turn costs the loop and the database")
async def emoji(run: AttackRun) -> Outcome:
    """Open ten sessions, each with one long turn after the other."""
    statuses: list[int] = []

    async def typing(number: int) -> None:
        ends_s = run.ends_at()
        async with run.client(number) as client:
            with suppress(*GONE):
                session = await new_session(client)
                while asyncio.get_running_loop().time() < ends_s:
                    status = await type_turn(client, session, EMOJI)
                    if not status:
                        return
                    statuses.append(status)
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(typing(number) for number in range(1, 11)))
    return Outcome(len(statuses), {"refused": sum(status >= 400 for status in statuses)})


@attack("typed-requests", "338 typed requests in 10 s to one session, all answered", least_s=12.0)
async def typed_requests(run: AttackRun) -> Outcome:
    """Send them from one address, evenly over the ten seconds; those over the limit are refused with 429."""
    statuses: Counter[int] = Counter()

    async def typing(client: aiohttp.ClientSession, session: str) -> None:
        statuses[await type_turn(client, session, "What are your opening hours?")] += 1

    async with run.client() as client:
        session = await new_session(client)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TYPED):
                tasks.create_task(typing(client, session), name="typed.request")
                await asyncio.sleep(TYPED_S / TYPED)
    faults = []
    if statuses[200] > MOST_TYPED:
        faults.append(f"{statuses[200]} of {TYPED} typed requests are answered, {MOST_TYPED} are allowed")
    if not statuses[200]:
        faults.append("no typed request is answered")
    if other := {status: n for status, n in statuses.items() if status not in (200, 429)}:
        faults.append(f"typed requests get other answers than 200 and 429: {other}")
    did = {"statuses": {str(status): n for status, n in sorted(statuses.items())}}
    return Outcome(TYPED - statuses[0], dict(did), faults)


@attack("readers", "timelines, exports and prompts of a long session that ten clients read")
async def readers(run: AttackRun) -> Outcome:
    """Fill a session, then read it from ten addresses as often as possible."""
    reads = 0
    async with run.client() as client:
        session = await new_session(client)
        with suppress(*GONE):
            async with asyncio.timeout(FILLS_S):
                for turn in range(40):
                    await type_turn(client, session, f"{turn} " + "word " * 1_500)
    ends_s = run.ends_at()

    async def reading(number: int) -> None:
        nonlocal reads
        async with run.client(number) as client:
            while asyncio.get_running_loop().time() < ends_s:
                with suppress(*GONE):
                    path = ("timeline?limit=1000", "export", "prompt")[reads % 3]
                    async with client.get(f"/api/sessions/{session}/{path}") as response:
                        await response.read()
                        reads += response.status == 200
                        await asyncio.sleep(0 if response.status == 200 else 0.2)

    await asyncio.gather(*(reading(number) for number in range(1, READERS + 1)))
    return Outcome(reads)


@attack("endless-header", "a request header that never ends, 4 MB/s")
async def endless_header(run: AttackRun) -> Outcome:
    """Send one header for as long as the server takes it, then begin anew."""
    sent = connections = 0
    ends_s = run.ends_at()
    piece = b"a" * (HEADER_BYTES_A_S // 20)
    while asyncio.get_running_loop().time() < ends_s:
        with suppress(*GONE):
            _, writer = await run.raw()
            connections += 1
            try:
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
                while asyncio.get_running_loop().time() < ends_s:
                    writer.write(piece)
                    await asyncio.wait_for(writer.drain(), 2.0)
                    sent += len(piece)
                    await asyncio.sleep(0.05)
            finally:
                writer.close()
        await asyncio.sleep(0.05)
    return Outcome(sent, {"connections": connections})


@attack("json-parts", "JSON of a million small parts in the MiniCPM realtime dialect: memory that stays")
async def json_parts(run: AttackRun) -> Outcome:
    """Run three clients, each with messages just below the largest that a socket accepts."""
    messages = [
        '{"type":"session.update","session":{"instructions":"a","x":[' + "[]," * PARTS + "0]}}",
        '{"type":"input_audio_buffer.append","audio":"","x":[' + "{}," * PARTS + "0]}",
        '{"type":"session.update","session":{' + ",".join(f'"{n}":0' for n in range(PARTS // 4)) + "}}",
        '{"type":"session.update","session":' + "[" * 100_000,
    ]
    sent = 0

    async def client(number: int) -> None:
        nonlocal sent
        ends_s = run.ends_at()
        while asyncio.get_running_loop().time() < ends_s:
            with suppress(*GONE):
                async with await run.socket("/v1/realtime?mode=audio", number) as socket:
                    reading = asyncio.create_task(drain(socket), name="parts.read")
                    try:
                        while asyncio.get_running_loop().time() < ends_s:
                            await asyncio.wait_for(socket.send(run.dice.choice(messages)), 5.0)
                            sent += 1
                            await asyncio.sleep(0.3)
                    finally:
                        reading.cancel()
                        await asyncio.gather(reading, return_exceptions=True)
            await asyncio.sleep(0.3)

    await asyncio.gather(*(client(number) for number in (1, 2, 3)))
    return Outcome(sent)


@attack("big-offers", "offers with many m-lines for a session that does not exist: memory that stays")
async def big_offers(run: AttackRun) -> Outcome:
    """Post offers over the limit of media sections and on it, from one address, four at a time."""
    statuses: set[int] = set()
    sent = 0
    unknown = str(UUID(int=run.dice.getrandbits(128), version=4))
    bodies = [
        {"sdp": offer(lines), "type": "offer", "requestData": {"session": unknown}}
        for lines in LINES_OF_OFFERS
    ]

    async def posting() -> None:
        nonlocal sent
        ends_s = run.ends_at()
        async with run.client() as client:
            while asyncio.get_running_loop().time() < ends_s:
                with suppress(*GONE):
                    async with client.post("/api/offer", json=bodies[sent % len(bodies)]) as response:
                        await response.read()
                        statuses.add(response.status)
                        sent += 1
                await asyncio.sleep(0.02)

    await asyncio.gather(*(posting() for _ in range(4)))
    faults = [
        f"an offer for a session that does not exist gets {status}" for status in sorted(statuses - REFUSALS)
    ]
    if sent and NOT_FOUND not in statuses:
        faults.append("no offer gets as far as its session")
    return Outcome(sent, {"statuses": sorted(statuses)}, faults)


def offer(lines: int) -> str:
    """Return an SDP offer with this number of audio lines."""
    fingerprint = ":".join(["AB"] * 32)
    media = "".join(
        "m=audio 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=rtpmap:96 opus/48000/2\r\na=sendrecv\r\n"
        f"a=mid:{number}\r\na=rtcp-mux\r\na=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\n"
        f"a=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\n"
        for number in range(lines)
    )
    group = " ".join(map(str, range(lines)))
    return (
        "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
        f"a=group:BUNDLE {group}\r\na=msid-semantic: WMS *\r\n{media}"
    )


@attack("rtvi-flood", "10,000 small messages over the data channel of a WebRTC call")
async def rtvi_flood(run: AttackRun) -> Outcome:
    """Open a call and send them as fast as possible; again until the time is over."""
    sent, faults, ends_s = 0, [], run.ends_at()
    message = json.dumps(
        {"label": "rtvi-ai", "type": "client-message", "id": "1", "data": {"t": "x", "d": 1}}
    )
    while asyncio.get_running_loop().time() < ends_s:
        line = Line(run.target.url)
        try:
            await line.dial()
            await asyncio.sleep(1.0)
            for number in range(RTVI_MESSAGES):
                sent += line.send(message)
                if number % 200 == 199:
                    await asyncio.sleep(0.02)
                if asyncio.get_running_loop().time() >= ends_s:
                    break
            await asyncio.sleep(1.0)
        except (AgentError, *GONE) as error:
            faults.append(f"the attacker's call does not connect: {error}")
            await asyncio.sleep(1.0)
        finally:
            with suppress(TimeoutError):
                await line.hang_up()
    return Outcome(sent, faults=faults[:1] if not sent else [])


async def drain(socket: ClientConnection) -> None:
    """Read and drop messages until the socket is closed."""
    async for _ in socket:
        pass
