"""Show passing frames to a callback without changing them."""

from collections.abc import Callable

from pipecat.frames.frames import Frame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class NoticeTap(FrameProcessor):
    """Processor that shows every frame to a callback.

    Args:
        notice: called with every frame, in either direction; must not block.
    """

    def __init__(self, notice: Callable[[Frame], None]) -> None:
        super().__init__(enable_direct_mode=True)
        self._notice = notice

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self._notice(frame)
        await self.push_frame(frame, direction)
