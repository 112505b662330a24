"""Predict whether a pause is the end of a turn, from the voice and from the words together.

Inputs, at each look during a pause: the completeness model's probability and its odds of a filler, the words
of the turn and their grammar, and how the voice ended. Output: log(P(end) / P(hold)) without the share of
ends. One logistic regression weighs all signs, so that information shared by two of them is not counted
twice. Early and late looks have separate weights: with more silence in the input the model's probability has
another meaning. A missing sign contributes nothing, so that a call without a completeness model relies on its
words.

The weights are those of ``end_weights.json``, which ``research.turn_taking.predictor`` writes from the
committed tuning calls. The policy that uses them is ``policies.PredictivePolicy``.

The module is pure.
"""

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

from parley.language import Language, find_language
from parley.language.cue_words import QuestionKind
from parley.turn_taking.endpointing.evidence_voice import VoiceSigns

WEIGHTS = Path(__file__).with_name("end_weights.json")
# Silence in the model's input from which a look is a late one.
LATE_MS = 300
# smart-turn gives 0.006 to most turns of which it is certain, so its log odds are bent there and at the top.
SUREST = 0.001
SURELY_OPEN, SURELY_WHOLE = -3.0, 2.0
# Below the least value the odds of a filler are no further evidence: a sound even less like one is no more of
# an end.
LEAST_FILLER, MOST_FILLER = -2.0, 6.0
# Usual values of the end of a voice, at which it is no evidence, and the limits within which it counts.
USUAL_MOVEMENT, USUAL_LOUDNESS = 2.5, -16.0
MOST_TEMPO, MOST_MOVEMENT, MOST_LOUDNESS = 0.6, 5.0, 35.0
LEAST_CONFIDENCE = 0.15


@dataclass(frozen=True, slots=True)
class PauseSigns:
    """Evidence about a pause.

    Attributes:
        text: words of the turn so far.
        asked: kind of answer that the bot's last words asked for.
        last_word_confidence: confidence of the last word.
        completeness: the model's probability; None without one.
        filler_log_odds: log odds that the voice stopped on a filler; None when they are not known.
        looked_ms: silence in the model's input.
        voice: how the voice ended; None when it was not measured.
    """

    text: str = ""
    asked: QuestionKind = QuestionKind.NOTHING
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


def other_signals(signs: PauseSigns, language: Language | None = None) -> dict[str, float]:
    """Return the inputs that come from the words and from the end of the voice.

    Args:
        signs: the evidence.
        language: that of the words; None for the default language.
    """
    language = language or find_language()
    signals: dict[str, float] = {}
    count = len(language.cues.words_of(signs.text))
    if count and signs.last_word_confidence >= LEAST_CONFIDENCE:
        signals[f"cue_{language.cues.word_cue(signs.text, signs.asked).value}"] = 1.0
        for sign in language.syntax.syntax_signs(signs.text):
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
    """Logistic regression over the signals of a pause.

    Attributes:
        weights: log odds of an end for each unit of a signal, by its name; a missing one weighs 0.
        language: that of the words; None for the default language.
    """

    weights: dict[str, float]
    language: Language | None = None

    @property
    def uses_voice_end(self) -> bool:
        """Return whether the end of the voice has a weight."""
        return any(self.weights.get(name) for name in ("tempo", "movement", "loudness"))

    def sound_log_odds(self, signs: PauseSigns) -> float:
        """Return the log odds of an end by the completeness model alone."""
        return self._sum(sound_signals(signs))

    def other_log_odds(self, signs: PauseSigns) -> float:
        """Return the log odds of an end by words, grammar and the end of the voice."""
        return self._sum(other_signals(signs, self.language))

    def end_log_odds(self, signs: PauseSigns) -> float:
        """Return the log odds of an end by all signals."""
        return self.sound_log_odds(signs) + self.other_log_odds(signs)

    def _sum(self, signals: dict[str, float]) -> float:
        return sum(self.weights.get(name, 0.0) * value for name, value in signals.items())


@functools.cache
def shipped_predictor() -> EndPredictor:
    """Return the predictor with the committed weights."""
    return EndPredictor(json.loads(WEIGHTS.read_text(encoding="utf-8"))["weights"])
