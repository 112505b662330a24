"""Frames of Pipecat's own WebSocket clients: Protocol Buffers with audio, and with RTVI messages as JSON.

A client's audio may have any rate of speech, in one channel or two, and is converted to the rate of calls.
Of its frames only audio and RTVI messages count. A text or a transcript would be words of a caller whom no
recogniser has heard, and is dropped, as an interruption is: the server decides what interrupts the bot.

The bot's audio is sent at the pace at which it is played, ``LEAD_MS`` ahead. Pipecat's own transport sends
twice as fast, and what an interruption finds in the client's buffer would count as heard.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.frames.protobufs import frames_pb2
from pipecat.processors.frameworks.rtvi.models import MESSAGE_LABEL
from pipecat.processors.frameworks.rtvi.models import Message as RtviMessage
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pydantic import ValidationError

from parley.audio.resample import Resampler
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.protocols.client_protocol import Message, ProtocolError, json_object

# Rates of sound devices and codecs. Another one may have no small common divisor with the rate of calls: its
# filter would take a quarter of a second to compute, on the loop.
RATES_HZ = frozenset({8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000})
MOST_AUDIO_MS = 1_000
MOST_MESSAGE_CHARS = 64_000
# As of a browser's data channel: Pipecat repeats an id in its answer, and logs an unknown type.
MOST_TYPE_CHARS, MOST_ID_CHARS = 64, 256
# Audio that a client may hold in advance.
LEAD_MS = 200


@dataclass(frozen=True, slots=True)
class ClientAudio:
    """Audio of a client, checked.

    Attributes:
        pcm: 16-bit samples, interleaved.
        rate_hz: of the samples.
        channels: 1 or 2.
    """

    pcm: bytes
    rate_hz: int
    channels: int


def client_frame(data: bytes) -> ClientAudio | Message | None:
    """Read a frame of a client.

    Returns:
        Audio, an RTVI message, or None for a frame that has no meaning here.

    Raises:
        ProtocolError: not a frame, or one that cannot be used.
    """
    try:
        frame = frames_pb2.Frame.FromString(data)  # type: ignore[attr-defined]
    except DecodeError as error:
        raise ProtocolError("the message is not a frame of Pipecat's", code="invalid_payload") from error
    kind = frame.WhichOneof("frame")
    if kind == "audio":
        return _audio(frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels)
    if kind == "message":
        return _message(frame.message.data)
    if kind is None:
        raise ProtocolError("the frame is empty", code="invalid_payload")
    return None


def message_frame(message: Mapping[str, object]) -> bytes:
    """Return the frame of an RTVI message to a client."""
    frame = frames_pb2.Frame()  # type: ignore[attr-defined]
    frame.message.data = json.dumps(message)
    return bytes(frame.SerializeToString())


def _audio(pcm: bytes, rate_hz: int, channels: int) -> ClientAudio:
    if rate_hz not in RATES_HZ:
        raise ProtocolError(
            f"audio.sample_rate: {rate_hz} is none of {', '.join(map(str, sorted(RATES_HZ)))}",
            code="invalid_value",
            param="audio.sample_rate",
        )
    if channels not in (1, 2):
        raise ProtocolError(
            f"audio.num_channels: {channels} is neither 1 nor 2",
            code="invalid_value",
            param="audio.num_channels",
        )
    if len(pcm) % (PCM_BYTES_PER_SAMPLE * channels):
        raise ProtocolError(
            "audio.audio: not a whole number of 16-bit samples", code="invalid_payload", param="audio.audio"
        )
    if len(pcm) > rate_hz * channels * PCM_BYTES_PER_SAMPLE * MOST_AUDIO_MS // 1000:
        raise ProtocolError(
            f"audio.audio: over {MOST_AUDIO_MS} ms in a frame", code="too_large", param="audio.audio"
        )
    return ClientAudio(pcm, rate_hz, channels)


def _message(text: str) -> Message:
    if len(text) > MOST_MESSAGE_CHARS:
        raise ProtocolError(f"message: over {MOST_MESSAGE_CHARS} characters", code="too_large")
    message = json_object(text)
    try:
        request = RtviMessage.model_validate(message)
    except ValidationError:
        request = None
    if (
        request is None
        or message.get("label") != MESSAGE_LABEL
        or len(request.type) > MOST_TYPE_CHARS
        or len(request.id) > MOST_ID_CHARS
    ):
        raise ProtocolError(
            f"message: not an RTVI message: label {MESSAGE_LABEL!r}, type, id and data", code="invalid_value"
        )
    return message


class CallSerializer(ProtobufFrameSerializer):
    """Frames of one call; those of the client were checked by its socket.

    Args:
        rate_hz: rate at which the call takes audio.
    """

    def __init__(self, rate_hz: int) -> None:
        super().__init__()
        self._rate_hz = rate_hz
        self._resampler: Resampler | None = None
        self._resampled_hz = 0
        # Loop time at which the audio sent so far has been played.
        self._played_s = 0.0

    async def serialize(self, frame: Frame) -> str | bytes | None:
        """Return a frame for the client; audio when it is due. None for a frame that clients do not read."""
        match frame:
            case OutputAudioRawFrame():
                await self._until_due(frame)
            case InterruptionFrame():
                # The client drops what it has not played.
                self._played_s = 0.0
            case OutputTransportMessageFrame() | OutputTransportMessageUrgentFrame():
                pass
            case _:
                return None
        return await super().serialize(frame)

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Return the frame of a client's message; None for one that has no meaning here."""
        if isinstance(data, str):
            return None
        match client_frame(data):
            case ClientAudio() as audio:
                pcm = self._at_rate(audio)
                return InputAudioRawFrame(pcm, self._rate_hz, 1) if pcm else None
            case dict() as message:
                return InputTransportMessageFrame(message=message)
        return None

    def _at_rate(self, audio: ClientAudio) -> bytes:
        if (audio.rate_hz, audio.channels) == (self._rate_hz, 1):
            return audio.pcm
        samples = pcm16_to_float(audio.pcm)
        if audio.channels == 2:
            samples = samples.reshape(-1, 2).mean(axis=1)
        if audio.rate_hz == self._rate_hz:
            return float_to_pcm16(samples)
        if self._resampler is None or self._resampled_hz != audio.rate_hz:
            self._resampler = Resampler(audio.rate_hz, self._rate_hz)
            self._resampled_hz = audio.rate_hz
        return float_to_pcm16(self._resampler.feed(samples))

    async def _until_due(self, frame: OutputAudioRawFrame) -> None:
        loop = asyncio.get_running_loop()
        length_s = len(frame.audio) / (frame.sample_rate * frame.num_channels * PCM_BYTES_PER_SAMPLE)
        self._played_s = max(self._played_s, loop.time()) + length_s
        early_s = self._played_s - LEAD_MS / 1000 - loop.time()
        if early_s > 0:
            await asyncio.sleep(early_s)
