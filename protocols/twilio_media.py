"""Messages of bidirectional Twilio Media Streams (``<Connect><Stream>``). Pure.

Input: text messages of Twilio. Counters come as strings, the audio format as numbers. Output: an ``Event``,
or a ``ProtocolError`` with the reason. The reader continues with the next message after a refusal, and closes
a socket after ``MOST_REFUSED`` in a row. ``MediaStream`` enforces the order of a stream: ``connected``, one
``start``, then any message of that stream, and nothing after ``stop``.

The audio is mu-law, 8 kHz, mono, 20 ms a message. ``timestamp`` is the position of a piece in the call, in
milliseconds. A piece that the phone network lost leaves a gap in the timestamps, and none in the sequence
numbers.

Source: twilio.com/docs/voice/media-streams/websocket-messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from parley.protocols.client_protocol import Message, ProtocolError, decoded, json_object, written

RATE_HZ = 8_000
PACKET_MS = 20
PACKET_BYTES = RATE_HZ * PACKET_MS // 1000
SILENCE = b"\xff"
ENCODING = "audio/x-mulaw"
# A message is 400 bytes; other servers accept 64 KiB at most. The audio of one message has its own bound.
MOST_MESSAGE_CHARS, MOST_PAYLOAD_BYTES = 65_536, RATE_HZ * 2
MOST_NAME_CHARS, MOST_PARAMETERS = 500, 64
MOST_REFUSED = 50
# Bound for a jump in the sequence numbers. TCP loses no message, so a larger step does not come from Twilio;
# accepting it would make all later messages look old.
MOST_SKIPPED = 1_000
DIGITS = frozenset("0123456789*#ABCD")
_TYPES = ("connected", "start", "media", "dtmf", "mark", "stop")


@dataclass(frozen=True, slots=True)
class Started:
    """A stream has begun.

    Attributes:
        stream_sid: named in every message.
        call_sid: of the phone call.
        account_sid: account that owns the call.
        parameters: of the TwiML.
    """

    stream_sid: str
    call_sid: str
    account_sid: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio of the caller.

    Attributes:
        mu_law: samples, of any number.
        at_ms: position in the call.
    """

    mu_law: bytes
    at_ms: int


@dataclass(frozen=True, slots=True)
class Digit:
    """Key of the telephone that was pressed."""

    digit: str


