"""Where a word lies in its audio, beside the frame that announces it.

Pipecat's frames of words carry the moment at which a word is due. An engine knows more: the exact place in
the audio. It travels in the frame's metadata under ``SPOKEN_AT``.
"""

from dataclasses import dataclass

SPOKEN_AT = "parley_spoken_at"


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
