"""Bad input on a telephone line: all of it is refused or ignored, and logged.

A good call goes on meanwhile without a disturbance.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from parley.evals.harness.phone_network import PUBLIC, Front
from parley.evals.harness.phone_speech import packets, quiet
from tests.peers.phone_caller import heard, likeness, place
from tests.peers.test_phone import GREETED_S, QUESTION, SAID, telephone, timelines
from tests.voices import say

ANSWER = "On Saturdays they are open from ten until two."
STREAM = "MZ" + "2" * 32
PAYLOAD = base64.b64encode(b"\xff" * 160).decode()
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
FLOOD = 100


def begins(call_sid: str, **changed: object) -> list[str]:
    facts = {
        "accountSid": "AC" + "1" * 32,
        "callSid": call_sid,
        "streamSid": STREAM,
        "tracks": ["inbound"],
        "mediaFormat": FORMAT,
        "customParameters": {},
    }
    start = {"event": "start", "sequenceNumber": "1", "streamSid": STREAM, "start": facts | changed}
    return [json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}), json.dumps(start)]


def media(number: int, **changed: object) -> dict[str, Any]:
    facts = {"track": "inbound", "chunk": str(number), "timestamp": str(20 * number), "payload": PAYLOAD}
    return {
        "event": "media",
        "sequenceNumber": str(number),
        "streamSid": STREAM,
        "media": facts | changed,
    }


# Messages that are sent in a call that goes on.
IGNORED: list[str | bytes] = [
    b"\x00\x01\x02",
    "no json",
    "[]",
    "null",
    '"text"',
    "{}",
    "[" * 50_000,
    json.dumps({"event": "media"}),
    json.dumps({"event": 7}),
    json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}),
    json.dumps(media(2) | {"streamSid": "MZ" + "3" * 32}),
    json.dumps(media(2) | {"sequenceNumber": 2}),
    json.dumps(media(2) | {"sequenceNumber": "1"}),
    json.dumps(media(2) | {"sequenceNumber": "999999999999999"}),
    json.dumps(media(2) | {"media": None}),
    json.dumps(media(2, payload="%%%")),
    json.dumps(media(3, payload=["a"])),
    json.dumps(media(4, payload="A" * 60_000)),
    json.dumps(media(5, timestamp="-1")),
    json.dumps(media(6, timestamp=6.5)),
    json.dumps(media(7, track="outbound")),
    json.dumps({"event": "dtmf", "sequenceNumber": "8", "streamSid": STREAM, "dtmf": {"digit": "Q"}}),
    json.dumps({"event": "mark", "sequenceNumber": "9", "streamSid": STREAM, "mark": {"name": 5}}),
    json.dumps({"event": "mark", "sequenceNumber": "10", "streamSid": STREAM, "mark": {"name": "m999"}}),
    json.dumps({"event": "sudo", "sequenceNumber": "11", "streamSid": STREAM}),
]


async def opened(front: Front) -> tuple[ClientConnection, str]:
    """Open a legitimate stream, and return its socket and call."""
    call_sid = "CA" + secrets.token_hex(16)
    socket, _ = await front.open(await front.answer(CallSid=call_sid))
    return socket, call_sid


async def is_answered(socket: ClientConnection, within_s: float = 60) -> bool:
    """Return whether the bot speaks before the socket is closed."""
    try:
        async with asyncio.timeout(within_s):
            while json.loads(await socket.recv())["event"] != "media":
                pass
    except (ConnectionClosed, TimeoutError):
        return False
    return True


async def is_closed(socket: ClientConnection, within_s: float = 60) -> bool:
    try:
        async with asyncio.timeout(within_s):
            async for _ in socket:
                pass
    except ConnectionClosed:
        return True
    except TimeoutError:
        return False
    return True


async def who_says_nonsense_in_a_call_goes_on_with_it(front: Front) -> None:
    socket, call_sid = await opened(front)
    async with socket:
        for message in begins(call_sid):
            await socket.send(message)
        assert await is_answered(socket)
        for message in IGNORED:
            await socket.send(message)
        for number in range(12, 40):
            await socket.send(json.dumps(media(number)))
            await asyncio.sleep(0.02)
        assert await is_answered(socket)


async def who_says_nothing_but_nonsense_is_cut_off(front: Front) -> None:
    socket, call_sid = await opened(front)
    async with socket:
        for message in begins(call_sid):
            await socket.send(message)
        for _ in range(60):
            await socket.send("nonsense")
        assert await is_closed(socket)


async def who_begins_wrongly_does_not_begin(front: Front) -> None:
    async def begin(change: Callable[[str], list[str]]) -> None:
        socket, call_sid = await opened(front)
        async with socket:
            for message in change(call_sid):
                await socket.send(message)
            assert not await is_answered(socket, within_s=7.0)

    await asyncio.gather(
        begin(lambda sid: begins(sid)[1:]),
        begin(lambda sid: begins(sid, mediaFormat={**FORMAT, "sampleRate": 16000})),
        begin(lambda sid: begins(sid, tracks=["inbound", "outbound"])),
        # The call is not that of the token.
        begin(lambda _sid: begins("CA" + "0" * 32)),
    )


async def who_sends_ten_megabytes_is_alone_with_it(front: Front) -> None:
    socket, call_sid = await opened(front)
    async with socket:
        for message in begins(call_sid):
            await socket.send(message)
        # Larger than the server accepts.
        with pytest.raises(ConnectionClosed) as closed:
            await socket.send(json.dumps(media(2, payload="A" * 10_000_000)))
            async with asyncio.timeout(60):
                while True:
                    await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


async def forged_and_used_tokens_and_signatures_open_nothing(front: Front) -> None:
    here = urlsplit(front.server)

    async def status(address: str, headers: dict[str, str]) -> int:
        try:
            async with connect(
                address.replace("wss://", "ws://"),
                host=here.hostname,
                port=here.port,
                additional_headers=headers,
            ):
                return 101
        except InvalidHandshake as error:
            return int(getattr(getattr(error, "response", None), "status_code", 0))

    twiml = await front.answer()
    stream = ElementTree.fromstring(twiml).find("./Connect/Stream")
    assert stream is not None
    address = stream.attrib["url"]
    forged = f"{address.rsplit('/', 1)[0]}/{secrets.token_urlsafe(32)}"
    good = front.headers(address)
    assert await status(forged, front.headers(forged)) == 403
    assert await status(address, {}) == 403
    assert await status(address, {"X-Twilio-Signature": "AAAA"}) == 403
    assert await status(f"{address}?x=1", good) == 403
    # Two at once: one of them is accepted, and never another after it.
    first, second = await asyncio.gather(status(address, good), status(address, good))
    assert sorted((first, second)) == [101, 403]
    assert await status(address, good) == 403

    form = {"CallSid": "CA" + "5" * 32, "From": "+15550100", "To": "+15550199"}
    signed = front.headers(f"{PUBLIC}/twilio/voice", form) | {"Host": urlsplit(PUBLIC).netloc}
    async with httpx.AsyncClient(base_url=front.server) as client:
        for data, headers in (
            (form | {"From": "+15550999"}, signed),
            (form, signed | {"X-Twilio-Signature": "forged"}),
            (form, {"Host": signed["Host"]}),
        ):
            assert (await client.post("/twilio/voice", data=data, headers=headers)).status_code == 403
        # A recorded webhook that is replayed is one token.
        answers = {(await client.post("/twilio/voice", data=form, headers=signed)).text for _ in range(5)}
        assert len(answers) == 1
        flood = b"From=" + b"5" * 1_000_000
        # Cut off while it is read, or refused.
        with suppress(httpx.TransportError):
            assert (await client.post("/twilio/voice", content=flood, headers=signed)).status_code in (
                403,
                413,
            )


async def a_flood_of_connects_is_refused(front: Front) -> None:
    async def knock() -> None:
        token = secrets.token_urlsafe(32)
        try:
            async with connect(f"{front.server.replace('http', 'ws')}/twilio/media/{token}"):
                raise AssertionError("nobody has a right to that")
        except (InvalidHandshake, OSError, TimeoutError):
            return

    for _ in range(4):
        await asyncio.gather(*(knock() for _ in range(FLOOD // 4)))


async def test_strangers_are_refused_and_a_good_call_hears_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "server.log"
    async with telephone(tmp_path, monkeypatch, log=log) as (server, front):
        good = asyncio.create_task(
            place(
                front.url,
                [*quiet(GREETED_S), *quiet(20), *packets(say(QUESTION)), *quiet(8)],
                max_drain_s=0.5,
            )
        )
        await asyncio.sleep(1.0)
        await who_says_nonsense_in_a_call_goes_on_with_it(front)
        await who_says_nothing_but_nonsense_is_cut_off(front)
        await who_sends_ten_megabytes_is_alone_with_it(front)
        await forged_and_used_tokens_and_signatures_open_nothing(front)
        await a_flood_of_connects_is_refused(front)
        await who_begins_wrongly_does_not_begin(front)
        report = await good
        assert report.violations == [] and front.violations == []
        assert likeness(heard(report), ANSWER) > SAID
        assert report.result.closed_by is None
        # Only callers that began a call have a session.
        assert len(await timelines(server.url)) <= 5
        async with httpx.AsyncClient(base_url=server.url) as client:
            assert (await client.get("/health")).status_code == 200
    written = log.read_text(errors="replace")
    for reason in (
        "expected a text message, got bytes",
        "is not signed by Twilio",
        "is invalid, used or expired",
        "whose token belongs to another call",
        "(too_large)",
    ):
        assert reason in written, reason
    assert "Traceback" not in written
    # A flood is logged in a few lines.
    assert written.count("is not signed by Twilio") < 30
    assert sum("WARNING" in line or "ERROR" in line for line in written.splitlines()) < 60
