"""Messages of the MiniCPM-o server's full-duplex socket, with the names of its code.

Converts between JSON text and typed messages; no socket here. Audio is base64 of float32, little endian: 16
kHz to the server, 24 kHz back. Pictures are base64 of JPEG. Fields that this client does not use (the
server's timings, its session ids) are left out. Used fields that are missing or wrong are an error.
"""

import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pybase64
from PIL import Image

from parley.core.errors import PeerError

# Meant for photographs of a camera; a third of the size of quality 95.
JPEG_QUALITY = 85
# A unit is a few words; an error is one line.
MOST_TEXT_CHARS = 4_000
MOST_ERROR_CHARS = 200
STOP = json.dumps({"type": "stop"})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Notice that the gateway has no free worker yet.

    Attributes:
        position: in its queue, from 1.
        estimated_wait_s: the gateway's estimate.
    """

    position: int
    estimated_wait_s: float


@dataclass(frozen=True, slots=True)
class Assigned:
    """Notice that a worker was assigned."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Notice that the conversation has begun."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a chunk.

    Attributes:
        is_listen: the bot is silent; the server sends a second of silence, which is left out of ``audio``.
        audio: float32, (samples,), at 24 kHz; values are not validated.
        kv_tokens: length of the context.
    """

    is_listen: bool
    text: str
    audio: np.ndarray
    end_of_turn: bool
    n_tokens: int
    n_tts_tokens: int
    cost_llm_ms: float
    cost_tts_ms: float
    cost_all_ms: float
    wall_clock_ms: float
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class ServerError:
    """Error of the server; the connection may stay open.

    Attributes:
        message: its text, shortened.
    """

    message: str


@dataclass(frozen=True, slots=True)
class ServerEnded:
    """Notice that the server ended the conversation.

    Attributes:
        reason: its text, shortened.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Other:
    """Message that this client ignores.

    Attributes:
        kind: its type, shortened.
    """

    kind: str


Message = Waiting | Assigned | Prepared | Result | ServerError | ServerEnded | Other


def prepare(
    system_prompt: str,
    config: Mapping[str, Any],
    *,
    llm_ref_audio: np.ndarray | None,
    tts_ref_audio: np.ndarray | None,
    max_slice_nums: int,
) -> str:
    """Return the first message of a conversation.

    Args:
        system_prompt: description of the bot.
        config: fields of the server's ``DuplexConfig``. It must be complete: a missing field keeps the value
            of the previous conversation on that worker.
        llm_ref_audio: float32, (samples,), at 16 kHz; None for the worker's own voice.
        tts_ref_audio: the same, for its vocoder.
        max_slice_nums: tiles of a picture.
    """
    message: dict[str, Any] = {
        "type": "prepare",
        "system_prompt": system_prompt,
        "config": dict(config),
        "deferred_finalize": True,
        "max_slice_nums": max_slice_nums,
    }
    if llm_ref_audio is not None:
        message["ref_audio_base64"] = _encoded(llm_ref_audio)
    if tts_ref_audio is not None:
        message["tts_ref_audio_base64"] = _encoded(tts_ref_audio)
    return json.dumps(message)


def audio_chunk(
    audio: np.ndarray, frames: Sequence[np.ndarray], *, force_listen: bool, max_slice_nums: int
) -> str:
    """Return the message for a unit.

    Args:
        audio: float32, (samples,), at 16 kHz.
        frames: uint8, (height, width, 3), RGB.
        force_listen: the bot has to be silent in it.
        max_slice_nums: tiles of a picture.
    """
    message: dict[str, Any] = {
        "type": "audio_chunk",
        "audio_base64": _encoded(audio),
        "force_listen": force_listen,
        "max_slice_nums": max_slice_nums,
    }
    if frames:
        message["frame_base64_list"] = [pybase64.b64encode_as_string(_jpeg(frame)) for frame in frames]
    return orjson.dumps(message).decode()


def parse(data: str | bytes) -> Message:
    """Parse a message of the server.

    Raises:
        PeerError: the data is not a valid message.
    """
    if isinstance(data, bytes):
        raise PeerError("a binary message")
    try:
        fields = _loaded(data)
    except (ValueError, RecursionError) as error:
        raise PeerError("a message that is not JSON") from error
    if not isinstance(fields, dict) or not isinstance(kind := fields.get("type"), str):
        raise PeerError("a message without a type")
    match kind:
        case "queued" | "queue_update":
            return Waiting(_count(fields, "position"), _number(fields, "estimated_wait_s"))
        case "queue_done":
            return Assigned()
        case "prepared":
            return Prepared()
        case "result":
            return _result(fields)
        case "error":
            return ServerError(_text(fields, "error")[:MOST_ERROR_CHARS])
        case "timeout" | "stopped":
            return ServerEnded((_text(fields, "reason") or kind)[:MOST_ERROR_CHARS])
        case _:
            return Other(kind[:40])


def _loaded(data: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # The server writes with Python's library, so there may be a NaN in a field that this client ignores.
        return json.loads(data)


def _result(fields: Mapping[str, Any]) -> Result:
    is_listen = fields.get("is_listen")
    end_of_turn = fields.get("end_of_turn", False)
    if not isinstance(is_listen, bool) or not isinstance(end_of_turn, bool):
        raise PeerError("a result that neither listens nor speaks")
    text = _text(fields, "text")
    if len(text) > MOST_TEXT_CHARS:
        raise PeerError(f"a result of {len(text)} characters")
    # A listening unit comes with a second of silence, 128 KB, which is not decoded.
    audio = np.zeros(0, np.float32) if is_listen else _decoded(fields.get("audio_data"))
    return Result(
        is_listen=is_listen,
        text=text,
        audio=audio,
        end_of_turn=end_of_turn,
        n_tokens=_count(fields, "n_tokens"),
        n_tts_tokens=_count(fields, "n_tts_tokens"),
        cost_llm_ms=_number(fields, "cost_llm_ms"),
        cost_tts_ms=sum(
            _number(fields, name) for name in ("cost_tts_prep_ms", "cost_tts_ms", "cost_token2wav_ms")
        ),
        cost_all_ms=_number(fields, "cost_all_ms"),
        wall_clock_ms=_number(fields, "wall_clock_ms"),
        kv_tokens=_count(fields, "kv_cache_length"),
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    text = fields.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise PeerError(f"{name}, which is not text")
    return text


def _number(fields: Mapping[str, Any], name: str) -> float:
    """Return a number of at least 0; 0 when the field is missing."""
    number = fields.get(name)
    if number is None:
        return 0.0
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise PeerError(f"{name}, which is not a number")
    return max(0.0, float(number))


def _count(fields: Mapping[str, Any], name: str) -> int:
    return int(_number(fields, name))


def _encoded(audio: np.ndarray) -> str:
    return pybase64.b64encode_as_string(audio.astype("<f4").tobytes())


def _decoded(data: object) -> np.ndarray:
    if data is None:
        return np.zeros(0, np.float32)
    if not isinstance(data, str):
        raise PeerError("audio that is not base64")
    try:
        raw = pybase64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PeerError("audio that is not base64") from error
    if len(raw) % 4:
        raise PeerError(f"audio of {len(raw)} bytes, which is not float32")
    return np.frombuffer(raw, dtype="<f4").astype(np.float32)


def _jpeg(frame: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(frame).save(out, format="JPEG", quality=JPEG_QUALITY)
    return out.getvalue()