@dataclass(frozen=True, slots=True)
class MarkBack:
    """A mark came back: the audio sent before it has been played, or was dropped by a ``clear``."""

    name: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stream is over: the caller has left, or the call was redirected."""


Event = Started | Audio | Digit | MarkBack | Stopped


class MediaStream:
    """Parser of one stream; enforces the order of its messages.

    Attributes:
        started: its first event; None before that.
        is_over: true after ``stop``.
        skipped: number of sequence numbers that never came.
    """

    def __init__(self) -> None:
        self.started: Started | None = None
        self.is_over = False
        self.skipped = 0
        self._is_connected = False
        self._sequence = 0

    def read(self, said: str) -> Event | None:
        """Parse the next message; return None for ``connected``, which carries no information.

        Raises:
            ProtocolError: not a valid message, or in the wrong order.
        """
        if len(said) > MOST_MESSAGE_CHARS:
            raise ProtocolError(f"over {MOST_MESSAGE_CHARS} characters", code="too_large")
        message = _event(said)
        kind = message["event"]
        if self.is_over:
            raise ProtocolError(f"{kind} after stop", code="wrong_order")
        if kind == "connected":
            self._connect(message)
            return None
        if kind == "start":
            return self._start(message)
        if self.started is None:
            raise ProtocolError(f"{kind} before start", code="wrong_order")
        if message.get("streamSid") != self.started.stream_sid:
            raise ProtocolError(
                "streamSid: belongs to another stream", code="wrong_stream", param="streamSid"
            )
        self._count(message)
        match kind:
            case "media":
                return _audio(message)
            case "dtmf":
                return checked_digit(text(part(message, "dtmf"), "digit"))
            case "mark":
                return MarkBack(text(part(message, "mark"), "name"))
            case _:
                self.is_over = True
                return Stopped()

    def _connect(self, message: Message) -> None:
        if self._is_connected or self.started is not None:
            raise ProtocolError("a second connected", code="wrong_order")
        if message.get("protocol") != "Call":
            raise ProtocolError("protocol: expected Call", code="not_supported", param="protocol")
        self._is_connected = True

    def _start(self, message: Message) -> Started:
        if self.started is not None:
            raise ProtocolError("a second start", code="wrong_order")
        if not self._is_connected:
            raise ProtocolError("start before connected", code="wrong_order")
        facts = part(message, "start")
        format_ = part(facts, "mediaFormat")
        if (format_.get("encoding"), format_.get("sampleRate"), format_.get("channels")) != (
            ENCODING,
            RATE_HZ,
            1,
        ):
            raise ProtocolError(
                "mediaFormat: expected mu-law, 8000 Hz, mono", code="not_supported", param="mediaFormat"
            )
        stream_sid = text(message, "streamSid")
        if facts.get("streamSid") not in (None, stream_sid):
            raise ProtocolError(
                "start.streamSid: belongs to another stream", code="wrong_stream", param="start.streamSid"
            )
        tracks = facts.get("tracks", ["inbound"])
        if tracks != ["inbound"]:
            raise ProtocolError(
                "tracks: expected only the caller's", code="not_supported", param="start.tracks"
            )
        self._count(message)
        self.started = Started(
            stream_sid, text(facts, "callSid"), text(facts, "accountSid"), _parameters(facts)
        )
        return self.started

    def _count(self, message: Message) -> None:
        number = _number(message, "sequenceNumber")
        if number <= self._sequence:
            raise ProtocolError(
                f"sequenceNumber: {number} is behind {self._sequence}",
                code="replayed",
                param="sequenceNumber",
            )
        if self._sequence and number > self._sequence + MOST_SKIPPED:
            raise ProtocolError(
                f"sequenceNumber: {number} is far behind {self._sequence}",
                code="wrong_order",
                param="sequenceNumber",
            )
        if self._sequence:
            self.skipped += number - self._sequence - 1
        self._sequence = number


class ToCaller:
    """Messages to Twilio on one stream.

    Args:
        stream_sid: of the stream.
    """

    def __init__(self, stream_sid: str) -> None:
        # Every call sends a packet each 20 ms. The constant part of a message is written once.
        named = orjson.dumps(stream_sid).decode()
        self._media = f'{{"event":"media","streamSid":{named},"media":{{"payload":"'
        self.clear = f'{{"event":"clear","streamSid":{named}}}'
        self._mark = f'{{"event":"mark","streamSid":{named},"mark":{{"name":"'

    def media(self, mu_law: bytes) -> str:
        """Return the message with audio for the caller, of any length; it is played after earlier audio."""
        return f'{self._media}{written(mu_law)}"}}}}'

    def mark(self, name: str) -> str:
        """Return the message with a mark, which comes back when the audio before it has been played.

        Args:
            name: letters and digits.
        """
        return f'{self._mark}{name}"}}}}'


def _event(text: str) -> Message:
    message = json_object(text)
    kind = message.get("event")
    if kind not in _TYPES:
        shown = kind[:40] if isinstance(kind, str) else type(kind).__name__
        raise ProtocolError(f"event: {shown!r} is not a known event", code="unknown_event", param="event")
    return message


def _audio(message: Message) -> Audio:
    facts = part(message, "media")
    if facts.get("track") != "inbound":
        raise ProtocolError("media.track: expected inbound", code="invalid_payload", param="media.track")
    _number(facts, "chunk")
    payload = decoded(facts.get("payload"), param="media.payload", most_bytes=MOST_PAYLOAD_BYTES)
    return Audio(payload, _number(facts, "timestamp"))


def checked_digit(digit: str) -> Digit:
    """Return a key of the telephone.

    Raises:
        ProtocolError: it is none.
    """
    if digit not in DIGITS:
        raise ProtocolError("digit: not a key", code="invalid_payload", param="digit")
    return Digit(digit)


def part(message: Mapping[str, Any], name: str) -> Message:
    """Return an object within a message.

    Raises:
        ProtocolError: it is not there.
    """
    value = message.get(name)
    if not isinstance(value, dict):
        raise ProtocolError(f"{name}: missing", code="missing_field", param=name)
    return value


def text(message: Mapping[str, Any], name: str) -> str:
    """Return a text within a message.

    Raises:
        ProtocolError: it is not there, empty, or longer than a name is.
    """
    value = message.get(name)
    if not isinstance(value, str) or not value or len(value) > MOST_NAME_CHARS:
        raise ProtocolError(f"{name}: expected text", code="invalid_payload", param=name)
    return value


def _number(message: Mapping[str, Any], name: str) -> int:
    """Return a number that is written as text."""
    value = message.get(name)
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 15:
        raise ProtocolError(f"{name}: expected a number as text", code="invalid_payload", param=name)
    return int(value)


def _parameters(facts: Mapping[str, Any]) -> dict[str, str]:
    given = facts.get("customParameters", {})
    if not isinstance(given, dict) or len(given) > MOST_PARAMETERS:
        raise ProtocolError("customParameters: expected names and texts", code="invalid_payload")
    if not all(
        isinstance(value, str) and len(name) + len(value) <= 2 * MOST_NAME_CHARS
        for name, value in given.items()
    ):
        raise ProtocolError("customParameters: expected names and texts", code="invalid_payload")
    return dict(given)
