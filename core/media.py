"""Audio as Parley passes it around: 16-bit mono PCM with its rate, counted in samples.

Inside a stream, time is the sample count; nothing here reads a clock.
"""

from dataclasses import dataclass

import numpy as np

from parley.core.errors import ShapeError

PCM_BYTES_PER_SAMPLE = 2
PCM_FULL_SCALE = 32768.0


def samples_to_ms(samples: int, rate_hz: int) -> int:
    """Return the duration of ``samples`` at ``rate_hz`` in whole milliseconds, rounded down."""
    return samples * 1000 // rate_hz


def ms_to_samples(duration_ms: int, rate_hz: int) -> int:
    """Return the number of samples in ``duration_ms`` at ``rate_hz``, rounded down."""
    return duration_ms * rate_hz // 1000


def pcm16_to_float(pcm: bytes) -> np.ndarray:
    """Convert 16-bit little-endian PCM to float32, (samples,), in [-1, 1).

    Raises:
        ShapeError: an odd number of bytes.
    """
    if len(pcm) % PCM_BYTES_PER_SAMPLE:
        raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
    result: np.ndarray = np.multiply(np.frombuffer(pcm, dtype="<i2"), 1 / PCM_FULL_SCALE, dtype=np.float32)
    return result


def float_to_pcm16(samples: np.ndarray) -> bytes:
    """Convert float32, (samples,), to 16-bit little-endian PCM; values outside [-1, 1] are clipped.

    Raises:
        ShapeError: not one-dimensional.
    """
    if samples.ndim != 1:
        raise ShapeError(f"expected (samples,), got {samples.shape}")
    # Written out in parts: ``np.clip`` costs more than the samples of a telephone's packet.
    scaled = np.rint(samples * PCM_FULL_SCALE)
    scaled = np.minimum(np.maximum(scaled, -PCM_FULL_SCALE), PCM_FULL_SCALE - 1)
    return scaled.astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class WordTime:
    """Spoken word and its position in its utterance or reply.

    Attributes:
        text: the word as written.
        start_ms: its first sample, from the start of the utterance.
        end_ms: its last sample.
        confidence: 0..1; 1.0 for synthesised speech.
        estimated: true when the times were interpolated, not reported by the engine.
    """

    text: str
    start_ms: int
    end_ms: int
    confidence: float = 1.0
    estimated: bool = False
