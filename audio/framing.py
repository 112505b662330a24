"""Framer: joins audio pieces of any length to whole frames, without seams.

Echo control works on frames of exactly 10 ms, and transports deliver pieces of any length. Stages after the
framer see the same frames whatever the pieces were, so their output does not depend on them either. A
remainder waits for the next piece; a transport whose pieces are multiples of a frame loses no time.
"""

from collections.abc import Iterator

from parley.core.media import PCM_BYTES_PER_SAMPLE


class Framer:
    """Converter from pieces of 16-bit PCM to frames. Holds less than one frame.

    Args:
        frame_samples: length of a frame.

    Raises:
        ValueError: ``frame_samples`` is less than 1.
    """

    def __init__(self, frame_samples: int) -> None:
        if frame_samples < 1:
            raise ValueError(f"a frame of {frame_samples} samples")
        self._frame_bytes = frame_samples * PCM_BYTES_PER_SAMPLE
        self._pending = bytearray()

    @property
    def pending_samples(self) -> int:
        """Number of samples that wait for the next piece."""
        return len(self._pending) // PCM_BYTES_PER_SAMPLE

    def feed(self, pcm: bytes) -> Iterator[bytes]:
        """Return the frames that ``pcm`` completes, oldest first. A piece may end inside a sample."""
        self._pending += pcm
        whole = len(self._pending) - len(self._pending) % self._frame_bytes
        frames = bytes(self._pending[:whole])
        del self._pending[:whole]
        return (frames[at : at + self._frame_bytes] for at in range(0, whole, self._frame_bytes))
