"""Webhooks and media streams of the phone networks, signed as by each of them.

The secrets are those of ``ENVIRONMENT``, which the server of the fuzzer gets.
"""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.asyncio.client import connect

from parley.core.errors import PeerError
from parley.evals.abuse.attacks.mutating import TWILIO_PATHS
from parley.evals.abuse.mutations import mutated, mutated_text
from parley.evals.abuse.protocols import twilio_messages
from parley.evals.abuse.registry import OPEN_S
from parley.evals.abuse.target import own_address
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.dialects.sockets import CONTROL, MESSAGES, reading, send_many
from parley.evals.harness.phone_network import PUBLIC, Front
from parley.protocols import plivo

NUMBER, CALLED = "+15550100", "+15550199"
TELNYX_KEY = Ed25519PrivateKey.from_private_bytes(b"f" * 32)
PLIVO_TOKEN, VONAGE_SECRET, EXOTEL_USER, EXOTEL_PASSWORD = "p" * 32, "v" * 32, "exotel", "e" * 24
ENVIRONMENT = {
    "TELNYX_PUBLIC_KEY": base64.b64encode(TELNYX_KEY.public_key().public_bytes_raw()).decode(),
    "PLIVO_AUTH_TOKEN": PLIVO_TOKEN,
    "VONAGE_SIGNATURE_SECRET": VONAGE_SECRET,
    "EXOTEL_USER": EXOTEL_USER,
    "EXOTEL_PASSWORD": EXOTEL_PASSWORD,
}
FORM = "application/x-www-form-urlencoded"
ADDRESS = re.compile(r"wss://[^\"<\s]+")
SILENCE_8 = base64.b64encode(b"\xff" * 160).decode()
PCM_8 = base64.b64encode(bytes(1_600)).decode()
# Requests of one conversation.
REQUESTS = 60


@dataclass(frozen=True, slots=True)
class Request:
    """Webhook of a network.

    Attributes:
        method: of HTTP.
        path: with its query.
        body: as signed.
        headers: with the signature.
    """

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


def twilio(fields: Mapping[str, str], path: str = "/twilio/voice") -> Request:
    """Return a webhook of Twilio's."""
    headers = {"Content-Type": FORM, **Front("").headers(f"{PUBLIC}{path}", dict(fields))}
    return Request("POST", path, urlencode(fields).encode(), headers)


def telnyx(fields: Mapping[str, str]) -> Request:
    """Return a webhook of Telnyx'."""
    body, stamp = urlencode(fields).encode(), str(int(time.time()))
    signature = base64.b64encode(TELNYX_KEY.sign(stamp.encode() + b"|" + body)).decode()
    headers = {"Content-Type": FORM, "telnyx-timestamp": stamp, "telnyx-signature-ed25519": signature}
    return Request("POST", "/telnyx/voice", body, headers)


def of_plivo(fields: Mapping[str, str]) -> Request:
    """Return a webhook of Plivo's."""
    fields = {**fields, "CallUUID": fields["CallSid"]}
    nonce = "12345678901234567890"
    lists = {name: [value] for name, value in fields.items()}
    signature = plivo.signature(PLIVO_TOKEN, f"{PUBLIC}/plivo/voice", lists, nonce)
    headers = {"X-Plivo-Signature-V3": signature, "X-Plivo-Signature-V3-Nonce": nonce, "Content-Type": FORM}
    return Request("POST", "/plivo/voice", urlencode(fields).encode(), headers)


def vonage(fields: Mapping[str, str]) -> Request:
    """Return a webhook of Vonage's."""
    given = {"from": fields.get("From"), "to": fields.get("To"), "uuid": fields["CallSid"]}
    body = json.dumps(given, separators=(",", ":")).encode()
    claims = {"iat": int(time.time()), "iss": "Vonage", "payload_hash": hashlib.sha256(body).hexdigest()}
    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    signed = ".".join(_part(json.dumps(part).encode()) for part in parts)
    seal = _part(hmac.new(VONAGE_SECRET.encode(), signed.encode(), hashlib.sha256).digest())
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {signed}.{seal}"}
    return Request("POST", "/vonage/voice", body, headers)


def exotel(fields: Mapping[str, str]) -> Request:
    """Return a request of Exotel's."""
    query = urlencode({"CallSid": fields["CallSid"], "CallFrom": fields.get("From", ""), "CallTo": CALLED})
    known = base64.b64encode(f"{EXOTEL_USER}:{EXOTEL_PASSWORD}".encode()).decode()
    return Request("GET", f"/exotel/voice?{query}", b"", {"Authorization": f"Basic {known}"})


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _telnyx_messages(call: str) -> list[dict[str, Any]]:
    facts = {
        "user_id": "3E6F",
        "call_control_id": call,
        "from": NUMBER,
        "to": CALLED,
        "media_format": {"encoding": "PCMU", "sample_rate": 8_000, "channels": 1},
    }
    same = {"stream_id": "s1"}
    media = {"track": "inbound", "chunk": "2", "timestamp": "5", "payload": SILENCE_8}
    return [
        {"event": "connected", "version": "1.0.0"},
        {"event": "start", "sequence_number": "1", **same, "start": facts},
        {"event": "media", "sequence_number": "2", **same, "media": media},
        {"event": "dtmf", "sequence_number": "3", **same, "dtmf": {"digit": "1"}},
        {"event": "mark", "sequence_number": "4", **same, "mark": {"name": "m"}},
        {"event": "stop", "sequence_number": "5", **same, "stop": {"call_control_id": call}},
    ]


