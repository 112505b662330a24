"""``python -m research.turn_taking.calibration``: weigh the signs of an end on the tuning set.

The product's rules read cues from the recogniser's words. A ratio is the share of ends with a cue divided by
the share of holds with it, each with half an observation added. A logistic regression on both gives the slope
of the score and the weight of the words. Information that the score already has from the words is thus not
counted twice. Short turns are not counted: the questions of ``tests/golden`` contain none, so every short
text would look like a beginning. The same two steps fit any other speech, given its silences.
"""

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parley.evals.turns.callers import ScriptedCall
from parley.language.cue_words import QuestionKind, WordCue
from parley.language.english.cue_words import asked_for, word_cue
from parley.turn_taking.endpointing.evidence_voice import CallerVoiceAverage, VoiceSigns
from research.turn_taking import synthetic_speech, tuning
from research.turn_taking.contours import Contour, contour_of
from research.turn_taking.evidence import (
    AskedRatios,
    ContourRatios,
    EvidenceSettings,
    Heard,
    SignWeight,
    WordRatios,
    asked_log_odds,
    calibrated,
    contour_ratio,
    words_log_odds,
)
from research.turn_taking.simulated_callers import TUNING_SEED, SimulationSpec, generate, is_filler

PSEUDO = 0.5
CURVE_BINS = 10
NEWTON_STEPS = 25
RIDGE = 1e-6
# Signs of the end of a voice: name of the measurement, and name of its weight.
SIGNS = {"tempo": "tempo", "movement_semitones": "movement", "loudness_db_s": "loudness"}
# A sign is clipped to the range between these quantiles of its values.
OFTEN = (0.05, 0.9)


@dataclass(frozen=True, slots=True)
class Sample:
    """Evidence at the end of a piece of speech.

    Attributes:
        end: true when the silence ended the turn.
        score: log odds of the score with all of its evidence.
        text: the recognised words of the turn so far.
        asked: kind of question that the bot had asked.
        confidence: of the last word.
        contour: the end of the pitch.
        signs: the end of the voice, relative to the caller's earlier speech.
        is_filler: true when it sounds like a filler.
    """

    end: bool
    score: float
    text: str
    asked: QuestionKind
    confidence: float = 1.0
    contour: Contour | None = None
    signs: VoiceSigns | None = None
    is_filler: bool = False

    @property
    def heard(self) -> Heard:
        """All evidence but the score."""
        return Heard(
            self.text,
            contour=self.contour,
            asked=self.asked,
            last_word_confidence=self.confidence,
            signs=self.signs,
            is_filler=self.is_filler,
        )

    def cue(self, settings: EvidenceSettings) -> WordCue:
        """Return the cue of the last words if they were understood; a filler also counts by its sound."""
        if self.is_filler:
            return WordCue.FILLER
        if self.confidence < settings.least_confidence:
            return WordCue.NO_WORDS
        return word_cue(self.text, self.asked)


def samples(calls: Iterable[ScriptedCall]) -> Iterator[Sample]:
    """Yield the samples of all silences."""
    for call in calls:
        own = CallerVoiceAverage()
        for turn in call.turns:
            asked, text = asked_for(turn.prompt), ""
            for silence in turn.silences:
                text = f"{text} {silence.heard}".strip()
                end, score = silence.length_ms is None, silence.log_odds[-1]
                signs = own.signs(silence.voice_end) if silence.voice_end is not None else None
                contour = contour_of(silence.voice_end)
                yield Sample(end, score, text, asked, silence.confidence, contour, signs, is_filler(silence))
                if silence.voice_end is not None:
                    own.on_voice_end(silence.voice_end)


