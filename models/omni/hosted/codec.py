"""Units, results and beginnings of an omni engine as facts and bytes of the worker link. Pure.

Arrays cross as they are: float32 and uint8, little endian, one behind the other, with their lengths in the
facts. What the facts do not bear out is refused: a worker must not trust who leases it, nor the other way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import PeerError
from models.omni import Preparation, UnitResult
from protocols.facts import from_facts, to_facts

FLOAT32 = np.dtype("<f4")
VOICES = ("llm_ref_audio", "tts_ref_audio")


@dataclass(frozen=True, slots=True)
class UnitShape:
    """Lengths of a unit.

    Attributes:
        samples: of what is heard.
        frames: height and width of each picture.
    """

    samples: int
    frames: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class VoiceLengths:
    """Samples of the reference voices of a beginning; None for one that is not given."""

    voices: tuple[int | None, int | None]


def of_preparation(preparation: Preparation) -> tuple[dict[str, Any], bytes]:
    """How a conversation begins, to be sent."""
    voices = (preparation.llm_ref_audio, preparation.tts_ref_audio)
    facts = to_facts(preparation, without=VOICES)
    facts["voices"] = [None if voice is None else len(voice) for voice in voices]
    return facts, b"".join(voice.astype(FLOAT32).tobytes() for voice in voices if voice is not None)


def to_preparation(facts: Mapping[str, Any], payload: bytes) -> Preparation:
    """How a conversation begins, as it was received.

    Raises:
        PeerError: it is none.
    """
    lengths = from_facts(VoiceLengths, facts).voices
    parts = iter(_floats(payload, [length for length in lengths if length is not None]))
    llm, tts = (None if length is None else next(parts) for length in lengths)
    return from_facts(Preparation, facts, llm_ref_audio=llm, tts_ref_audio=tts)


def of_unit(audio: np.ndarray, frames: Sequence[np.ndarray]) -> tuple[dict[str, Any], bytes]:
    """What is heard and seen, to be sent: float32, (samples,), and uint8, (height, width, 3), each."""
    shape = UnitShape(len(audio), tuple((frame.shape[0], frame.shape[1]) for frame in frames))
    payload = b"".join((audio.astype(FLOAT32).tobytes(), *(frame.tobytes() for frame in frames)))
    return to_facts(shape), payload


def to_unit(facts: Mapping[str, Any], payload: bytes) -> tuple[np.ndarray, list[np.ndarray]]:
    """What is heard and seen, as it was received.

    Raises:
        PeerError: it is no unit.
    """
    shape = from_facts(UnitShape, facts)
    split = shape.samples * FLOAT32.itemsize
    [audio] = _floats(payload[:split], [shape.samples])
    if split + sum(height * width * 3 for height, width in shape.frames) != len(payload):
        raise PeerError("a unit that cannot be read: pictures of another length")
    frames = []
    for height, width in shape.frames:
        count = height * width * 3
        frames.append(np.frombuffer(payload, np.uint8, count, split).reshape(height, width, 3))
        split += count
    return audio, frames


def of_result(result: UnitResult) -> tuple[dict[str, Any], bytes]:
    """What became of a unit, to be sent."""
    facts = to_facts(result, without=("audio",)) | {"samples": len(result.audio)}
    return facts, result.audio.astype(FLOAT32).tobytes()


def to_result(facts: Mapping[str, Any], payload: bytes) -> UnitResult:
    """What became of a unit, as it was received.

    Raises:
        PeerError: it is no result.
    """
    [audio] = _floats(payload, [from_facts(UnitShape, facts, frames=()).samples])
    return from_facts(UnitResult, facts, audio=audio)


def _floats(payload: bytes, counts: Sequence[int]) -> list[np.ndarray]:
    if sum(counts) * FLOAT32.itemsize != len(payload):
        raise PeerError("a message that cannot be read: samples of another length")
    whole = np.frombuffer(payload, FLOAT32).astype(np.float32)
    return np.split(whole, np.cumsum(counts)[:-1]) if counts else []
