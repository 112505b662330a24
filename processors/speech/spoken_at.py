"""Exact word places and failures of an engine, in addition to Pipecat's frames.

Frames of words carry the moment at which a word is due. An engine also has the exact place in the audio,
which travels with the frame as ``SPOKEN_AT``. A ``BrokeOffFrame`` after the last audio of a text reports that
it was not said to its end.
"""

from dataclasses import dataclass

from pipecat.frames.frames import ControlFrame

from parley.core.frame_facts import FrameFact


@dataclass(frozen=True, slots=True)
class SpokenAt:
    """A place in the audio of an audio context.

    Attributes:
        start_us: beginning of the word, from the first sample of the context.
        end_us: its end.
        estimated: True when the engine did not measure it.
    """

    start_us: int
    end_us: int
    estimated: bool = False


SPOKEN_AT = FrameFact[SpokenAt]("spoken_at")


@dataclass
class BrokeOffFrame(ControlFrame):
    """Notice that the voice failed: the last announced text has no more audio than so far.

    Attributes:
        context_id: the audio context of the text.
    """

    context_id: str = ""
