"""Hold the segments of a caller until it is decided which of their words are redacted. Pure.

A segment passes when it ends before everything that is undecided: the beginning of the voice whose words are
not settled, and ``LAG_MS`` ago, because a voice is detected late. Redacted stretches in it are replaced by
silence or a tone.

Full: at most ``MOST_HELD`` segments wait, a minute and 2 MB at 16 kHz. The oldest then passes without any
audio, and its length counts as redacted. The same holds at the end of a call for what was never decided. So
nothing that might be redacted ever reaches the disk.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from parley.recording.track import AudioSegment

# Longer than a voice lasts before it is detected, with what is held from before it.
LAG_MS = 2_500
MOST_HELD = 12
# Stretches that are remembered: a long call may have one in each turn.
MOST_STRETCHES = 10_000
TONE_HZ, TONE_LEVEL = 440, 0.05
_FULL_SCALE = 32_767


@dataclass(frozen=True, slots=True)
class RecordedRedaction:
    """Redaction of a recorded call.

    Attributes:
        kinds: names of the kinds of personal data.
        replaced_by: what is in the audio in their place.
    """

    kinds: tuple[str, ...]
    replaced_by: Literal["silence", "tone"]

    def facts(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"kinds": list(self.kinds), "replaced_by": self.replaced_by}


class HeldSegments:
    """Segments of one side on their way to the disk.

    Args:
        replaced_by: what replaces redacted audio.
    """

    def __init__(self, replaced_by: Literal["silence", "tone"]) -> None:
        self._replaced_by = replaced_by
        self._held: deque[AudioSegment] = deque()
        self._since_ms: int | None = None
        self._redacted: deque[tuple[int, int]] = deque(maxlen=MOST_STRETCHES)

    @property
    def waiting(self) -> int:
        """Number of segments that wait."""
        return len(self._held)

    def hold(self, since_ms: int) -> None:
        """Hold what comes after a moment, until it is settled."""
        self._since_ms = since_ms if self._since_ms is None else min(since_ms, self._since_ms)

    def settle(self, redacted: Sequence[tuple[int, int]]) -> None:
        """Release what was held; these stretches of it are redacted."""
        self._since_ms = None
        self._redacted.extend((max(0, start), end) for start, end in redacted if end > max(0, start))

    def pass_on(
        self, segments: Sequence[AudioSegment], now_ms: int, *, is_last: bool = False
    ) -> list[AudioSegment]:
        """Take segments in their order and return those that may be written."""
        self._held.extend(segments)
        if is_last and self._since_ms is not None:
            self._redacted.append((max(0, self._since_ms), now_ms))
        passed = []
        while self._held:
            segment = self._held[0]
            clear_ms = now_ms - LAG_MS if self._since_ms is None else min(self._since_ms, now_ms - LAG_MS)
            if not is_last and segment.start_ms + segment.length_ms > clear_ms:
                if len(self._held) <= MOST_HELD:
                    break
                self._redacted.append((segment.start_ms, segment.start_ms + segment.length_ms))
            passed.append(self._redacted_segment(self._held.popleft()))
        return passed

    def facts(self) -> dict[str, Any]:
        """Return what is redacted, for ``recording.json``."""
        return {"redacted": [{"start_ms": start, "length_ms": end - start} for start, end in self._redacted]}

    def _redacted_segment(self, segment: AudioSegment) -> AudioSegment:
        inner = [
            (max(start, segment.start_ms), min(end, segment.start_ms + segment.length_ms))
            for start, end in self._redacted
            if start < segment.start_ms + segment.length_ms and end > segment.start_ms
        ]
        if not inner:
            return segment
        samples = np.frombuffer(segment.pcm, "<i2").copy()
        for start_ms, end_ms in inner:
            first = (start_ms - segment.start_ms) * segment.rate_hz // 1_000
            last = -(-(end_ms - segment.start_ms) * segment.rate_hz // 1_000)
            stretch = samples[first:last]
            stretch[:] = self._replacement(len(stretch), segment.rate_hz)
        return replace(segment, pcm=samples.tobytes())

    def _replacement(self, count: int, rate_hz: int) -> np.ndarray:
        if self._replaced_by == "silence":
            return np.zeros(count, "<i2")
        phase = 2 * np.pi * TONE_HZ / rate_hz * np.arange(count)
        tone: np.ndarray = np.rint(np.sin(phase) * TONE_LEVEL * _FULL_SCALE).astype("<i2")
        return tone
