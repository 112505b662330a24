"""Scripted callers: complete turns with words, pauses and scores, drawn from a seed.

Each caller has a factor that stretches all of their pauses (log-normal, ``spread``) and a share of pauses
that are holds (Beta around the general one). A turn has a number of holds before the last silence, which is
its end; the words come from ``texts``. A score says how complete the turn sounds: Gaussian evidence of
sensitivity d', with part of it at the first look and all of it at the last, as a model that is asked again
with more silence in its ears. What the words show the model hears too: behind a hold inside a sentence the
score is lower than behind one between sentences, by ``overlap`` on both sides of the mean. A recogniser hears
the words, loses some fillers and mistakes some last words. A policy sees what has come by its decision, never
which kind of silence it is.

Law of pauses and share of holds: eot-bench (``turn_taking.pauses``). The rest is assumed, said so, and swept.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evals.turns.contours import Contour
from evals.turns.texts import FILLERS, PauseHabits, Piece, script, sentences
from turn_taking.endpointing import EndpointTuning
from turn_taking.evidence_voice import VoiceEnd
from turn_taking.pauses import HOLD_SHARE, PauseLaw

# A caller who never holds, or never comes to an end, is no caller.
LEAST_SHARE, MOST_SHARE = 0.1, 0.9
_DRAWS = 64
FILLER_LOG_ODDS = EndpointTuning().filler_log_odds


@dataclass(frozen=True, slots=True)
class CallSpec:
    """What is generated.

    Attributes:
        callers: how many.
        turns: of each.
        d_prime: sensitivity of the score with all of its evidence.
        looks_ms: silence at which the score is seen.
        shares: of the evidence (of d' squared) by each look; the last is 1.
        overlap: see the module, in standard deviations of the score; below 1.
        spread: standard deviation of the logarithm of the callers' factors.
        share_weight: of the Beta law of the callers' shares of holds; infinite: all alike.
        stretch: all pauses are so many times as long; 1 is what policies are tuned on.
        words_ms: silence at which the final words are known.
        fillers_heard: share of fillers that the recogniser writes.
        last_word_wrong: share of last words that it mistakes for another.
        held_out: whether the sentences are those that nothing was fitted on.
        habits: where the pauses fall.
    """

    callers: int = 150
    turns: int = 20
    d_prime: float = 2.0
    looks_ms: tuple[int, ...] = (160, 320)
    shares: tuple[float, ...] = (0.8, 1.0)
    overlap: float = 0.5
    spread: float = 0.35
    share_weight: float = 20.0
    stretch: float = 1.0
    words_ms: int = 200
    fillers_heard: float = 0.5
    last_word_wrong: float = 0.1
    held_out: bool = False
    habits: PauseHabits = PauseHabits()


@dataclass(frozen=True, slots=True)
class Silence:
    """One silence of a caller and what was said before it.

    Attributes:
        length_ms: of a hold; None at the end of the turn.
        log_odds: at each look, of the score alone: log P(score | end) / P(score | hold).
        said: the words of the piece.
        heard: the same as the recogniser writes them.
        inside: the pause stands inside a sentence, a number or an address.
        confidence: of the last word that was heard, 0..1.
        contour: how the pitch ends, None when nobody measured it.
        voice_end: how the voice ends, as above.
        filler_log_odds: that it stops on a filler by its sound, None when nobody listened.
    """

    length_ms: int | None
    log_odds: tuple[float, ...]
    said: str
    heard: str
    inside: bool = False
    confidence: float = 1.0
    contour: Contour | None = None
    voice_end: VoiceEnd | None = None
    filler_log_odds: float | None = None

    @property
    def is_filler(self) -> bool:
        """Whether it sounds like one, as ``hearing.endpoint`` has it by default."""
        heard, least = self.filler_log_odds, FILLER_LOG_ODDS
        return heard is not None and least is not None and heard >= least


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn.

    Attributes:
        prompt: the bot's words before it.
        silences: holds and the end, in order.
    """

    prompt: str
    silences: tuple[Silence, ...]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """All of one caller.

    Attributes:
        factor: how much longer this caller's pauses are.
        hold_share: how many of this caller's pauses are holds.
        turns: in order.
    """

    factor: float
    hold_share: float
    turns: tuple[ScriptedTurn, ...]


def generate(spec: CallSpec, seed: int) -> Iterator[ScriptedCall]:
    """Callers in order; the same for the same seed."""
    rng = np.random.default_rng(seed)
    corpus = sentences(held_out=spec.held_out)
    vocabulary = sorted({word for sentence in corpus for word in sentence.split()})
    for factor, share in zip(_factors(spec, rng), _shares(spec, rng), strict=True):
        law = PauseLaw(scale=factor)
        turns = []
        for _ in range(spec.turns):
            said = script(share / (1 - share), corpus, spec.habits, rng)
            last = len(said.pieces) - 1
            silences = [
                Silence(
                    None if place == last else round(law.sample(rng)),
                    _looks(spec, None if place == last else piece, rng),
                    piece.text,
                    _heard(piece.text, spec, vocabulary, rng),
                    piece.inside,
                )
                for place, piece in enumerate(said.pieces)
            ]
            turns.append(ScriptedTurn(said.prompt, tuple(silences)))
        yield ScriptedCall(factor, share, tuple(turns))


def with_new_pauses(call: ScriptedCall, spec: CallSpec, rng: np.random.Generator) -> ScriptedCall:
    """The same words and scores of somebody whose pauses are longer or shorter: all lengths drawn anew."""
    factor = spec.stretch * float(np.exp(rng.normal(0, spec.spread)))
    law = PauseLaw(scale=factor)
    turns = tuple(
        replace(
            turn,
            silences=tuple(
                silence if silence.length_ms is None else replace(silence, length_ms=round(law.sample(rng)))
                for silence in turn.silences
            ),
        )
        for turn in call.turns
    )
    return replace(call, factor=factor, turns=turns)


def recognised(calls: Sequence[ScriptedCall]) -> dict[str, float]:
    """How well the words were understood: word error rate and share of right last words, fillers left out."""
    errors = words = right = pieces = 0
    for silence in (silence for call in calls for turn in call.turns for silence in turn.silences):
        said = [word for word in silence.said.split() if word not in FILLERS]
        heard = [word for word in silence.heard.split() if word not in FILLERS]
        errors += _edits(said, heard)
        words += len(said)
        if said:
            pieces += 1
            right += said[-1:] == heard[-1:]
    return {
        "word_error_rate": round(errors / max(1, words), 4),
        "last_words_right": round(right / max(1, pieces), 4),
    }


def _edits(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words to replace, drop and insert, at least (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for place, word in enumerate(said, start=1):
        before, row[0] = row[0], place
        for other, candidate in enumerate(heard, start=1):
            before, row[other] = (
                row[other],
                min(row[other] + 1, row[other - 1] + 1, before + (word != candidate)),
            )
    return row[-1]


def _factors(spec: CallSpec, rng: np.random.Generator) -> list[float]:
    return [
        spec.stretch * math.exp(log)
        for log in _spread_out(rng.normal(0, spec.spread, _DRAWS * spec.callers), rng)
    ]


def _shares(spec: CallSpec, rng: np.random.Generator) -> list[float]:
    if math.isinf(spec.share_weight):
        return [HOLD_SHARE] * spec.callers
    # So that of all pauses the general share are holds: who holds often has more pauses.
    holds = HOLD_SHARE * (spec.share_weight - 1)
    drawn = rng.beta(holds, spec.share_weight - holds, _DRAWS * spec.callers)
    return _spread_out(np.clip(drawn, LEAST_SHARE, MOST_SHARE), rng)


def _spread_out(drawn: np.ndarray, rng: np.random.Generator) -> list[float]:
    """One of each ``_DRAWS`` neighbours, in random order: a hundred callers then have the law of thousands.

    A few callers with long pauses more or less would move every rate by a tenth of it.
    """
    return [float(value) for value in rng.permutation(np.sort(drawn)[_DRAWS // 2 :: _DRAWS])]


def _looks(spec: CallSpec, hold: Piece | None, rng: np.random.Generator) -> tuple[float, ...]:
    """Evidence accumulates: a drift of d' behind an end and of about 0 behind a hold, in shares."""
    drift, variance = spec.d_prime, 1.0
    if hold is not None:
        # So that mean and variance over all holds stay what they are.
        between = spec.habits.between
        drift = -2 * spec.overlap * between if hold.inside else 2 * spec.overlap * (1 - between)
        variance -= 4 * spec.overlap**2 * between * (1 - between)
    position, last, seen = 0.0, 0.0, []
    for share in spec.shares:
        position += rng.normal(drift * (share - last), math.sqrt(variance * (share - last)))
        last = share
        seen.append(spec.d_prime * position - spec.d_prime**2 * share / 2)
    return tuple(seen)


def _heard(text: str, spec: CallSpec, vocabulary: list[str], rng: np.random.Generator) -> str:
    words = [word for word in text.split() if word not in FILLERS or rng.random() < spec.fillers_heard]
    if words and words[-1] not in FILLERS and rng.random() < spec.last_word_wrong:
        words[-1] = vocabulary[int(rng.integers(len(vocabulary)))]
    return " ".join(words)
