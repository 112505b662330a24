"""Messages of Kyutai's moshi-server for streaming recognition (``/api/asr-streaming``), in MessagePack.

A client sends audio, 32-bit floats at 24 kHz, and markers. The server answers each frame of audio with a
step, and reports words as it recognises them. It returns a marker when it has processed the audio before it
and the delay of its model has passed. The protocol uses few types of MessagePack, so they are read and
written here instead of by a package. Messages of kinds that are not known, and the server's ``Ready``, are
left out.

Source: ``rust/moshi-server/src/asr.rs`` and ``batched_asr.rs`` of kyutai-labs/moshi. Pure.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from parley.core.errors import PeerError

RATE_HZ = 24_000
# The server takes one message of each client for each step of its model, so messages shorter than a step of
# 80 ms would fall behind.
FRAME_SAMPLES = 1_920
# A step has a few values, a word a few letters.
MOST_BYTES = 65_536
_MOST_DEPTH = 8


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
    """Return the message for audio: float32, (samples,), in [-1, 1], at most 65,535."""
    numbers = np.empty(len(samples), dtype=[("kind", "u1"), ("value", ">f4")])
    numbers["kind"] = 0xCA
    numbers["value"] = samples
    return b"\x82\xa4type\xa5Audio\xa3pcm" + struct.pack(">BH", 0xDC, len(samples)) + numbers.tobytes()


def marker_message(number: int) -> bytes:
    """Return the message for a marker."""
    return b"\x82\xa4type\xa6Marker\xa2id" + struct.pack(">BI", 0xCE, number)


def read_asr_message(data: bytes | str) -> AsrMessage | None:
    """Return a message of the server; None for a kind that is not used here.

    Raises:
        PeerError: this is no message of the protocol.
    """
    if isinstance(data, str) or len(data) > MOST_BYTES:
        raise PeerError("the recogniser sent no message of moshi-server")
    try:
        fields, end = _value(data, 0, 0)
        if not isinstance(fields, Mapping) or end != len(data):
            raise ValueError("no map")
        return _message(fields)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, struct.error) as error:
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


_NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: dict[int, object] = {0xC0: None, 0xC2: False, 0xC3: True}


def _value(data: bytes, at: int, depth: int) -> tuple[object, int]:
    """Return the value at a position, and the position after it."""
    if depth > _MOST_DEPTH:
        raise ValueError("too deep")
    kind, at = data[at], at + 1
    if kind <= 0x7F:
        return kind, at
    if kind >= 0xE0:
        return kind - 0x100, at
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    if kind in _NUMBERS:
        [number] = struct.unpack_from(_NUMBERS[kind], data, at)
        return number, at + struct.calcsize(_NUMBERS[kind])
    size, at, read = _sized(data, kind, at)
    return read(data, at, size, depth + 1)


_Reader = Callable[[bytes, int, int, int], tuple[object, int]]


def _sized(data: bytes, kind: int, at: int) -> tuple[int, int, _Reader]:
    """Return the size of a text, an array or a map, the position after the size, and its reader."""
    if kind <= 0x8F:
        return kind & 0x0F, at, _read_map
    if kind <= 0x9F:
        return kind & 0x0F, at, _read_array
    if kind <= 0xBF:
        return kind & 0x1F, at, _read_text
    sizes: dict[int, tuple[str, _Reader]] = {
        0xD9: (">B", _read_text),
        0xDA: (">H", _read_text),
        0xDC: (">H", _read_array),
        0xDE: (">H", _read_map),
    }
    form, read = sizes[kind]
    [size] = struct.unpack_from(form, data, at)
    return size, at + struct.calcsize(form), read


def _read_text(data: bytes, at: int, size: int, _depth: int) -> tuple[str, int]:
    if at + size > len(data):
        raise ValueError("cut off")
    return data[at : at + size].decode(), at + size


def _read_array(data: bytes, at: int, size: int, depth: int) -> tuple[list[object], int]:
    values: list[object] = []
    for _ in range(size):
        value, at = _value(data, at, depth)
        values.append(value)
    return values, at


def _read_map(data: bytes, at: int, size: int, depth: int) -> tuple[dict[object, object], int]:
    values: dict[object, object] = {}
    for _ in range(size):
        key, at = _value(data, at, depth)
        values[key], at = _value(data, at, depth)
    return values, at
