"""Pass the frames of the caller's camera to a listener.

    transport.input -> CameraTap -> ...

Input and output: the frames of a call. Each camera frame goes to the listener, by a direct call that must not
block, and on to the next stage, or no further where no stage takes pictures.
"""

from collections.abc import Callable

from pipecat.frames.frames import Frame, InputImageRawFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class CameraTap(FrameProcessor):
    """Tap of the caller's camera.

    Args:
        listener: receives each frame.
        passes_on: a later stage takes pictures as well.
    """

    def __init__(self, listener: Callable[[InputImageRawFrame], None], *, passes_on: bool) -> None:
        # It runs in the task that pushes the caller's audio.
        super().__init__(enable_direct_mode=True)
        self._listener, self._passes_on = listener, passes_on

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputImageRawFrame):
            self._listener(frame)
            if not self._passes_on:
                return
        await self.push_frame(frame, direction)
