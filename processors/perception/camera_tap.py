"""Pass the pictures of a call to those that look at them.

    transport.input -> CameraTap -> ...

Input and output: the frames of a call. Each picture goes to ``sources``, each one that is not of a shared
screen to the specialist of the camera, by direct calls that must not block. Then it goes on to the next
stage, or no further where no stage takes pictures.

A specialist judges faces and hands of a person who faces a camera. A screen may show those of others, which
are not the caller's.
"""

from collections.abc import Callable

from pipecat.frames.frames import Frame, InputImageRawFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.pictures import SCREEN
from parley.processors.perception.picture_sources import source_of

SeesPicture = Callable[[InputImageRawFrame], None]


class CameraTap(FrameProcessor):
    """Tap of the caller's camera and screen.

    Args:
        sources: receives each picture.
        specialist: receives those of the camera; None where there is none.
        passes_on: a later stage takes pictures as well.
    """

    def __init__(self, sources: SeesPicture, specialist: SeesPicture | None, *, passes_on: bool) -> None:
        # It runs in the task that pushes the caller's audio.
        super().__init__(enable_direct_mode=True)
        self._sources, self._specialist, self._passes_on = sources, specialist, passes_on

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputImageRawFrame):
            self._sources(frame)
            if self._specialist is not None and source_of(frame) != SCREEN:
                self._specialist(frame)
            if not self._passes_on:
                return
        await self.push_frame(frame, direction)
