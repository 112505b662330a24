"""Listeners to what a client sends, before the pipeline has it."""

from typing import Protocol

from pipecat.frames.frames import InputAudioRawFrame, InputImageRawFrame


class UnitEntry:
    """Entry of a call's audio and video into a speech model, while the call has one."""

    def __init__(self) -> None:
        self._ears: UnitEars | None = None

    def open(self, ears: "UnitEars") -> None:
        """Give everything from here on to ``ears``."""
        self._ears = ears

    def close(self) -> None:
        """Give it to the pipeline alone: the call is over."""
        self._ears = None

    def ears(self) -> "UnitEars | None":
        """Return the listener; None: the pipeline alone."""
        return self._ears


class UnitEars(Protocol):
    """A speech model that takes its units as they come from a client. Nothing here may block, and
    what is asked is done in the order in which it is asked, beside what is heard.
    """

    def hear(self, frame: InputAudioRawFrame) -> None:
        """More of what the caller says."""
        ...

    async def unit_begun(self, within_ms: int) -> None:
        """Return when the model has begun a unit that is whole by now, after ``within_ms`` at the latest."""
        ...

    def see(self, frame: InputImageRawFrame) -> None:
        """What the caller's camera shows."""
        ...

    async def pause(self, wanted_ms: int | None) -> None:
        """Hear and say nothing, for so long at most: what comes behind it is not heard."""
        ...

    def resume(self) -> None:
        """Go on: what comes behind it is heard."""
        ...

    def must_listen(self) -> None:
        """The bot has to listen: in the unit that hears what comes next, where units are taken as they
        come.
        """
        ...
