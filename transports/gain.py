"""Interface of transports that can lower the bot's volume at once."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsGain(Protocol):
    """Transport that applies a gain where the bot's audio leaves, after everything that is queued."""

    def set_gain_db(self, gain_db: float) -> None:
        """Reach this gain, at most 0 dB: a lower one within the next packet, along a ramp (``audio.gain``).

        A higher one takes several packets. Dropping unsent audio resets the gain: the next audio is at full
        volume.
        """
        ...
