"""Units, results and preparations of an omni engine as facts and bytes of the worker link. Pure.

Arrays are sent as they are: float32 and uint8, little endian, one after the other, with their lengths in the
facts. Inconsistent facts are refused: worker and client must not trust each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.core.errors import PeerError
from parley.models.omni import Preparation, UnitResult
from parley.protocols.facts import from_facts, to_facts

FLOAT32 = np.dtype("<f4")
VOICES = ("llm_ref_audio", "tts_ref_audio")


@dataclass(frozen=True, slots=True)
class UnitShape:
    """Lengths of a unit.

    Attributes:
        samples: number of audio samples.
        frames: height and width of each picture.
    """

    samples: int
    frames: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class VoiceLengths:
    """Samples of the reference voices of a preparation; None for a voice that is not given."""

    voices: tuple[int | None, int | None]


def of_preparation(preparation: Preparation) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the payload of a preparation."""
    voices = (preparation.llm_ref_audio, preparation.tts_ref_audio)
    facts = to_facts(preparation, without=VOICES)
    facts["voices"] = [None if voice is None else len(voice) for voice in voices]
    return facts, b"".join(voice.astype(FLOAT32).tobytes() for voice in voices if voice is not None)


def to_preparation(facts: Mapping[str, Any], payload: bytes) -> Preparation:
    """Return the preparation that was received.

    Raises:
        PeerError: the message is not a valid preparation.
    """
    lengths = from_facts(VoiceLengths, facts).voices
    parts = iter(_floats(payload, [length for length in lengths if length is not None]))
    llm, tts = (None if length is None else next(parts) for length in lengths)
    return from_facts(Preparation, facts, llm_ref_audio=llm, tts_ref_audio=tts)


def of_unit(audio: np.ndarray, frames: Sequence[np.ndarray]) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the payload of a unit: float32, (samples,), and uint8, (height, width, 3),
    each.
    """
    shape = UnitShape(len(audio), tuple((frame.shape[0], frame.shape[1]) for frame in frames))
    payload = b"".join((audio.astype(FLOAT32).tobytes(), *(frame.tobytes() for frame in frames)))
    return to_facts(shape), payload


def to_unit(facts: Mapping[str, Any], payload: bytes) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the unit that was received.

    Raises:
        PeerError: the message is not a valid unit.
    """
    shape = from_facts(UnitShape, facts)
    split = shape.samples * FLOAT32.itemsize
    [audio] = _floats(payload[:split], [shape.samples])
    if split + sum(height * width * 3 for height, width in shape.frames) != len(payload):
        raise PeerError("unreadable unit: the pictures have another length")
    frames = []
    for height, width in shape.frames:
        count = height * width * 3
        frames.append(np.frombuffer(payload, np.uint8, count, split).reshape(height, width, 3))
        split += count
    return audio, frames


def of_result(result: UnitResult) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the payload of a result."""
    facts = to_facts(result, without=("audio",)) | {"samples": len(result.audio)}
    return facts, result.audio.astype(FLOAT32).tobytes()


def to_result(facts: Mapping[str, Any], payload: bytes) -> UnitResult:
    """Return the result that was received.

    Raises:
        PeerError: the message is not a valid result.
    """
    [audio] = _floats(payload, [from_facts(UnitShape, facts, frames=()).samples])
    return from_facts(UnitResult, facts, audio=audio)


def _floats(payload: bytes, counts: Sequence[int]) -> list[np.ndarray]:
    if sum(counts) * FLOAT32.itemsize != len(payload):
        raise PeerError("unreadable message: the samples have another length")
    whole = np.frombuffer(payload, FLOAT32).astype(np.float32)
    return np.split(whole, np.cumsum(counts)[:-1]) if counts else []
