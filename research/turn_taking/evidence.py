"""Probability that a turn is over: all evidence as one sum of log odds.

Inputs: the completeness of the turn (a model's probability), its last words, its length, the bot's question,
the end of the pitch or of the whole voice. Output: log(P(evidence | end) / P(evidence | hold)). Each sign is
a likelihood ratio counted at ends and at holds, so each can be counted anew on other speech without touching
the rest. The prior (the share of pauses that are ends) and the law of pauses are left to ``boundary_policy``.

A model's probability is calibrated before it counts: by a line, or by a curve where its log odds are not
linear in the evidence. For example, smart-turn gives 0.006 to most of the pauses that it is sure about, and a
value just above that means much less.

Signs are not independent: a model that recognises a hanging clause has used part of the information in its
last word. The words therefore count with ``words_weight``, which is fitted together with the slope of the
score (logistic regression on both). A rarely counted sign is drawn towards 1 by half an observation of each.

Origin of the figures: ``calibration`` counts the word cues and the lengths with the real rules on the
questions of ``tests/golden`` marked for tuning, with pauses placed as in ``simulated_callers``. The contours
are those of the Columbia Games Corpus (Gravano, PhD thesis, Columbia University 2009, table 6.1; Gravano and
Hirschberg, Computer Speech and Language 25, 2011).

Pure.
"""

import bisect
import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, model_validator

from parley.language.cue_words import QuestionKind, WordCue
from parley.language.english.cue_words import QUESTION_WORDS, word_cue, words_of
from parley.turn_taking.endpointing.evidence_voice import VoiceSigns
from research.turn_taking.contours import Contour

# Further from 1/2 a probability reflects the model's calibration more than the turn.
SUREST = 0.001


class WordRatios(BaseModel):
    """P(the cue at an end) / P(the cue at a hold), of each cue.

    ``closing`` is chosen: the counted value (5) reflects how often the scripted callers answer in two words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    no_words: float = Field(1.0, gt=0, description="nothing was understood")
    spelling: float = Field(0.48, gt=0, description="letters one by one")
    filler: float = Field(0.10, gt=0, description="uh, um")
    hanging: float = Field(0.15, gt=0, description="a conjunction, an article, a possessive")
    open_number: float = Field(0.23, gt=0, description="a number that is not whole")
    open_address: float = Field(0.12, gt=0, description="an address without its street")
    trailing: float = Field(0.40, gt=0, description="a preposition, an auxiliary")
    closing: float = Field(2.0, gt=0, description="please, thanks, yes")
    plain: float = Field(1.40, gt=0, description="none of these")


class AskedRatios(BaseModel):
    """P(this question at an end) / P(the same question at a hold), by kind of question.

    Raux and Eskenazi (SIGdial 2008) found the system's question among the most informative signs in a
    deployed system; they print no ratios. A ratio of 1 has no effect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nothing: float = Field(1.0, gt=0, description="no question")
    choice: float = Field(1.0, gt=0, description="a yes or a no")
    question: float = Field(1.0, gt=0, description="any other question")
    number: float = Field(1.0, gt=0, description="a number or a code")
    address: float = Field(1.0, gt=0, description="an address")
    spelling: float = Field(1.0, gt=0, description="a spelled name")


class ContourRatios(BaseModel):
    """P(the contour at an end) / P(the contour at a hold).

    Gravano and Hirschberg label the tones by ear: a high rise 22.1 % before smooth switches and 9.1 % before
    holds, a low rise 14.1 and 11.5, a fall 47.2 and 24.7, a plateau 13.2 and 29.9. Their high rises are
    mostly questions. A rise on a sentence that does not read as a question is taken for the low, continuing
    kind. It is not taken to favour an end, as it may be the middle of a list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    asking_rise: float = Field(2.4, gt=0, description="a rise at the end of what reads as a question")
    rise: float = Field(0.8, gt=0, description="a rise elsewhere")
    level: float = Field(0.44, gt=0, description="the pitch stays where it was")
    fall: float = Field(1.9, gt=0, description="the pitch falls")


class SignWeight(BaseModel):
    """Weight of one sign: ``weight`` log odds of an end for each unit above ``neutral``.

    Values are clipped to the range from ``lowest`` to ``highest``, in which the sign was often observed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = Field(ge=-50, le=50)
    neutral: float
    lowest: float
    highest: float

    def log_odds(self, value: float | None) -> float:
        """Return the log odds of an end; 0 when the sign was not measured."""
        if value is None:
            return 0.0
        return self.weight * (min(max(value, self.lowest), self.highest) - self.neutral)


