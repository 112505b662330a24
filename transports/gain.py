"""Transports whose bot can be made to speak lower at once."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class SetsGain(Protocol):
    """A transport that applies a gain where the bot's audio leaves, behind everything that waits."""

    def set_gain_db(self, gain_db: float) -> None:
        """Reach this gain with the next packet, along a ramp, or more slowly upwards (``audio.gain``); at
        most 0 dB.

        Audio that is dropped unsent takes the gain with it: what comes next is at full volume.
        """
        ...