def fit(
    rows: Sequence[Sample], *, curved: bool = False, contours: bool = False, voice: bool = False
) -> EvidenceSettings:
    """Fit settings for score and words.

    Args:
        rows: pauses to fit on.
        curved: calibrate the score by a curve instead of a line.
        contours: count the ratios of the contours instead of taking the defaults.
        voice: fit the end of the voice as well, in one regression with score and words.
    """
    base = EvidenceSettings()
    curve = score_curve(rows) if curved else ()
    ends = [row for row in rows if row.end]
    holds = [row for row in rows if not row.end]
    worth = base.model_copy(
        update={
            "words": WordRatios(**_cue_ratios(ends, holds, base)),
            "words_weight": 1.0,
            "asked": AskedRatios(**_asked_ratios(ends, holds)),
            "contours": ContourRatios(**_contour_ratios(ends, holds)) if contours else base.contours,
        }
    )
    words = [words_log_odds(row.heard, worth) for row in rows]
    # The bot's question is counted as it is when it stands alone, and weighed when other signs are fitted
    # too.
    asked = [[asked_log_odds(row.heard, worth) for row in rows]] if voice else []
    signs = {name: _sign(rows, name) for name in SIGNS} if voice else {}
    beside = [_above_neutral(rows, name, sign) for name, sign in signs.items()]
    table = np.stack([_scores(rows, curve), words, *beside, *asked, np.ones(len(rows))], axis=1)
    slope, weight, *weights, offset = logistic(table, np.array([row.end for row in rows], dtype=float))
    asked_share = min(1.0, max(0.0, weights.pop())) if voice else 1.0
    prior = math.log(len(ends) / len(holds))
    fitted = {
        SIGNS[name]: sign.model_copy(update={"weight": round(of_sign, 4)}).model_dump()
        for (name, sign), of_sign in zip(signs.items(), weights, strict=True)
    }
    return EvidenceSettings.model_validate(
        worth.model_dump()
        | {
            "score_slope": max(0.0, round(slope, 3)),
            "words_weight": min(2.0, max(0.0, round(weight, 3))),
            "score_offset": round(offset - prior, 3),
            "score_curve": curve,
            "asked": {kind: round(ratio**asked_share, 3) for kind, ratio in worth.asked.model_dump().items()},
            "voice": base.voice.model_dump() | fitted,
        }
    )


def _sign(rows: Sequence[Sample], name: str) -> SignWeight:
    """Return the neutral value and the range of a sign, with weight 0.

    The neutral value lies midway between the medians of ends and holds.
    """
    known = [(row.end, value) for row in rows if (value := sign_of(row, name)) is not None]
    middles = [statistics.median(value for of_end, value in known if of_end is end) for end in (True, False)]
    lowest, highest = np.quantile([value for _, value in known], OFTEN)
    return SignWeight(
        weight=0.0,
        neutral=round(sum(middles) / 2, 3),
        lowest=round(float(lowest), 3),
        highest=round(float(highest), 3),
    )


def _above_neutral(rows: Sequence[Sample], name: str, sign: SignWeight) -> list[float]:
    per_unit = sign.model_copy(update={"weight": 1.0})
    return [per_unit.log_odds(sign_of(row, name)) for row in rows]


def sign_of(row: Sample, name: str) -> float | None:
    """Return the value of one of ``SIGNS``; None when it was not measured."""
    value: float | None = None if row.signs is None else getattr(row.signs, name)
    return value


def score_only(rows: Sequence[Sample], *, curved: bool = False) -> EvidenceSettings:
    """Fit settings that use no words."""
    curve = score_curve(rows) if curved else ()
    table = np.stack([_scores(rows, curve), np.ones(len(rows))], axis=1)
    slope, offset = logistic(table, np.array([row.end for row in rows], dtype=float))
    ends = sum(row.end for row in rows)
    prior = math.log(ends / (len(rows) - ends))
    return EvidenceSettings(
        score_slope=max(0.0, round(slope, 3)),
        score_offset=round(offset - prior, 3),
        score_curve=curve,
        words_weight=0.0,
    )


def score_curve(rows: Sequence[Sample]) -> tuple[tuple[float, float], ...]:
    """Calibrate the score's log odds, counted in ``CURVE_BINS`` bins with the same number of pauses.

    A bin's ratio is drawn towards 1 by ``PSEUDO`` of an end and of a hold. Neighbours that fall are pooled
    (isotonic regression, Ayer et al. 1955); the bins' medians are joined by straight lines.
    """
    ordered = sorted(rows, key=lambda row: row.score)
    ends = sum(row.end for row in rows)
    holds = len(rows) - ends
    # Columns: pauses, sum of medians times pauses, ends, holds.
    pooled: list[list[float]] = []
    for part in np.array_split(np.arange(len(ordered)), CURVE_BINS):
        inside = [ordered[place] for place in part]
        if not inside:
            continue
        of_ends = sum(row.end for row in inside)
        middle = float(np.median([row.score for row in inside]))
        pooled.append([len(inside), middle * len(inside), of_ends, len(inside) - of_ends])
        while len(pooled) > 1 and (
            pooled[-1][1] / pooled[-1][0] <= pooled[-2][1] / pooled[-2][0]
            or _ratio(pooled[-1], ends, holds) < _ratio(pooled[-2], ends, holds)
        ):
            last = pooled.pop()
            pooled[-1] = [one + other for one, other in zip(pooled[-1], last, strict=True)]
    return tuple(
        (round(place / count, 3), round(_ratio([count, place, *kinds], ends, holds), 3))
        for count, place, *kinds in pooled
    )


def _ratio(pool: Sequence[float], ends: int, holds: int) -> float:
    """Return log(P(bin | end) / P(bin | hold))."""
    of_ends = (pool[2] + PSEUDO) / (ends + PSEUDO * CURVE_BINS)
    return math.log(of_ends / ((pool[3] + PSEUDO) / (holds + PSEUDO * CURVE_BINS)))


