"""Describe how a voice ends, as one piece of evidence: drawn out, level or soft, relative to the same caller.

Input: the last seconds of the caller's audio at a pause. ``voice_end`` measures them (``evidence_tempo``,
``evidence_pitch``, ``evidence_loudness``), and ``CallerVoiceAverage`` compares the measurement with the
caller's usual speech. ``end_predictor`` weighs the signs.

The module is pure; each call has one ``CallerVoiceAverage``.
"""

from dataclasses import dataclass

import numpy as np

from parley.core.errors import ShapeError
from parley.turn_taking.endpointing.evidence_loudness import loudness_slope_db_s
from parley.turn_taking.endpointing.evidence_pitch import movement_semitones, pitch_hz
from parley.turn_taking.endpointing.evidence_tempo import Tempo, tempo_of

# Length of the audio that is analysed: the last words, the speech before them for comparison, and the silence
# after them.
VOICE_END_MS = 3_000
# The general tempo counts as so many pauses of the caller's own.
USUAL_WEIGHT = 4.0
# Mean over callers, counted on ``research/turn_taking/tuning.json``, synthetic voices: log of dB per 10 ms.
USUAL_TEMPO = 0.9


@dataclass(frozen=True, slots=True)
class VoiceEnd:
    """Measurement of how a voice ended.

    Attributes:
        tempo: how fast its spectrum changed; None when too little was voiced.
        movement_semitones: movement of the pitch; None as above.
        loudness_db_s: slope of the level; None as above.
    """

    tempo: Tempo | None
    movement_semitones: float | None
    loudness_db_s: float | None


@dataclass(frozen=True, slots=True)
class VoiceSigns:
    """The measurement relative to the caller's usual speech; None where it is not known.

    Attributes:
        tempo: log of the last word's tempo over the caller's own: below 0 it is drawn out.
        movement_semitones: how far the pitch moves, up or down.
        loudness_db_s: how fast the voice grows louder.
    """

    tempo: float | None
    movement_semitones: float | None
    loudness_db_s: float | None


def voice_end(audio: np.ndarray, rate_hz: int) -> VoiceEnd:
    """Measure the end of a stretch of speech.

    audio: float32, (samples,), in [-1, 1]; silence after the voice does not matter.

    Raises:
        ShapeError: not one-dimensional.
    """
    if audio.ndim != 1:
        raise ShapeError(f"expected (samples,), got {audio.shape}")
    hertz = pitch_hz(audio, rate_hz)
    return VoiceEnd(
        tempo_of(audio, hertz, rate_hz),
        movement_semitones(hertz),
        loudness_slope_db_s(audio, hertz, rate_hz),
    )


class CallerVoiceAverage:
    """Running average of one caller's speech.

    Args:
        usual_tempo: mean over callers; counts as ``USUAL_WEIGHT`` pauses.
    """

    def __init__(self, usual_tempo: float = USUAL_TEMPO) -> None:
        self._sum = USUAL_WEIGHT * usual_tempo
        self._count = USUAL_WEIGHT

    def signs(self, end: VoiceEnd) -> VoiceSigns:
        """Return ``end`` relative to all speech so far, itself included."""
        tempo = None
        if end.tempo is not None:
            tempo = end.tempo.final - (self._sum + end.tempo.whole) / (self._count + 1)
        moved = end.movement_semitones
        return VoiceSigns(tempo, None if moved is None else abs(moved), end.loudness_db_s)

    def on_voice_end(self, end: VoiceEnd) -> None:
        """Add the measurement of a pause that is over to the caller's average."""
        if end.tempo is not None:
            self._sum += end.tempo.whole
            self._count += 1
