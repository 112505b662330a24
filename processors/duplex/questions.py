"""Which questions go to the deployment's model: in a duplex call an engine may find its own words.

Stands behind the commit gate, which has made the turn durable. Owns nothing and waits for nothing.
"""

from collections.abc import Callable

from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class Questions(FrameProcessor):
    """Lets those pass that the model is asked; the others end here, and their turn is in the session.

    Args:
        is_asked: whether the model is asked this.
    """

    def __init__(self, is_asked: Callable[[LLMContextFrame], bool]) -> None:
        super().__init__(enable_direct_mode=True)
        self._is_asked = is_asked

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            if not self._is_asked(frame):
                return
        await self.push_frame(frame, direction)