def _scores(rows: Sequence[Sample], curve: tuple[tuple[float, float], ...]) -> list[float]:
    settings = EvidenceSettings(score_slope=1.0, score_offset=0.0, score_curve=curve)
    return [calibrated(row.score, settings) for row in rows]


def _cue_ratios(ends: Sequence[Sample], holds: Sequence[Sample], base: EvidenceSettings) -> dict[str, float]:
    cues = {cue: 1.0 for cue in WordCue}
    at_end, at_hold = (Counter(row.cue(base) for row in rows) for rows in (ends, holds))
    for cue in cues:
        share_end = (at_end[cue] + PSEUDO) / (len(ends) + PSEUDO * len(cues))
        share_hold = (at_hold[cue] + PSEUDO) / (len(holds) + PSEUDO * len(cues))
        cues[cue] = round(share_end / share_hold, 3)
    return {cue.value: ratio for cue, ratio in cues.items()}


def _contour_ratios(ends: Sequence[Sample], holds: Sequence[Sample]) -> dict[str, float]:
    kinds = ("asking_rise", "rise", "level", "fall")
    at_end, at_hold = (
        Counter(contour_ratio(row.heard) for row in rows if row.contour is not None) for rows in (ends, holds)
    )
    ratios = {}
    for kind in kinds:
        share_end = (at_end[kind] + PSEUDO) / (at_end.total() + PSEUDO * len(kinds))
        share_hold = (at_hold[kind] + PSEUDO) / (at_hold.total() + PSEUDO * len(kinds))
        ratios[kind] = round(share_end / share_hold, 3)
    return ratios


def _asked_ratios(ends: Sequence[Sample], holds: Sequence[Sample]) -> dict[str, float]:
    at_end, at_hold = (Counter(row.asked for row in rows) for rows in (ends, holds))
    ratios = {}
    for asked in QuestionKind:
        share_end = (at_end[asked] + PSEUDO) / (len(ends) + PSEUDO * len(QuestionKind))
        share_hold = (at_hold[asked] + PSEUDO) / (len(holds) + PSEUDO * len(QuestionKind))
        ratios[asked.value] = round(share_end / share_hold, 3)
    return ratios


def logistic(table: np.ndarray, target: np.ndarray) -> list[float]:
    """Return the weights of a logistic regression, by Newton's method (Bishop 2006, 4.3.3).

    Args:
        table: float, (rows, weights).
        target: float, (rows,), 0 or 1.
    """
    weights = np.zeros(table.shape[1])
    for _ in range(NEWTON_STEPS):
        guess = 1 / (1 + np.exp(-np.clip(table @ weights, -30, 30)))
        curvature = table.T @ (table * (guess * (1 - guess))[:, None]) + RIDGE * np.eye(len(weights))
        weights = weights - np.linalg.solve(curvature, table.T @ (guess - target) + RIDGE * weights)
    return [float(weight) for weight in weights]


def _print_tuning_calls() -> None:
    calls, _ = synthetic_speech.load(synthetic_speech.TUNING, list(generate(tuning.SPEC, TUNING_SEED)))
    silences = [silence for call in calls for turn in call.turns for silence in turn.silences]
    tempos = [end.tempo.whole for silence in silences if (end := silence.voice_end) and end.tempo]
    print(json.dumps(fit(list(samples(calls)), curved=True, voice=True).model_dump(), indent=2))
    print(f"usual tempo {statistics.fmean(tempos):.3f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.calibration")
    root.add_argument("--callers", type=int, default=300)
    root.add_argument("--d-prime", type=float, default=2.0)
    root.add_argument("--seed", type=int, default=TUNING_SEED)
    root.add_argument(
        "--tuning-calls",
        action="store_true",
        help="fit all signs on the committed tuning calls, and print the usual tempo",
    )
    arguments = root.parse_args(argv)
    if arguments.tuning_calls:
        _print_tuning_calls()
        return 0
    spec = SimulationSpec(callers=arguments.callers, d_prime=arguments.d_prime)
    rows = list(samples(generate(spec, arguments.seed)))
    print(f"seed {arguments.seed}: {sum(row.end for row in rows)} ends, {sum(not r.end for r in rows)} holds")
    for end, name in ((True, "ends"), (False, "holds")):
        of_kind = [row for row in rows if row.end is end]
        cues = Counter(row.cue(EvidenceSettings()).value for row in of_kind)
        print(name, {cue: round(count / len(of_kind), 3) for cue, count in cues.most_common()})
    print(json.dumps(fit(rows).model_dump(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
