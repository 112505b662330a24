"""How a voice ends, as one piece of evidence: drawn out, level, soft, beside the same caller's speech.

In: the last seconds of the caller's audio at a pause. ``voice_end`` measures them (``evidence_tempo``,
``evidence_pitch``, ``evidence_loudness``), ``CallerVoice`` puts what was measured beside what this caller is
like, and ``voice_log_odds`` says what it is worth: log(P(signs | end) / P(signs | hold)).

The signs of one ending are not independent of each other, nor of what a completeness model and the words say:
the weights are those of one logistic regression on all of them (``evals.turns.calibration``), so that nothing
is counted twice. A sign that was not measured says nothing, and none is believed further than it was seen.

Pure; one ``CallerVoice`` per call.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from core.errors import ShapeError
from turn_taking.evidence_loudness import loudness_slope_db_s
from turn_taking.evidence_pitch import movement_semitones, pitch_hz
from turn_taking.evidence_tempo import Tempo, tempo_of

# So much audio is looked at: the last words, what they are compared with, and the silence behind them.
VOICE_END_MS = 3_000
# The general tempo counts as so many pauses of the caller's own.
USUAL_WEIGHT = 4.0


class SignWeight(BaseModel):
    """What one sign is worth: ``weight`` log odds of an end for each unit above ``neutral``.

    ``lowest`` and ``highest`` are as far as it was seen often: beyond, it counts as if it were there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = Field(ge=-50, le=50)
    neutral: float
    lowest: float
    highest: float

    def log_odds(self, value: float | None) -> float:
        """Of an end; 0 when the sign was not measured."""
        if value is None:
            return 0.0
        return self.weight * (min(max(value, self.lowest), self.highest) - self.neutral)


class VoiceWeights(BaseModel):
    """What the end of a voice is worth: as counted on ``evals/turns/tuning.json``, synthetic voices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usual_tempo: float = Field(0.9, description="of callers in general: log of dB per 10 ms")
    tempo: SignWeight = Field(
        SignWeight(weight=3.767, neutral=-0.061, lowest=-0.592, highest=0.152),
        description="log of the tempo of the last word by the caller's own",
    )
    movement: SignWeight = Field(
        SignWeight(weight=0.146, neutral=2.574, lowest=0.07, highest=7.328),
        description="how far the pitch moves, up or down, in semitones",
    )
    loudness: SignWeight = Field(
        SignWeight(weight=-0.025, neutral=-16.135, lowest=-51.177, highest=10.552),
        description="how fast the voice grows louder, in dB per second",
    )


@dataclass(frozen=True, slots=True)
class VoiceEnd:
    """How a voice ended, as it was measured.

    Attributes:
        tempo: how fast its spectrum changed, None when too little was voiced.
        movement_semitones: of the pitch, None as above.
        loudness_db_s: slope of the level, None as above.
    """

    tempo: Tempo | None
    movement_semitones: float | None
    loudness_db_s: float | None


@dataclass(frozen=True, slots=True)
class VoiceSigns:
    """The same beside what this caller is like; None where it is not known.

    Attributes:
        tempo: log of the last word's tempo by the caller's own: below 0 it is drawn out.
        movement_semitones: how far the pitch moves, up or down.
        loudness_db_s: how fast the voice grows louder.
    """

    tempo: float | None
    movement_semitones: float | None
    loudness_db_s: float | None


def voice_end(audio: np.ndarray, rate_hz: int) -> VoiceEnd:
    """Measure the end of what was said.

    audio: float32, (samples,), in [-1, 1]; silence behind the voice does not matter.

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


class CallerVoice:
    """What this caller's speech is like.

    Args:
        usual_tempo: of callers in general; counts as ``USUAL_WEIGHT`` pauses.
    """

    def __init__(self, usual_tempo: float) -> None:
        self._sum = USUAL_WEIGHT * usual_tempo
        self._count = USUAL_WEIGHT

    def signs(self, end: VoiceEnd) -> VoiceSigns:
        """``end`` beside everything heard so far, itself included."""
        tempo = None
        if end.tempo is not None:
            tempo = end.tempo.final - (self._sum + end.tempo.whole) / (self._count + 1)
        moved = end.movement_semitones
        return VoiceSigns(tempo, None if moved is None else abs(moved), end.loudness_db_s)

    def on_voice_end(self, end: VoiceEnd) -> None:
        """A pause is over; what was measured at it belongs to what is known of the caller."""
        if end.tempo is not None:
            self._sum += end.tempo.whole
            self._count += 1


def voice_log_odds(signs: VoiceSigns | None, weights: VoiceWeights) -> float:
    """log(P(signs | end) / P(signs | hold)); 0 when nothing was measured."""
    if signs is None:
        return 0.0
    return (
        weights.tempo.log_odds(signs.tempo)
        + weights.movement.log_odds(signs.movement_semitones)
        + weights.loudness.log_odds(signs.loudness_db_s)
    )
