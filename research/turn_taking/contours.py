"""The end of the pitch in three classes: a baseline for the end of the whole voice."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from parley.turn_taking.endpointing.evidence_pitch import final_movement_semitones
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd

# Length of audio in which the end of the pitch is measured: the last words and the silence after them.
CONTOUR_MS = 1_500
# Declination over a quarter of a second is below one semitone; accents and boundary tones are several.
MOVES_SEMITONES = 2.0


class Contour(Enum):
    """Ways in which the pitch ends."""

    RISE = "rise"
    LEVEL = "level"
    FALL = "fall"


@dataclass(frozen=True, slots=True)
class ContouredEnd(VoiceEnd):
    """The end of a voice with its contour.

    Attributes:
        contour: None when too little is voiced.
    """

    contour: Contour | None = None


def contour_of(end: VoiceEnd | None) -> Contour | None:
    """Return the contour of an end; None when it was not measured."""
    return end.contour if isinstance(end, ContouredEnd) else None


def final_contour(audio: np.ndarray, rate_hz: int) -> Contour | None:
    """Return the class of the end of the pitch; None when too little is voiced.

    Args:
        audio: float32, (samples,), in [-1, 1]; silence after the voice does not matter.
        rate_hz: of the audio.
    """
    moved = final_movement_semitones(audio, rate_hz)
    if moved is None:
        return None
    if abs(moved) < MOVES_SEMITONES:
        return Contour.LEVEL
    return Contour.RISE if moved > 0 else Contour.FALL
