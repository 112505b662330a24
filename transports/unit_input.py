"""Receivers of a client's audio and video ahead of the pipeline."""

from typing import Protocol

from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame


class UnitEntry:
    """Entry of a call's audio and video into a speech model, while the call has one."""

    def __init__(self) -> None:
        self._receiver: UnitInput | None = None

    def open(self, receiver: "UnitInput") -> None:
        """Deliver everything from here on to ``receiver``."""
        self._receiver = receiver

    def close(self) -> None:
        """Deliver to the pipeline alone from here on: the call is over."""
        self._receiver = None

    def receiver(self) -> "UnitInput | None":
        """Return the receiver; None when the pipeline alone receives."""
        return self._receiver


class UnitInput(Protocol):
    """Speech model that takes its units as they come from a client.

    No method may block. Requests take effect in their order, while audio goes on being received.
    """

    def hear(self, frame: InputAudioRawFrame) -> None:
        """Receive more of the caller's audio."""
        ...

    async def unit_begun(self, within_ms: int) -> None:
        """Return when the model has begun a unit that is whole by now, after ``within_ms`` at the latest."""
        ...

    def see(self, frame: InputImageRawFrame) -> None:
        """Receive a picture of the caller's camera."""
        ...

    async def pause(self, wanted_ms: int | None) -> None:
        """Receive and speak nothing, for this long at most: the audio that follows is ignored."""
        ...

    def resume(self) -> None:
        """Go on: the audio that follows is received again."""
        ...

    def must_listen(self) -> None:
        """Make the bot listen: in the unit with the next audio, where units are taken as they come."""
        ...