class VoiceWeights(BaseModel):
    """Weights of the end of a voice, as counted on ``tuning.json`` (synthetic voices)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


class EvidenceSettings(BaseModel):
    """Weight of each sign."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    score_slope: float = Field(
        1.0, ge=0, le=10, description="log odds of an end per log odds of the model's probability"
    )
    score_offset: float = Field(0.0, ge=-10, le=10, description="log odds of an end at probability 1/2")
    score_curve: tuple[tuple[float, float], ...] = Field(
        (),
        description="what the model's log odds stand for, as pairs with straight lines between and level "
        "outside; slope and offset are then of the second; empty: the log odds themselves",
    )
    words_weight: float = Field(0.7, ge=0, le=2, description="how much of the words the score has not heard")
    words: WordRatios = WordRatios()
    least_confidence: float = Field(
        0.15, ge=0, le=1, description="a last word that was understood worse than this is no cue"
    )
    short_words: int = Field(2, ge=1, le=20, description="so many words are a short turn")
    short: float = Field(1.0, gt=0, description="ratio of a short turn that answers nothing")
    short_answer: float = Field(1.0, gt=0, description="ratio of a short turn after a question")
    asked: AskedRatios = AskedRatios()
    contours: ContourRatios = ContourRatios()
    voice: VoiceWeights = VoiceWeights()

    @model_validator(mode="after")
    def _rises(self) -> "EvidenceSettings":
        pairs = list(zip(self.score_curve, self.score_curve[1:], strict=False))
        if any(right[0] <= left[0] or right[1] < left[1] for left, right in pairs):
            raise ValueError("expected a rising score_curve")
        return self


@dataclass(frozen=True, slots=True)
class Heard:
    """Evidence about a turn that has fallen silent.

    Attributes:
        text: its words so far.
        completeness: the model's probability. None without one.
        contour: the end of the pitch. None when it was not measured or nothing was voiced.
        asked: kind of question in the bot's last words.
        last_word_confidence: of the last recognised word.
        signs: the end of the voice. None when it was not measured.
        is_filler: true when it sounds as if it stopped on a filler, whatever its words.
    """

    text: str = ""
    completeness: float | None = None
    contour: Contour | None = None
    asked: QuestionKind = QuestionKind.NOTHING
    last_word_confidence: float = 1.0
    signs: VoiceSigns | None = None
    is_filler: bool = False


def end_log_odds(heard: Heard, settings: EvidenceSettings) -> float:
    """Return log(P(heard | end) / P(heard | hold)); positive values favour an end."""
    return (
        score_log_odds(heard.completeness, settings)
        + words_log_odds(heard, settings)
        + asked_log_odds(heard, settings)
        + contour_log_odds(heard, settings)
        + voice_log_odds(heard.signs, settings.voice)
    )


def score_log_odds(completeness: float | None, settings: EvidenceSettings) -> float:
    """Return the calibrated log odds of the model's probability; 0 without one."""
    if completeness is None:
        return 0.0
    probability = min(max(completeness, SUREST), 1 - SUREST)
    return calibrated(math.log(probability / (1 - probability)), settings)


def calibrated(log_odds: float, settings: EvidenceSettings) -> float:
    """Return the model's log odds, calibrated."""
    return settings.score_offset + settings.score_slope * _curved(log_odds, settings.score_curve)


def _curved(log_odds: float, curve: tuple[tuple[float, float], ...]) -> float:
    if not curve:
        return log_odds
    right = bisect.bisect_right(curve, log_odds, key=lambda pair: pair[0])
    if right in (0, len(curve)):
        return curve[min(right, len(curve) - 1)][1]
    (low, below), (high, above) = curve[right - 1], curve[right]
    return below + (above - below) * (log_odds - low) / (high - low)


def words_log_odds(heard: Heard, settings: EvidenceSettings) -> float:
    """Return the log odds of the last words and the number of words; a filler by its sound replaces both."""
    if not settings.words_weight:
        return 0.0
    if heard.is_filler:
        return settings.words_weight * math.log(settings.words.filler)
    words = len(words_of(heard.text))
    if not words or heard.last_word_confidence < settings.least_confidence:
        return settings.words_weight * math.log(settings.words.no_words)
    cue = word_cue(heard.text, heard.asked)
    worth = math.log(getattr(settings.words, cue.value))
    if words <= settings.short_words and cue is WordCue.PLAIN:
        worth += math.log(settings.short if heard.asked is QuestionKind.NOTHING else settings.short_answer)
    return settings.words_weight * worth


def asked_log_odds(heard: Heard, settings: EvidenceSettings) -> float:
    """Return the log odds of the bot's question."""
    return math.log(getattr(settings.asked, heard.asked.value))


def contour_log_odds(heard: Heard, settings: EvidenceSettings) -> float:
    """Return the log odds of the end of the pitch; 0 when it is not known."""
    ratio = contour_ratio(heard)
    return 0.0 if ratio is None else math.log(getattr(settings.contours, ratio))


def contour_ratio(heard: Heard) -> str | None:
    """Return the field of ``ContourRatios`` for the end of the pitch; None when it is not known."""
    if heard.contour is Contour.RISE:
        return "asking_rise" if reads_as_question(heard.text) else "rise"
    return None if heard.contour is None else heard.contour.value


def reads_as_question(text: str) -> bool:
    """Return whether the sentence begins like a question: then a rising pitch ends it."""
    words = words_of(text)
    return bool(words) and words[0] in QUESTION_WORDS


def voice_log_odds(signs: VoiceSigns | None, weights: VoiceWeights) -> float:
    """Return log(P(signs | end) / P(signs | hold)); 0 when nothing was measured."""
    if signs is None:
        return 0.0
    return (
        weights.tempo.log_odds(signs.tempo)
        + weights.movement.log_odds(signs.movement_semitones)
        + weights.loudness.log_odds(signs.loudness_db_s)
    )
