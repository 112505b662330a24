"""What an engine knows of its speech, beside Pipecat's frames.

Frames of words carry the moment at which a word is due. An engine knows more: the exact place in the audio.
It travels with the frame as ``SPOKEN_AT``. That a text was not said to its end travels behind its
last sound, as ``BrokeOffFrame``.
"""

from dataclasses import dataclass

from pipecat.frames.frames import ControlFrame

from core.frame_facts import FrameFact


@dataclass(frozen=True, slots=True)
class SpokenAt:
    """A place in the audio of an audio context.

    Attributes:
        start_us: first sound of the word, from the first sample of the context.
        end_us: its last sound.
        estimated: the engine did not measure it.
    """

    start_us: int
    end_us: int
    estimated: bool = False


SPOKEN_AT = FrameFact[SpokenAt]("spoken_at")


@dataclass
class BrokeOffFrame(ControlFrame):
    """The voice failed: what it announced last has no more sound than it had so far.

    Attributes:
        context_id: the audio context of the text.
    """

    context_id: str = ""
