"""Filter the questions to the deployment's model: in a duplex call an engine may find its own words.

The processor stands after the commit gate, which has made the turn durable. It holds no state and never
waits.
"""

from collections.abc import Callable

from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class QuestionFilter(FrameProcessor):
    """Filter that passes the questions for the model; the others end here, and their turn is in the session.

    Args:
        is_asked: returns whether a question goes to the model.
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
