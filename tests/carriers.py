"""The carriers' side of phone calls: webhooks with each carrier's signature, and its stream messages.

They follow the carriers' documents, independently of the product's code; ``protocols`` names the pages.
"""

import base64
import hashlib
import hmac
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from parley.audio import g711

PUBLIC = "https://talk.example.org"
CALLER, CALLED = "+15550100", "+15550199"
FORM = {"content-type": "application/x-www-form-urlencoded"}
TELNYX_KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PLIVO_TOKEN, VONAGE_SECRET, EXOTEL_USER, EXOTEL_PASSWORD = "p" * 32, "v" * 32, "exotel", "e" * 24


def environment() -> dict[str, str]:
    """Return the environment variables with the secrets of all carriers."""
    public = TELNYX_KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {
        "TELNYX_PUBLIC_KEY": base64.b64encode(public).decode(),
        "PLIVO_AUTH_TOKEN": PLIVO_TOKEN,
        "VONAGE_SIGNATURE_SECRET": VONAGE_SECRET,
        "EXOTEL_USER": EXOTEL_USER,
        "EXOTEL_PASSWORD": EXOTEL_PASSWORD,
    }


@dataclass(frozen=True)
class Webhook:
    """A carrier's webhook request.

    Attributes:
        method, path: method and path of the request; the path has its query.
        body: raw body of the request.
        headers: headers, the signature among them.
    """

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """The meaning of a message that the bot sent.

    Attributes:
        mu_law: audio to play.
        mark: name of a mark to return when the audio before it has been played.
        clears: audio that has not been played is discarded.
    """

    mu_law: bytes = b""
    mark: str = ""
    clears: bool = False


def pcm_of(mu_law: bytes) -> bytes:
    return g711.decode(mu_law, g711.Law.MU).astype("<i2").tobytes()


def mu_law_of(pcm: bytes) -> bytes:
    return g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), g711.Law.MU)


def text64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Network(ABC):
    """The carrier's side of one call."""

    name = ""
    # Packets of 20 ms in a message of the caller's audio.
    packets = 1
    returns_marks_at_clear = True

    def __init__(self, call_id: str = "call-1", stream_id: str = "stream-1") -> None:
        self.call_id, self.stream_id = call_id, stream_id
        self.number = 0

    @abstractmethod
    def webhook(self, *, wall_s: float | None = None) -> Webhook: ...

    @abstractmethod
    def media_url(self, answer: httpx.Response) -> str: ...

    @abstractmethod
    def beginning(self) -> list[str | bytes]: ...

    @abstractmethod
    def audio(self, mu_law: bytes) -> str | bytes: ...

    @abstractmethod
    def key(self, digit: str) -> str: ...

    @abstractmethod
    def mark_back(self, name: str) -> str: ...

    @abstractmethod
    def end(self) -> str | None: ...

    @abstractmethod
    def taken(self, message: str | bytes) -> Taken: ...

    def count(self) -> int:
        self.number += 1
        return self.number


