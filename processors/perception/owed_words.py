"""Report of a recogniser that words of the caller are on their way."""

from dataclasses import dataclass, field

from pipecat.frames.frames import ControlFrame
from pipecat.processors.frame_processor import FrameProcessor


@dataclass
class WordsOwedFrame(ControlFrame):
    """The recogniser owes the words of speech that is over, or owes none any more.

    It keeps its place after the transcript that was owed, which a system frame would overtake in a stage that
    is behind, and no interruption drops it: a turn would wait for words that have come.
    """

    is_owed: bool = False
    interruptible: bool = field(default=False, init=False)


class OwesWords(FrameProcessor):
    """Base of recognisers that report what they owe."""

    _is_owed = False

    async def report_owed(self, is_owed: bool) -> None:
        """Report to later processors, once for each change, that words are owed, or that none are."""
        if is_owed is not self._is_owed:
            self._is_owed = is_owed
            await self.push_frame(WordsOwedFrame(is_owed))
