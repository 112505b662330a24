"""Messages of Kyutai's moshi-server for streaming recognition (``/api/asr-streaming``), in MessagePack.

A client sends audio, 32-bit floats at 24 kHz, and markers. The server answers each frame of audio with a
step, and reports words as it recognises them. It returns a marker when it has processed the audio before it
and the delay of its model has passed. Messages of kinds that are not known, and the server's ``Ready``, are
left out.

Source: ``rust/moshi-server/src/asr.rs`` and ``batched_asr.rs`` of kyutai-labs/moshi. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgpack
import numpy as np

from parley.core.errors import PeerError

RATE_HZ = 24_000
# The server takes one message of each client for each step of its model, so messages shorter than a step of
# 80 ms would fall behind.
FRAME_SAMPLES = 1_920
# A step has a few values, a word a few letters.
MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class WordRecognised:
    """A word; its beginning in seconds of the audio that was sent."""

    text: str
    start_s: float


@dataclass(frozen=True, slots=True)
class WordFinished:
    """End of the last word, in seconds of the audio that was sent."""

    stop_s: float


@dataclass(frozen=True, slots=True)
class MarkerReturned:
    """All words before a marker have been reported."""

    number: int


@dataclass(frozen=True, slots=True)
class ServerRefused:
    """The server reports an error, such as that all its places are taken."""

    message: str


AsrMessage = WordRecognised | WordFinished | MarkerReturned | ServerRefused


def audio_message(samples: np.ndarray) -> bytes:
    """Return the message for audio: float32, (samples,), in [-1, 1]."""
    return _packed({"type": "Audio", "pcm": samples.tolist()})


def marker_message(number: int) -> bytes:
    """Return the message for a marker."""
    return _packed({"type": "Marker", "id": number})


def _packed(fields: Mapping[str, object]) -> bytes:
    packed: bytes = msgpack.packb(fields, use_single_float=True)
    return packed


def read_asr_message(data: bytes | str) -> AsrMessage | None:
    """Return a message of the server; None for a kind that is not used here.

    Raises:
        PeerError: this is no message of the protocol.
    """
    if isinstance(data, str) or len(data) > MOST_BYTES:
        raise PeerError("the recogniser sent no message of moshi-server")
    try:
        fields = msgpack.unpackb(data)
        if not isinstance(fields, Mapping):
            raise ValueError("no map")
        return _message(fields)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise PeerError("the recogniser sent no message of moshi-server") from error


def _message(fields: Mapping[object, object]) -> AsrMessage | None:
    match fields["type"]:
        case "Word":
            return WordRecognised(_text(fields["text"]), _seconds(fields["start_time"]))
        case "EndWord":
            return WordFinished(_seconds(fields["stop_time"]))
        case "Marker":
            number = fields["id"]
            if not isinstance(number, int):
                raise ValueError("no number")
            return MarkerReturned(number)
        case "Error":
            return ServerRefused(_text(fields["message"]))
        case str():
            return None
    raise ValueError("no kind")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError("no number")
    return float(value)
