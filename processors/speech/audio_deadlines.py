"""Deadlines of the audio of a service voice."""

from dataclasses import dataclass

# Cartesia and its like name 40 to 300 ms to the first audio, and a new connection takes as long again. An
# embedded voice needs up to 0.3 s, so a caller hears it within 1.5 s of the usual moment.
FIRST_AUDIO_S = 1.2
# A voice makes audio faster than it plays. A pause of this length is a stall, and most of it is hidden by the
# audio that waits to be played.
NEXT_AUDIO_S = 1.0


@dataclass(frozen=True, slots=True)
class AudioDeadlines:
    """Deadlines of the audio of a clause.

    Attributes:
        first_s: from the request to the first audio.
        next_s: from one audio to the next.
    """

    first_s: float = FIRST_AUDIO_S
    next_s: float = NEXT_AUDIO_S
