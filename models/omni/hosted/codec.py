"""Units, results and beginnings of an omni engine as facts and bytes of the worker link. Pure.

Arrays cross as they are: float32 and uint8, little endian, one behind the other, with their lengths in the
facts. What the facts do not bear out is refused: a worker must not trust who leases it, nor the other way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.errors import PeerError
from models.omni import Preparation, UnitResult, Vote

FLOAT32 = np.dtype("<f4")
# Facts of a result that are no arrays, by their names in ``UnitResult``.
_PLAIN: Mapping[str, type[str] | type[bool] | type[int] | type[float]] = {
    "text": str,
    "end_of_turn": bool,
    "n_tokens": int,
    "n_tts_tokens": int,
    "cost_prefill_ms": float,
    "cost_llm_ms": float,
    "cost_tts_ms": float,
    "kv_tokens": int,
    "is_aside": bool,
    "written": str,
    "broke_off": bool,
}


def of_preparation(preparation: Preparation) -> tuple[dict[str, Any], bytes]:
    """How a conversation begins, to be sent."""
    voices = (preparation.llm_ref_audio, preparation.tts_ref_audio)
    facts = {
        "system_prompt": preparation.system_prompt,
        "history": [list(turn) for turn in preparation.history],
        "settings": preparation.settings,
        "voices": [None if voice is None else len(voice) for voice in voices],
    }
    return facts, b"".join(voice.astype(FLOAT32).tobytes() for voice in voices if voice is not None)


def to_preparation(facts: Mapping[str, Any], payload: bytes) -> Preparation:
    """How a conversation begins, as it was received.

    Raises:
        PeerError: it is none.
    """
    try:
        llm, tts = facts["voices"]
        counts = [_count(count) for count in (llm, tts) if count is not None]
        parts = iter(_floats(payload, counts))
        return Preparation(
            str(facts["system_prompt"]),
            None if llm is None else next(parts),
            None if tts is None else next(parts),
            tuple((str(role), str(text)) for role, text in facts["history"]),
            dict(facts["settings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a beginning that cannot be read: {type(error).__name__}") from error


def of_unit(audio: np.ndarray, frames: Sequence[np.ndarray]) -> tuple[dict[str, Any], bytes]:
    """What is heard and seen, to be sent: float32, (samples,), and uint8, (height, width, 3), each."""
    facts = {"samples": len(audio), "frames": [frame.shape[:2] for frame in frames]}
    return facts, b"".join((audio.astype(FLOAT32).tobytes(), *(frame.tobytes() for frame in frames)))


def to_unit(facts: Mapping[str, Any], payload: bytes) -> tuple[np.ndarray, list[np.ndarray]]:
    """What is heard and seen, as it was received.

    Raises:
        PeerError: it is no unit.
    """
    try:
        samples = _count(facts["samples"])
        sizes = [(_count(height), _count(width)) for height, width in facts["frames"]]
        split = samples * FLOAT32.itemsize
        pixels = [height * width * 3 for height, width in sizes]
        if split + sum(pixels) != len(payload):
            raise ValueError("another length")
        audio = np.frombuffer(payload[:split], FLOAT32).astype(np.float32)
        frames = []
        for (height, width), count in zip(sizes, pixels, strict=True):
            frame = np.frombuffer(payload[split : split + count], np.uint8)
            frames.append(frame.reshape(height, width, 3))
            split += count
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a unit that cannot be read: {type(error).__name__}") from error
    return audio, frames


def of_result(result: UnitResult) -> tuple[dict[str, Any], bytes]:
    """What became of a unit, to be sent."""
    # What an engine calls a number may be one of numpy's.
    facts: dict[str, Any] = {name: kind(getattr(result, name)) for name, kind in _PLAIN.items()}
    facts |= {"vote": result.vote.value, "samples": len(result.audio)}
    return facts, result.audio.astype(FLOAT32).tobytes()


def to_result(facts: Mapping[str, Any], payload: bytes) -> UnitResult:
    """What became of a unit, as it was received.

    Raises:
        PeerError: it is no result.
    """
    try:
        [audio] = _floats(payload, [_count(facts["samples"])])
        plain = {name: _plain(facts[name], kind) for name, kind in _PLAIN.items()}
        return UnitResult(Vote(facts["vote"]), audio=audio, **plain)
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a result that cannot be read: {type(error).__name__}") from error


def _floats(payload: bytes, counts: Sequence[int]) -> list[np.ndarray]:
    if sum(counts) * FLOAT32.itemsize != len(payload):
        raise ValueError("another length")
    whole = np.frombuffer(payload, FLOAT32).astype(np.float32)
    return np.split(whole, np.cumsum(counts)[:-1]) if counts else []


def _plain(value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise ValueError("a fact of another kind")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a length that is none")
    return value