def _plivo_messages(call: str) -> list[dict[str, Any]]:
    facts = {
        "callId": call,
        "streamId": "s1",
        "accountId": "MA1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8_000},
    }
    media = {"track": "inbound", "timestamp": "1764130000020", "chunk": 2, "payload": SILENCE_8}
    same = {"streamId": "s1", "extra_headers": ""}
    return [
        {"sequenceNumber": 1, "event": "start", "start": facts, "extra_headers": ""},
        {"sequenceNumber": 2, **same, "event": "media", "media": media},
        {"sequenceNumber": 3, **same, "event": "dtmf", "dtmf": {"track": "inbound", "digit": "1"}},
        {"sequenceNumber": 4, **same, "event": "playedStream", "name": "m"},
    ]


def _vonage_messages(call: str) -> list[dict[str, Any]]:
    return [
        {"event": "websocket:connected", "content-type": "audio/l16;rate=8000", "call": call},
        {"event": "websocket:dtmf", "digit": "1", "duration": 260},
        {"event": "websocket:notify", "payload": {"name": "m"}},
    ]


def _exotel_messages(call: str) -> list[dict[str, Any]]:
    facts = {
        "stream_sid": "s1",
        "call_sid": call,
        "account_sid": "AC1",
        "from": NUMBER,
        "to": CALLED,
        "custom_parameters": {},
        "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"},
    }
    same = {"stream_sid": "s1"}
    media = {"chunk": "2", "timestamp": "200", "payload": PCM_8}
    return [
        {"event": "connected"},
        {"event": "start", "sequence_number": "1", **same, "start": facts},
        {"event": "media", "sequence_number": "2", **same, "media": media},
        {"event": "dtmf", "sequence_number": "3", **same, "dtmf": {"digit": "1", "duration": "100"}},
        {"event": "mark", "sequence_number": "4", **same, "mark": {"name": "m"}},
        {"event": "stop", "sequence_number": "5", **same, "stop": {"call_sid": call, "reason": "callended"}},
    ]


@dataclass(frozen=True, slots=True)
class _Carrier:
    """Phone network.

    Attributes:
        webhook: signed request that begins a call.
        messages: of its stream; those before the audio first.
        beginning: number of messages that begin a stream.
    """

    webhook: Callable[[Mapping[str, str]], Request]
    messages: Callable[[str], list[dict[str, Any]]]
    beginning: int


CARRIERS: Mapping[str, _Carrier] = {
    "twilio": _Carrier(twilio, twilio_messages, 2),
    "telnyx": _Carrier(telnyx, _telnyx_messages, 2),
    "plivo": _Carrier(of_plivo, _plivo_messages, 1),
    "vonage": _Carrier(vonage, _vonage_messages, 1),
    "exotel": _Carrier(exotel, _exotel_messages, 2),
}


async def stream(conversation: FuzzConversation, carrier: str) -> None:
    """Hold a call of a phone network."""
    dice, network = conversation.dice, CARRIERS[carrier]
    call = f"CA{dice.getrandbits(128):032x}"
    request = network.webhook(_fields(call))
    begins_right = dice.random() < 0.9
    async with conversation.run.client(conversation.address) as client:
        await conversation.note(request.body or request.path)
        async with client.request(
            request.method,
            request.path,
            data=request.body or None,
            headers={**request.headers, "Host": urlsplit(PUBLIC).netloc},
        ) as response:
            text = await response.text()
            conversation.answered(response.status, request.path)
    if (address := ADDRESS.search(text)) is None:
        raise PeerError(f"the answer opens no stream: {text[:100]}")
    here = urlsplit(conversation.target.url)
    signed = Front("").headers(address[0]) if carrier == "twilio" else None
    async with (
        connect(
            address[0].replace("wss://", "ws://"),
            host=here.hostname,
            port=here.port,
            additional_headers=signed,
            local_addr=(own_address(conversation.address), 0),
            max_size=None,
            open_timeout=OPEN_S,
            close_timeout=1.0,
            ping_interval=None,
        ) as socket,
        reading(conversation, socket),
    ):
        messages = network.messages(call)
        for message in messages[: network.beginning]:
            await conversation.send(socket, json.dumps(message) if begins_right else mutated(message, dice))
        if carrier == "vonage":
            # Its audio is bytes, and not JSON.
            for _ in range(MESSAGES // 4):
                await conversation.send(socket, dice.randbytes(dice.choice((320, 320, 0, 1, 640, 70_000))))
        await send_many(conversation, socket, messages)


def _fields(call: str) -> dict[str, str]:
    account = "AC" + "1" * 32
    given = {"AccountSid": account, "CallSid": call, "From": NUMBER, "To": CALLED}
    return {**given, "Direction": "inbound", "CallStatus": "ringing"}


async def webhooks(conversation: FuzzConversation) -> None:
    """Send forms of all networks, changed before they are signed or after it."""
    dice = conversation.dice
    async with conversation.run.client(conversation.address) as client:
        for _ in range(REQUESTS):
            fields = _fields(f"CA{dice.getrandbits(128):032x}")
            for name in list(fields):
                if name != "CallSid" and dice.random() < 0.2:
                    fields[name] = mutated_text(fields[name], dice)
            name, path = dice.choice(list(CARRIERS)), dice.choice(TWILIO_PATHS)
            make: Callable[[Mapping[str, str]], Request] = CARRIERS[name].webhook
            if name == "twilio":
                make = partial(twilio, path=f"/twilio/{path}")
            request = make(fields)
            body = request.body
            if dice.random() < CONTROL * 10 and body:
                body = mutated_text(body.decode(), dice).encode("utf-8", "replace")
            await conversation.note(request.path.encode() + b" " + body)
            headers = {**request.headers, "Host": urlsplit(PUBLIC).netloc}
            async with client.request(
                request.method, request.path, data=body or None, headers=headers
            ) as response:
                await response.read()
                conversation.answered(response.status, request.path.partition("?")[0])
