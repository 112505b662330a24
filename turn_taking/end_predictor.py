"""Predict whether a pause is the end of a turn, from the voice and from the words together.

In: at each look during a pause, the completeness model's probability and its odds of a filler, the words of
the turn and the grammar of them, how the voice ended. Out: log(P(end) / P(hold)) without the share of ends,
as one logistic regression weighs them, so that what two signs share is not counted twice. Which look it was
counts: with more silence in its ears the model's probability means another thing. A sign that is missing says
nothing, so that a call without a completeness model goes by its words.

The weights are those of ``end_weights.json``, which ``python -m evals.turns.predictor`` writes from the
committed tuning calls. The policy that uses them is ``policies.PredictivePolicy``.

Pure.
"""

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

from turn_taking.evidence_syntax import syntax_signs
from turn_taking.evidence_voice import VoiceSigns
from turn_taking.evidence_words import Asked, word_cue, words_of

WEIGHTS = Path(__file__).with_name("end_weights.json")
# A look with so much silence in its ears is a late one.
LATE_MS = 300
# smart-turn gives 0.006 to most of what it is sure about, so its log odds are bent there and at the top.
SUREST = 0.001
SURELY_OPEN, SURELY_WHOLE = -3.0, 2.0
# The odds of a filler say nothing up to there: what sounds even less like one is no more of an end.
LEAST_FILLER, MOST_FILLER = -2.0, 6.0
# Usual values of the end of a voice, at which it says nothing, and how far it is believed.
USUAL_MOVEMENT, USUAL_LOUDNESS = 2.5, -16.0
MOST_TEMPO, MOST_MOVEMENT, MOST_LOUDNESS = 0.6, 5.0, 35.0
LEAST_CONFIDENCE = 0.15


@dataclass(frozen=True, slots=True)
class PauseSigns:
    """What is known of a pause.

    Attributes:
        text: words of the turn so far.
        asked: what the bot's last words asked for.
        last_word_confidence: how well the last word was understood.
        completeness: the model's probability, None without one.
        filler_log_odds: that the voice stopped on a filler, None when that is not known.
        looked_ms: silence that the model had heard.
        voice: how the voice ended, None when it was not measured.
    """

    text: str = ""
    asked: Asked = Asked.NOTHING
    last_word_confidence: float = 1.0
    completeness: float | None = None
    filler_log_odds: float | None = None
    looked_ms: int = 0
    voice: VoiceSigns | None = None


def sound_signals(signs: PauseSigns) -> dict[str, float]:
    """Return the inputs of the regression that come from the completeness model."""
    signals: dict[str, float] = {}
    if signs.completeness is not None:
        probability = min(max(signs.completeness, SUREST), 1 - SUREST)
        score = math.log(probability / (1 - probability))
        kind = "late_score" if signs.looked_ms >= LATE_MS else "score"
        signals[kind] = score
        signals[f"{kind}_open"] = min(0.0, score - SURELY_OPEN)
        signals[f"{kind}_whole"] = max(0.0, score - SURELY_WHOLE)
        signals[f"{kind}_known"] = 1.0
    if signs.filler_log_odds is not None:
        signals["filler"] = min(max(signs.filler_log_odds, LEAST_FILLER), MOST_FILLER) - LEAST_FILLER
    return signals


def other_signals(signs: PauseSigns) -> dict[str, float]:
    """Return the inputs that come from the words and from the end of the voice."""
    signals: dict[str, float] = {}
    count = len(words_of(signs.text))
    if count and signs.last_word_confidence >= LEAST_CONFIDENCE:
        signals[f"cue_{word_cue(signs.text, signs.asked).value}"] = 1.0
        for sign in syntax_signs(signs.text):
            signals[f"syntax_{sign.value}"] = 1.0
    voice = signs.voice
    if voice is not None:
        if voice.tempo is not None:
            signals["tempo"] = _within(voice.tempo, MOST_TEMPO)
        if voice.movement_semitones is not None:
            signals["movement"] = _within(voice.movement_semitones - USUAL_MOVEMENT, MOST_MOVEMENT)
        if voice.loudness_db_s is not None:
            signals["loudness"] = _within(voice.loudness_db_s - USUAL_LOUDNESS, MOST_LOUDNESS) / MOST_LOUDNESS
    return signals


def _within(value: float, most: float) -> float:
    return min(max(value, -most), most)


@dataclass(frozen=True)
class EndPredictor:
    """Weigh the signals of a pause.

    Attributes:
        weights: log odds of an end for each unit of a signal, by its name; one that is missing weighs 0.
    """

    weights: dict[str, float]

    @property
    def hears_voice_end(self) -> bool:
        """Return whether the end of the voice has a weight."""
        return any(self.weights.get(name) for name in ("tempo", "movement", "loudness"))

    def sound_log_odds(self, signs: PauseSigns) -> float:
        """Log odds of an end by the completeness model alone."""
        return self._sum(sound_signals(signs))

    def other_log_odds(self, signs: PauseSigns) -> float:
        """Log odds of an end by words, grammar and the end of the voice."""
        return self._sum(other_signals(signs))

    def end_log_odds(self, signs: PauseSigns) -> float:
        """Log odds of an end by everything."""
        return self.sound_log_odds(signs) + self.other_log_odds(signs)

    def _sum(self, signals: dict[str, float]) -> float:
        return sum(self.weights.get(name, 0.0) * value for name, value in signals.items())


@functools.cache
def shipped_predictor() -> EndPredictor:
    """Return the predictor with the committed weights."""
    return EndPredictor(json.loads(WEIGHTS.read_text(encoding="utf-8"))["weights"])
