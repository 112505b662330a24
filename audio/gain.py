"""A volume that changes without a click.

Decides nothing: its owner sets how loud. A lower volume is reached within one piece of audio, along a
straight line from the factor before to the new one, so that a piece of 20 ms has no step in it. A higher one
is reached by at most ``RISE_DB`` in each piece: a voice that is back at full volume at once sounds as if it
began anew. At full volume the audio passes untouched and costs nothing. Pure.
"""

import numpy as np

RISE_DB = 3.0
_RISE = 10.0 ** (RISE_DB / 20.0)


class RampedGain:
    """The gain of one stream of 16-bit mono audio."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._target = 1.0

    @property
    def gain_db(self) -> float:
        """What was set last."""
        return 20.0 * float(np.log10(self._target))

    def set_db(self, gain_db: float) -> None:
        """Reach this gain with the next piece, or as soon as ``RISE_DB`` in each allows.

        Raises:
            ValueError: it is above 0 dB, where samples would clip.
        """
        if gain_db > 0:
            raise ValueError(f"a gain of {gain_db} dB would clip")
        self._target = 10.0 ** (gain_db / 20.0)

    def reset(self) -> None:
        """Full volume at once: nothing is playing."""
        self._factor = self._target = 1.0

    def apply(self, pcm: bytes) -> bytes:
        """The piece at its volume, as long as it was."""
        if self._factor == self._target == 1.0:
            return pcm
        samples = np.frombuffer(pcm, dtype="<i2")
        if not len(samples):
            return pcm
        factor = min(self._target, self._factor * _RISE)
        ramp = np.linspace(self._factor, factor, len(samples) + 1)[1:]
        self._factor = factor
        return np.rint(samples * ramp).astype("<i2").tobytes()
