"""Hold the frames of a camera or a shared screen for some seconds: a turn may need that of an earlier word.

The newest frame is always held. Earlier ones are ``HELD_EVERY_S`` apart, at most ``MOST_HELD`` frames and
``MOST_HELD_BYTES`` in all. They are references to frames as the transport has decoded them: nothing is
copied or encoded. Pure; times are those of the loop.
"""

from dataclasses import dataclass

from pipecat.frames.frames import InputImageRawFrame

from parley.processors.perception.picture_sources import STALE_S

# Transports send two frames a second; one that is early by the jitter of a timer is held.
HELD_EVERY_S = 0.45
# About four seconds: the end of a turn comes a second or less after its last word.
MOST_HELD = 8
# Eight frames of 640 x 480 are 7.4 MB; of larger ones fewer are held.
MOST_HELD_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class _HeldFrame:
    """A frame, and when it was captured."""

    frame: InputImageRawFrame
    captured_s: float


class HeldFrames:
    """Frames of one source.

    Args:
        most_bytes: of all frames together; the newest one is held whatever its size.
    """

    def __init__(self, *, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most_bytes = most_bytes
        # The oldest first.
        self._held: list[_HeldFrame] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, frame: InputImageRawFrame, captured_s: float) -> None:
        """Hold a frame as the newest. The one before goes where it is too close to the one before it."""
        held = self._held
        if len(held) > 1 and held[-1].captured_s - held[-2].captured_s < HELD_EVERY_S:
            held.pop()
        held.append(_HeldFrame(frame, captured_s))
        while len(held) > 1 and (len(held) > MOST_HELD or self._bytes() > self._most_bytes):
            del held[0]

    def is_fresh(self, now_s: float) -> bool:
        """Return whether the source is on: it has sent a frame within ``STALE_S``."""
        return bool(self._held) and now_s - self._held[-1].captured_s <= STALE_S

    def nearest(self, at_s: float | None) -> InputImageRawFrame | None:
        """Return the frame that was captured nearest a moment; None without frames.

        The newest one is returned without a moment, and where none was captured within ``STALE_S`` of it.
        """
        if not self._held:
            return None
        newest = self._held[-1]
        if at_s is None:
            return newest.frame
        nearest = min(self._held, key=lambda each: abs(each.captured_s - at_s))
        return (nearest if abs(nearest.captured_s - at_s) <= STALE_S else newest).frame

    def _bytes(self) -> int:
        return sum(len(each.frame.image) for each in self._held)