class Telnyx(Network):
    name = "telnyx"

    def webhook(self, *, wall_s: float | None = None) -> Webhook:
        fields = {"CallSid": self.call_id, "From": CALLER, "To": CALLED, "CallStatus": "ringing"}
        body = str(httpx.QueryParams(fields)).encode()
        timestamp = str(int(time.time() if wall_s is None else wall_s))
        signature = text64(TELNYX_KEY.sign(timestamp.encode() + b"|" + body))
        headers = {**FORM, "telnyx-timestamp": timestamp, "telnyx-signature-ed25519": signature}
        return Webhook("POST", "/telnyx/voice", body, headers)

    def media_url(self, answer: httpx.Response) -> str:
        stream = ElementTree.fromstring(answer.text).find("./Connect/Stream")
        assert stream is not None, answer.text
        assert (stream.get("bidirectionalMode"), stream.get("bidirectionalCodec")) == ("rtp", "PCMU")
        return stream.attrib["url"]

    def beginning(self) -> list[str | bytes]:
        format_ = {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
        facts = {
            "user_id": "3E6F995F-85F7-4705-9741-53B116D28237",
            "call_control_id": self.call_id,
            "from": CALLER,
            "to": CALLED,
            "media_format": format_,
        }
        connected = {"event": "connected", "version": "1.0.0"}
        return [json.dumps(connected), self.message("start", start=facts)]

    def message(self, event: str, **facts: Any) -> str:
        number = str(self.count())
        return json.dumps({"event": event, "sequence_number": number, "stream_id": self.stream_id, **facts})

    def audio(self, mu_law: bytes) -> str:
        media = {"track": "inbound", "chunk": str(self.number), "timestamp": "5", "payload": text64(mu_law)}
        return self.message("media", media=media)

    def key(self, digit: str) -> str:
        return self.message("dtmf", occurred_at="2026-11-26T04:00:00Z", dtmf={"digit": digit})

    def mark_back(self, name: str) -> str:
        return self.message("mark", mark={"name": name})

    def end(self) -> str:
        return self.message("stop", stop={"user_id": "3E6F", "call_control_id": self.call_id})

    def taken(self, message: str | bytes) -> Taken:
        match json.loads(message):
            case {"event": "media", "media": {"payload": str(payload)}}:
                return Taken(base64.b64decode(payload, validate=True))
            case {"event": "mark", "mark": {"name": str(name)}}:
                return Taken(mark=name)
            case {"event": "clear"}:
                return Taken(clears=True)
        raise AssertionError(message)


class Plivo(Network):
    name = "plivo"
    returns_marks_at_clear = False

    def webhook(self, *, wall_s: float | None = None) -> Webhook:
        fields = {"CallUUID": self.call_id, "From": CALLER[1:], "To": CALLED[1:], "CallStatus": "ringing"}
        nonce = "12345678901234567890"
        said = "".join(f"{name}{fields[name]}" for name in sorted(fields))
        signed = f"{PUBLIC}/plivo/voice?{said}.{nonce}"
        signature = text64(hmac.new(PLIVO_TOKEN.encode(), signed.encode(), hashlib.sha256).digest())
        headers = {**FORM, "x-plivo-signature-v3": f"bogus,{signature}", "x-plivo-signature-v3-nonce": nonce}
        return Webhook("POST", "/plivo/voice", str(httpx.QueryParams(fields)).encode(), headers)

    def media_url(self, answer: httpx.Response) -> str:
        stream = ElementTree.fromstring(answer.text).find("./Stream")
        assert stream is not None, answer.text
        assert stream.attrib == {
            "bidirectional": "true",
            "keepCallAlive": "true",
            "contentType": "audio/x-mulaw;rate=8000",
        }
        return stream.text or ""

    def beginning(self) -> list[str | bytes]:
        facts = {
            "callId": self.call_id,
            "streamId": self.stream_id,
            "accountId": "MA1",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        }
        start = {"sequenceNumber": self.count(), "event": "start", "start": facts, "extra_headers": ""}
        return [json.dumps(start)]

    def message(self, event: str, **facts: Any) -> str:
        number = self.count()
        return json.dumps({"sequenceNumber": number, "streamId": self.stream_id, "event": event, **facts})

    def audio(self, mu_law: bytes) -> str:
        stamp = str(1_764_130_000_000 + 20 * self.number)
        media = {"track": "inbound", "timestamp": stamp, "chunk": self.number, "payload": text64(mu_law)}
        return self.message("media", media=media, extra_headers="")

    def key(self, digit: str) -> str:
        return self.message("dtmf", dtmf={"track": "inbound", "digit": digit, "timestamp": "1764130000000"})

    def mark_back(self, name: str) -> str:
        return self.message("playedStream", name=name)

    def end(self) -> None:
        return None

    def taken(self, message: str | bytes) -> Taken:
        match json.loads(message):
            case {
                "event": "playAudio",
                "streamId": self.stream_id,
                "media": {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": str(payload)},
            }:
                return Taken(base64.b64decode(payload, validate=True))
            case {"event": "checkpoint", "streamId": self.stream_id, "name": str(name)}:
                return Taken(mark=name)
            case {"event": "clearAudio", "streamId": self.stream_id}:
                return Taken(clears=True)
        raise AssertionError(message)


class Vonage(Network):
    name = "vonage"

    def webhook(self, *, wall_s: float | None = None) -> Webhook:
        fields = {"from": CALLER[1:], "to": CALLED[1:], "uuid": self.call_id, "conversation_uuid": "CON-1"}
        body = json.dumps(fields, separators=(",", ":")).encode()
        claims = {
            "iat": int(time.time() if wall_s is None else wall_s),
            "jti": "c5ba8f24-1a14-4c10-bfdf-3fbe8ce511b5",
            "iss": "Vonage",
            "payload_hash": hashlib.sha256(body).hexdigest(),
            "api_key": "a1b2c3d",
            "application_id": "aaaaaaaa-bbbb-cccc-dddd-0123456789ab",
        }
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token(claims)}"}
        return Webhook("POST", "/vonage/voice", body, headers)

    @staticmethod
    def token(claims: dict[str, Any], *, alg: str = "HS256", secret: str = VONAGE_SECRET) -> str:
        def part(data: bytes) -> str:
            return base64.urlsafe_b64encode(data).decode().rstrip("=")

        signed = ".".join(part(json.dumps(each).encode()) for each in ({"alg": alg, "typ": "JWT"}, claims))
        return f"{signed}.{part(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())}"

    def media_url(self, answer: httpx.Response) -> str:
        [action] = answer.json()
        [endpoint] = action["endpoint"]
        assert (action["action"], endpoint["type"]) == ("connect", "websocket")
        assert endpoint["content-type"] == "audio/l16;rate=8000"
        # The parameters come back in the first message of the socket.
        assert endpoint["headers"] == {"call": self.call_id}
        return str(endpoint["uri"])

    def beginning(self) -> list[str | bytes]:
        return [
            json.dumps(
                {"event": "websocket:connected", "content-type": "audio/l16;rate=8000", "call": self.call_id}
            )
        ]

    def audio(self, mu_law: bytes) -> bytes:
        return pcm_of(mu_law)

    def key(self, digit: str) -> str:
        return json.dumps({"event": "websocket:dtmf", "digit": digit, "duration": 260})

    def mark_back(self, name: str) -> str:
        return json.dumps({"event": "websocket:notify", "payload": {"name": name}})

    def end(self) -> None:
        return None

    def taken(self, message: str | bytes) -> Taken:
        if isinstance(message, bytes):
            assert len(message) == 320
            return Taken(mu_law_of(message))
        match json.loads(message):
            case {"action": "notify", "payload": {"name": str(name)}}:
                return Taken(mark=name)
            case {"action": "clear"}:
                return Taken(clears=True)
        raise AssertionError(message)


class Exotel(Network):
    name = "exotel"
    packets = 5

    def webhook(self, *, wall_s: float | None = None) -> Webhook:
        query = httpx.QueryParams(
            {"CallSid": self.call_id, "CallFrom": CALLER, "CallTo": CALLED, "Direction": "incoming"}
        )
        known = text64(f"{EXOTEL_USER}:{EXOTEL_PASSWORD}".encode())
        return Webhook("GET", f"/exotel/voice?{query}", headers={"authorization": f"Basic {known}"})

    def media_url(self, answer: httpx.Response) -> str:
        return str(answer.json()["url"])

    def beginning(self) -> list[str | bytes]:
        facts = {
            "stream_sid": self.stream_id,
            "call_sid": self.call_id,
            "account_sid": "AC1",
            "from": CALLER,
            "to": CALLED,
            "custom_parameters": {},
            "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"},
        }
        return [json.dumps({"event": "connected"}), self.message("start", start=facts)]

    def message(self, event: str, **facts: Any) -> str:
        number = str(self.count())
        return json.dumps({"event": event, "sequence_number": number, "stream_sid": self.stream_id, **facts})

    def audio(self, mu_law: bytes) -> str:
        payload = text64(pcm_of(mu_law))
        return self.message("media", media={"chunk": "2", "timestamp": "200", "payload": payload})

    def key(self, digit: str) -> str:
        return self.message("dtmf", dtmf={"digit": digit, "duration": "100"})

    def mark_back(self, name: str) -> str:
        return self.message("mark", mark={"name": name})

    def end(self) -> str:
        return self.message(
            "stop", stop={"call_sid": self.call_id, "account_sid": "AC1", "reason": "callended"}
        )

    def taken(self, message: str | bytes) -> Taken:
        match json.loads(message):
            case {"event": "media", "stream_sid": self.stream_id, "media": {"payload": str(payload)}}:
                pcm = base64.b64decode(payload, validate=True)
                assert len(pcm) >= 1_600 and len(pcm) % 320 == 0
                return Taken(mu_law_of(pcm))
            case {"event": "mark", "stream_sid": self.stream_id, "mark": {"name": str(name)}}:
                return Taken(mark=name)
            case {"event": "clear", "stream_sid": self.stream_id}:
                return Taken(clears=True)
        raise AssertionError(message)


NETWORKS: tuple[type[Network], ...] = (Telnyx, Plivo, Vonage, Exotel)
