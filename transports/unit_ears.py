"""Who hears a call where it comes in, in front of the pipeline."""

from typing import Protocol

from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame


class UnitEars(Protocol):
    """A speech model that takes its units as they come from a client. Nothing here may block."""

    def hear(self, frame: InputAudioRawFrame) -> None:
        """More of what the caller says."""
        ...

    def see(self, frame: InputImageRawFrame) -> None:
        """What the caller's camera shows."""
        ...

    def must_listen(self) -> None:
        """The bot has to listen in the next unit."""
        ...
