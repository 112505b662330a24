"""Report of a recogniser that words of the caller are on their way."""

from dataclasses import dataclass

from pipecat.frames.frames import SystemFrame


@dataclass
class WordsOwedFrame(SystemFrame):
    """The recogniser owes the words of speech that is over, or owes none any more.

    It comes before the end of the voice that it follows, and after the transcript that it waited for.
    """

    is_owed: bool = False
