"""How people mark that they go on, or that they are done, put into a synthetic voice.

A synthesiser ends everything alike: a fragment sounds as finished as a sentence, and a word that is cut out
of a fluent sentence has no sign of the pause behind it. People mark pauses, though each mark only often:

* **Length.** The last word before a silent pause inside a turn is drawn out: in Switchboard "and" lasts 305
  ms before a silence and 400 ms before "uh" or "um", 180 ms elsewhere (Liberman, Language Log 15688). The
  last word of a turn is longer too, by 80 ms against the same word of the same speaker elsewhere ("Word
  Lengthening as a Function of Utterance Position", arXiv 2606.23232, four corpora), so less than before a
  hold (Gravano and Hirschberg 2011: reduced lengthening before a change of speaker). Both are against the
  word elsewhere: what a voice lengthens by itself before a comma or a full stop (``Ending.lengthened``)
  counts towards it. That every word before a hold is drawn out as "and" is, and a filler as the word before
  it, is assumed.
* **Melody.** Columbia Games Corpus (Gravano 2009, table 6.1): before a change of speaker 47.2 % fall, 22.1 %
  rise high, 14.1 % rise low, 13.2 % stay level; before a hold 24.7, 9.1, 11.5 and 29.9 %, and 22.4 % have no
  boundary tone, which are the pauses inside a phrase here.
* **Loudness.** The voice is softer before a change of speaker than before a hold (the same corpus; level is
  a cue in perception too: Niebuhr, Görs and Graupe, SIGdial 2013). How much is assumed here.

``strength`` scales all marks at once: 1 is as above, 0 leaves the synthesiser's own. Each pause draws its own
share of it. What a listening model makes of it has to be measured, in each voice (``renderings``).
"""

import math
from dataclasses import dataclass

import numpy as np

from evals.turns.psola import resynthesise
from turn_taking.evidence_pitch import FINAL_MS

# As many times as long before a silence, and before a filler, as elsewhere.
DRAWN_OUT, BEFORE_FILLER = 305 / 180, 400 / 180
# Longer than elsewhere by so much at the end of a turn.
TURN_FINAL_MS = 80
# Standard deviation of the logarithm of the strength of each mark: some pauses are hardly marked.
SPREAD = 0.5
# How far a melody moves, in semitones: "high" and "low" of the labels are assumed to be these.
MOVES = {"fall": -5.0, "high rise": 5.0, "low rise": 2.5, "level": 0.0}
AT_END = {"fall": 0.472, "high rise": 0.221, "low rise": 0.141, "level": 0.132}
AT_HOLD = {"fall": 0.247, "high rise": 0.091, "low rise": 0.115, "level": 0.299}
SOFTER_DB = 4.0
LONGEST_STRETCH = 4.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a piece ends.

    Attributes:
        end: it ends the turn.
        inside: it stops inside a sentence: no melody marks it.
        filler: its last word is a filler.
        last_word_ms: length of the last word, as the voice speaks it.
        lengthened: how many times as long as elsewhere the voice speaks it by itself.
    """

    end: bool
    inside: bool
    filler: bool
    last_word_ms: int
    lengthened: float = 1.0

    def drawn_out(self, strength: float) -> float:
        """How many times as long the last word is to be, for one of this strength."""
        if self.end:
            times = 1 + TURN_FINAL_MS * strength * self.lengthened / self.last_word_ms
        else:
            times = (BEFORE_FILLER if self.filler else DRAWN_OUT) ** strength
        # What the voice does by itself is never taken back.
        return min(LONGEST_STRETCH, max(1.0, times / self.lengthened))


def marked(
    sound: np.ndarray, rate_hz: int, ending: Ending, strength: float, rng: np.random.Generator
) -> np.ndarray:
    """``sound`` with the marks of its ending: float32, (samples,), a little longer perhaps.

    The same draws are taken whatever the strength, so that two strengths mark the same pauses.
    """
    melody = _pick(AT_END if ending.end else AT_HOLD, rng)
    own = strength * math.exp(rng.normal(0, SPREAD))
    if strength == 0:
        return sound
    moved = sound if ending.inside else _moved(sound, rate_hz, melody, own)
    drawn = _drawn_out(moved, rate_hz, ending.last_word_ms, ending.drawn_out(own))
    return _softer(drawn, rate_hz, own) if ending.end else drawn


def _drawn_out(sound: np.ndarray, rate_hz: int, last_word_ms: int, factor: float) -> np.ndarray:
    word = min(len(sound), last_word_ms * rate_hz // 1000)
    before = len(sound) - word
    samples = before + round(word * factor)
    return resynthesise(
        sound,
        rate_hz,
        samples,
        lambda at: at if at < before else before + (at - before) / factor,
        lambda _place: 1.0,
    )


def _moved(sound: np.ndarray, rate_hz: int, melody: str, strength: float) -> np.ndarray:
    semitones = MOVES[melody] * strength
    if not semitones:
        return sound
    tail = min(len(sound), FINAL_MS * rate_hz // 1000)
    before = len(sound) - tail
    return resynthesise(
        sound,
        rate_hz,
        len(sound),
        lambda at: at,
        lambda place: 2 ** (semitones * max(0.0, place - before) / tail / 12),
    )


def _softer(sound: np.ndarray, rate_hz: int, strength: float) -> np.ndarray:
    tail = min(len(sound), FINAL_MS * rate_hz // 1000)
    gain = np.ones(len(sound), np.float32)
    gain[len(sound) - tail :] = 10 ** (-np.linspace(0, SOFTER_DB * strength, tail) / 20)
    return sound * gain


def _pick(shares: dict[str, float], rng: np.random.Generator) -> str:
    kinds = list(shares)
    weights = np.array([shares[kind] for kind in kinds])
    return kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
