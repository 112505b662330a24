"""Streams that Pipecat's serializers translate, with the parts that a serializer leaves out.

Input: messages of a phone network. Output: the events that they carry (``protocols.twilio_media.Event``),
and the messages to send to the caller. Order, size and the names of streams are checked here, before a
serializer reads a message. A serializer logs what it cannot read, in full, and raises on unexpected input. It
converts audio and ``clear`` between our form and the network's. Keys are read here, and so are marks, which
serializers do not support.

Audio is 16-bit PCM at 8 kHz at the serializer, which resamples nothing. Positions of the caller's audio are
counted in samples: the times that these networks send are wall-clock times, or not in order, and TCP loses
nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer

from parley.audio import g711
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.client_protocol import Message as JsonMessage
from parley.protocols.client_protocol import ProtocolError, decoded, json_object, json_text
from parley.protocols.twilio_media import (
    MOST_MESSAGE_CHARS,
    MOST_PAYLOAD_BYTES,
    RATE_HZ,
    Audio,
    Event,
    MarkBack,
    Started,
    Stopped,
    checked_digit,
    part,
    text,
)
from parley.transports.phone_protocol import Message


class NetworkMessageKind(Enum):
    """Kind of a message of a network."""

    STARTED = "started"
    AUDIO = "audio"
    KEY = "key"
    MARK_BACK = "mark back"
    STOPPED = "stopped"
    NOTHING = "nothing"


class SerializedStream(ABC):
    """Stream of a network; a subclass implements the network's particulars."""

    kinds: Mapping[str, NetworkMessageKind]
    """Kinds by the ``event`` of a message."""
    is_continuous = False

    def __init__(self) -> None:
        self._serializer: FrameSerializer | None = None
        self._stream_id = ""
        self._heard_bytes = 0
        self._is_over = False

    @abstractmethod
    def started(self, message: JsonMessage) -> tuple[Started, FrameSerializer]:
        """Return the beginning of a stream, and the serializer that translates it.

        Raises:
            ProtocolError: the stream is in an unsupported format.
        """

    @abstractmethod
    def mark_message(self, name: str) -> JsonMessage:
        """Return the message that has the network report when all audio sent before it has been played."""

    @abstractmethod
    def mark_name(self, message: JsonMessage) -> str:
        """Return the name of a mark that comes back."""

    def key(self, message: JsonMessage) -> str:
        """Return the key that a message reports."""
        return text(part(message, "dtmf"), "digit")

    def stream_id(self, message: JsonMessage) -> str:
        """Return the stream that a message names; the id of this stream where messages name none."""
        return self._stream_id

    @abstractmethod
    def check_audio(self, message: JsonMessage) -> None:
        """Raise ProtocolError for a message without audio, or with audio that is not the caller's."""

    # Messages from the network.

    async def read(self, message: Message) -> Event | None:
        """Return the event that a message carries (``StreamProtocol``); None when it carries none."""
        if isinstance(message, bytes):
            return await self.read_bytes(message)
        if len(message) > MOST_MESSAGE_CHARS:
            raise ProtocolError(f"over {MOST_MESSAGE_CHARS} characters", code="too_large")
        parsed = json_object(message)
        kind = self._kind_of(parsed)
        if self._is_over:
            raise ProtocolError("a message after the end", code="wrong_order")
        if kind is NetworkMessageKind.NOTHING:
            return None
        if kind is NetworkMessageKind.STARTED:
            return await self._start(parsed)
        if self._serializer is None:
            raise ProtocolError(f"{kind.value} before the start", code="wrong_order")
        if self.stream_id(parsed) != self._stream_id:
            raise ProtocolError("a message for another stream", code="wrong_stream")
        if kind is NetworkMessageKind.MARK_BACK:
            return MarkBack(self.mark_name(parsed))
        if kind is NetworkMessageKind.KEY:
            return checked_digit(self.key(parsed))
        if kind is NetworkMessageKind.STOPPED:
            self._is_over = True
            return Stopped()
        self.check_audio(parsed)
        return await self._translated(self._serializer, message)

    async def read_bytes(self, message: bytes) -> Event | None:
        """Read a binary message. Raises ProtocolError by default: most networks send none."""
        raise ProtocolError("expected a text message, got bytes", code="invalid_payload")

    async def _start(self, parsed: JsonMessage) -> Started:
        if self._serializer is not None:
            raise ProtocolError("a second start", code="wrong_order")
        started, serializer = self.started(parsed)
        # Serializers read only this field of the setup.
        setup = SimpleNamespace(audio_in_sample_rate=RATE_HZ)
        await serializer.setup(cast(FrameProcessorSetup, setup))
        self._serializer, self._stream_id = serializer, started.stream_sid
        return started

    async def _translated(self, serializer: FrameSerializer, message: Message) -> Event | None:
        try:
            frame = await serializer.deserialize(message)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProtocolError("audio: unreadable", code="invalid_payload") from error
        return self._audio(frame) if isinstance(frame, InputAudioRawFrame) else None

    def _audio(self, frame: InputAudioRawFrame) -> Audio:
        if len(frame.audio) % PCM_BYTES_PER_SAMPLE:
            raise ProtocolError("audio: not a whole number of samples", code="invalid_payload")
        pcm = np.frombuffer(frame.audio, "<i2").astype(np.int16)
        at_ms = self._heard_bytes * 1000 // RATE_HZ
        self._heard_bytes += len(pcm)
        return Audio(g711.encode(pcm, g711.Law.MU), at_ms)

    def _kind_of(self, message: JsonMessage) -> NetworkMessageKind:
        event = message.get("event")
        kind = self.kinds.get(event) if isinstance(event, str) else None
        if kind is None:
            raise ProtocolError(
                f"event: {str(event)[:40]!r} is not a known event", code="unknown_event", param="event"
            )
        return kind

    # Messages to the network.

    async def media(self, mu_law: bytes) -> Sequence[Message]:
        """Return the messages that queue audio, as the serializer writes them (``StreamProtocol``)."""
        pcm = g711.decode(mu_law, g711.Law.MU).astype("<i2").tobytes()
        return await self._serialized(OutputAudioRawFrame(audio=pcm, sample_rate=RATE_HZ, num_channels=1))

    async def mark(self, name: str) -> Sequence[Message]:
        """Return the network's message for a mark (``StreamProtocol``)."""
        return (json_text(self.mark_message(name)),)

    async def clear(self) -> Sequence[Message]:
        """Return the serializer's message for an interruption (``StreamProtocol``)."""
        return await self._serialized(InterruptionFrame())

    async def _serialized(self, frame: Frame) -> Sequence[Message]:
        assert self._serializer is not None, "nothing is sent before the start"
        message = await self._serializer.serialize(frame)
        return () if message is None else (message,)


def check_format(format_: JsonMessage, rate_field: str, **expected: Any) -> None:
    """Raise ProtocolError for audio that is not at 8 kHz, or not as expected.

    Args:
        format_: the network's description of the audio.
        rate_field: name of the field with its rate, a number or text.
        expected: other fields, each with its supported values.
    """
    rate = format_.get(rate_field)
    if str(rate) != str(RATE_HZ):
        raise ProtocolError(f"{rate_field}: expected {RATE_HZ}", code="not_supported", param=rate_field)
    for name, values in expected.items():
        if format_.get(name) not in values:
            raise ProtocolError(f"{name}: expected {' or '.join(values)}", code="not_supported", param=name)


def check_payload(payload: object) -> None:
    """Raise ProtocolError for audio that is not valid base64, or is longer than one message may be."""
    decoded(payload, param="media.payload", most_bytes=MOST_PAYLOAD_BYTES * PCM_BYTES_PER_SAMPLE)
