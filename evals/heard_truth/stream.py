"""Audio sent to a caller, in the sender's own time: the frames of a call by their RTP timestamps.

A late client plays a frame late, so its recording has small gaps and slips that do not affect how much was
heard. Here every frame that was played lies at the sender's position, and keeps its time of playing on the
client's clock. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr

from parley.evals.harness.playout import HeardFrame
from parley.evals.harness.speech import RATE_HZ as STREAM_RATE_HZ
from parley.evals.heard_truth.truth import RATE_HZ

_RATIO = STREAM_RATE_HZ // RATE_HZ
# A jump of the sender's clock that is not a few lost packets.
_MAX_GAP = STREAM_RATE_HZ * 5


@dataclass(frozen=True, slots=True)
class Stream:
    """Audio of one side of a call.

    Attributes:
        audio: float32, (samples,), 16 kHz.
        starts: sample at which each frame begins, ascending.
        release_us: time at which the client played it.
    """

    audio: np.ndarray
    starts: np.ndarray
    release_us: np.ndarray

    def between(self, from_us: int, to_us: int) -> np.ndarray:
        """Return the audio played between two moments of the client's clock, by whole frames."""
        chosen = np.flatnonzero((self.release_us > from_us) & (self.release_us < to_us))
        if not chosen.size:
            return self.audio[:0]
        end = self.starts[chosen[-1] + 1] if chosen[-1] + 1 < self.starts.size else self.audio.size
        return self.audio[self.starts[chosen[0]] : end]


def stream(frames: Sequence[HeardFrame], stamps: Sequence[int]) -> Stream:
    """Place the frames at their timestamps.

    Args:
        frames: as the client released them.
        stamps: their RTP timestamps at 48 kHz. They may wrap.
    """
    starts: list[int] = []
    position = 0
    for index, frame in enumerate(frames):
        if index:
            step = (stamps[index] - stamps[index - 1]) & 0xFFFFFFFF
            position += step if 0 < step < _MAX_GAP else frame.pcm.size
        starts.append(position)
    size = position + (frames[-1].pcm.size if frames else 0)
    whole = np.zeros(size, dtype=np.float32)
    for start, frame in zip(starts, frames, strict=True):
        whole[start : start + frame.pcm.size] = frame.pcm.astype(np.float32) / 32768
    audio = soxr.resample(whole, STREAM_RATE_HZ, RATE_HZ) if size else whole
    return Stream(
        audio,
        np.asarray(starts, dtype=np.int64) // _RATIO,
        np.asarray([frame.release_us for frame in frames], dtype=np.int64),
    )
