"""Trimming of the silence that synthesisers add around a clause: its leading part delays every answer.

Takes the pieces of one clause, and returns the audible part with a short lead and tail. Silence inside the
clause is kept: it is held back until an audible sample follows. Pure; one instance per clause.
"""

import numpy as np

from parley.core.media import ms_to_samples

# -46 dBFS: above the noise that flite's awb voice has under its silence, below every onset that was measured.
# With four flite voices and espeak-ng, five sentences each, the cut falls where the word begins.
AUDIBLE_LEVEL = 164


class EdgeTrimmer:
    """Trimmer of one clause.

    Args:
        rate_hz: samples per second.
        lead_ms: silence kept before the first audible sample.
        tail_ms: silence kept, at most, after the last audible sample.
    """

    def __init__(self, rate_hz: int, *, lead_ms: int, tail_ms: int) -> None:
        self._lead_samples = ms_to_samples(lead_ms, rate_hz)
        self._tail_samples = ms_to_samples(tail_ms, rate_hz)
        self._started = False
        self._held: list[np.ndarray] = []
        self.dropped_samples = 0

    @property
    def started(self) -> bool:
        """True once an audible sample came; ``dropped_samples`` is then final."""
        return self._started

    def feed(self, samples: np.ndarray) -> np.ndarray:
        """Take the next samples, and return those that are certain to be needed (possibly none).

        samples: int16, (samples,). Returned: int16, (samples,).
        """
        audible = np.flatnonzero((samples > AUDIBLE_LEVEL) | (samples < -AUDIBLE_LEVEL))
        self._held.append(samples)
        if not audible.size:
            if not self._started:
                self._forget_early_silence()
            return samples[:0]
        waiting = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        before = len(waiting) - len(samples)
        start = 0
        if not self._started:
            self._started = True
            start = max(0, before + int(audible[0]) - self._lead_samples)
            self.dropped_samples += start
        end = before + int(audible[-1]) + 1
        self._held = [waiting[end:]]
        return waiting[start:end]

    def finish(self) -> np.ndarray:
        """Return the tail of the clause, int16, (samples,); empty when nothing was audible."""
        if not self._started or not self._held:
            return np.zeros(0, dtype=np.int16)
        held, self._held = np.concatenate(self._held), []
        return held[: self._tail_samples]

    def _forget_early_silence(self) -> None:
        held = np.concatenate(self._held)
        surplus = max(0, len(held) - self._lead_samples)
        self.dropped_samples += surplus
        self._held = [held[surplus:]]
