"""Scripted callers: complete turns with words, pauses and scores, drawn from a seed.

Each caller has a factor that stretches all of their pauses (log-normal, ``spread``) and a share of pauses
that are holds (Beta around the general one). A turn has a number of holds before the last silence, which is
its end; the words come from ``texts``.

A score measures how complete the turn sounds. It is Gaussian evidence of sensitivity d'. Part of it is there
at the first look and all of it at the last, as for a model that runs again with more silence. The model's
score also depends on the words: after a hold inside a sentence it is lower than after a hold between
sentences, by ``overlap`` on both sides of the mean. A recogniser writes the words, loses some fillers and
mistakes some last words. A policy sees the evidence that has arrived by its decision, never the kind of the
silence.

The law of pauses and the share of holds are those of eot-bench (``turn_taking.endpointing.pauses``). The rest
is assumed, marked as such, and swept.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.evals.turns.texts import sentences
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.pauses import HOLD_SHARE, PauseLaw
from research.turn_taking.simulated_texts import FILLERS, PauseHabits, Piece, script

# Bounds, because a caller needs both holds and ends.
LEAST_SHARE, MOST_SHARE = 0.1, 0.9
_DRAWS = 64
FILLER_LOG_ODDS = EndpointTuning().filler_log_odds
# Seed of all calls on which something is fitted; reports have others.
TUNING_SEED = 1_001


@dataclass(frozen=True, slots=True)
class SimulationSpec(CallSpec):
    """Parameters of the generated calls.

    Attributes:
        d_prime: sensitivity of the score with all of its evidence.
        shares: of the evidence (of d' squared) by each look; the last is 1.
        overlap: see the module, in standard deviations of the score; below 1.
        share_weight: of the Beta law of the callers' shares of holds; infinite makes all alike.
        fillers_heard: share of fillers that the recogniser writes.
        last_word_wrong: share of last words that it mistakes for another.
        held_out: true to use the sentences on which nothing was fitted.
        habits: places where the pauses fall.
    """

    d_prime: float = 2.0
    shares: tuple[float, ...] = (0.8, 1.0)
    overlap: float = 0.5
    share_weight: float = 20.0
    fillers_heard: float = 0.5
    last_word_wrong: float = 0.1
    held_out: bool = False
    habits: PauseHabits = PauseHabits()


def is_filler(silence: Silence) -> bool:
    """Return whether a piece stops on a filler, by its sound and the default threshold of the product."""
    heard, least = silence.filler_log_odds, FILLER_LOG_ODDS
    return heard is not None and least is not None and heard >= least


def generate(spec: SimulationSpec, seed: int) -> Iterator[ScriptedCall]:
    """Yield callers in order; the same for the same seed."""
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


def recognised(calls: Sequence[ScriptedCall]) -> dict[str, float]:
    """Return the word error rate and the share of correct last words, without fillers."""
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
    """Return the smallest number of replaced, dropped and inserted words (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for place, word in enumerate(said, start=1):
        before, row[0] = row[0], place
        for other, candidate in enumerate(heard, start=1):
            before, row[other] = (
                row[other],
                min(row[other] + 1, row[other - 1] + 1, before + (word != candidate)),
            )
    return row[-1]


def _factors(spec: SimulationSpec, rng: np.random.Generator) -> list[float]:
    return [
        spec.stretch * math.exp(log)
        for log in _spread_out(rng.normal(0, spec.spread, _DRAWS * spec.callers), rng)
    ]


def _shares(spec: SimulationSpec, rng: np.random.Generator) -> list[float]:
    if math.isinf(spec.share_weight):
        return [HOLD_SHARE] * spec.callers
    # This mean makes the general share of all pauses holds: a caller with more holds has more pauses.
    holds = HOLD_SHARE * (spec.share_weight - 1)
    drawn = rng.beta(holds, spec.share_weight - holds, _DRAWS * spec.callers)
    return _spread_out(np.clip(drawn, LEAST_SHARE, MOST_SHARE), rng)


def _spread_out(drawn: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return the median of each ``_DRAWS`` neighbours, in random order.

    A hundred callers then follow the law of thousands. Without this, a few callers with long pauses would
    change every rate by a tenth.
    """
    return [float(value) for value in rng.permutation(np.sort(drawn)[_DRAWS // 2 :: _DRAWS])]


def _looks(spec: SimulationSpec, hold: Piece | None, rng: np.random.Generator) -> tuple[float, ...]:
    """Draw the score at each look: it drifts by d' after an end and by about 0 after a hold, in shares."""
    drift, variance = spec.d_prime, 1.0
    if hold is not None:
        # Keeps mean and variance over all holds unchanged.
        between = spec.habits.between
        drift = -2 * spec.overlap * between if hold.inside else 2 * spec.overlap * (1 - between)
        variance -= 4 * spec.overlap**2 * between * (1 - between)
    position, last, seen = 0.0, 0.0, []
    for share in spec.shares:
        position += rng.normal(drift * (share - last), math.sqrt(variance * (share - last)))
        last = share
        seen.append(spec.d_prime * position - spec.d_prime**2 * share / 2)
    return tuple(seen)


def _heard(text: str, spec: SimulationSpec, vocabulary: list[str], rng: np.random.Generator) -> str:
    words = [word for word in text.split() if word not in FILLERS or rng.random() < spec.fillers_heard]
    if words and words[-1] not in FILLERS and rng.random() < spec.last_word_wrong:
        words[-1] = vocabulary[int(rng.integers(len(vocabulary)))]
    return " ".join(words)
