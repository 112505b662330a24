"""Report of a recogniser that words of the caller are on their way."""

from dataclasses import dataclass

from pipecat.frames.frames import ControlFrame, UninterruptibleFrame


@dataclass
class WordsOwedFrame(ControlFrame, UninterruptibleFrame):
    """The recogniser owes the words of speech that is over, or owes none any more.

    It keeps its place after the transcript that was owed, which a system frame would overtake in a stage that
    is behind, and no interruption drops it: a turn would wait for words that have come.
    """

    is_owed: bool = False
