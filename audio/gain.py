"""Gain of a stream that changes without a click.

The owner sets the level. A lower level is reached within one piece of audio. The factor changes along a
straight line, so that a piece of 20 ms has no step in it. A higher one is approached by at most ``RISE_DB``
in each piece: a voice that returns to full level at once sounds like a new beginning. At full level the audio
is returned unchanged at no cost. Pure.
"""

import numpy as np

RISE_DB = 3.0
_RISE = 10.0 ** (RISE_DB / 20.0)


class RampedGain:
    """Gain of one stream of 16-bit mono audio."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._target = 1.0

    @property
    def gain_db(self) -> float:
        """Gain that was set last, in dB."""
        return 20.0 * float(np.log10(self._target))

    def set_db(self, gain_db: float) -> None:
        """Set the gain, reached with the next piece or as soon as ``RISE_DB`` per piece allows.

        Raises:
            ValueError: the gain is above 0 dB, where samples would clip.
        """
        if gain_db > 0:
            raise ValueError(f"a gain of {gain_db} dB would clip")
        self._target = 10.0 ** (gain_db / 20.0)

    def reset(self) -> None:
        """Return to full level at once; for a stream that is silent."""
        self._factor = self._target = 1.0

    def apply(self, pcm: bytes) -> bytes:
        """Return the piece with the gain applied, at the same length."""
        if self._factor == self._target == 1.0:
            return pcm
        samples = np.frombuffer(pcm, dtype="<i2")
        if not len(samples):
            return pcm
        factor = min(self._target, self._factor * _RISE)
        ramp = np.linspace(self._factor, factor, len(samples) + 1)[1:]
        self._factor = factor
        result: bytes = np.rint(samples * ramp).astype("<i2").tobytes()
        return result
