"""Marks by which people show that they continue or have finished, applied to a synthetic voice.

A synthesiser ends everything alike: a fragment sounds as finished as a sentence, and a word that is cut out
of a fluent sentence has no sign of the pause after it. People mark pauses, though each mark is used only
often:

* **Length.** The last word before a silent pause inside a turn is drawn out. In Switchboard "and" lasts 305
  ms before a silence and 400 ms before "uh" or "um", 180 ms elsewhere (Liberman, Language Log 15688). The
  last word of a turn is longer too, by 80 ms against the same word of the same speaker elsewhere ("Word
  Lengthening as a Function of Utterance Position", arXiv 2606.23232, four corpora). This is less than before
  a hold (Gravano and Hirschberg 2011: reduced lengthening before a change of speaker). Both are relative to
  the word elsewhere, so the voice's own lengthening before a comma or a full stop (``Ending.lengthened``)
  counts towards them. It is assumed that every word before a hold is drawn out as "and" is, and a filler as
  the word before it.
* **Melody.** Columbia Games Corpus (Gravano 2009, table 6.1): before a change of speaker 47.2 % fall, 22.1 %
  rise high, 14.1 % rise low, 13.2 % stay level. Before a hold the shares are 24.7, 9.1, 11.5 and 29.9 %, and
  22.4 % have no boundary tone; these are the pauses inside a phrase here.
* **Loudness.** The voice is softer before a change of speaker than before a hold (the same corpus; level is a
  cue in perception too: Niebuhr, Görs and Graupe, SIGdial 2013). The amount is assumed here.

``strength`` scales all marks at once: 1 is as above, 0 leaves the synthesiser's own. Each pause draws its own
share of it. The effect on a model that listens has to be measured, in each voice (``renderings``).
"""

import math
from dataclasses import dataclass

import numpy as np

from parley.turn_taking.endpointing.evidence_pitch import FINAL_MS
from research.turn_taking.psola import resynthesise

# Factor of the length before a silence, and before a filler, relative to elsewhere.
DRAWN_OUT, BEFORE_FILLER = 305 / 180, 400 / 180
# Lengthening at the end of a turn.
TURN_FINAL_MS = 80
# Standard deviation of the logarithm of the strength of each mark: some pauses are hardly marked.
SPREAD = 0.5
# Movement of a melody in semitones; these values for the labels "high" and "low" are assumed.
MOVES = {"fall": -5.0, "high rise": 5.0, "low rise": 2.5, "level": 0.0}
AT_END = {"fall": 0.472, "high rise": 0.221, "low rise": 0.141, "level": 0.132}
AT_HOLD = {"fall": 0.247, "high rise": 0.091, "low rise": 0.115, "level": 0.299}
SOFTER_DB = 4.0
LONGEST_STRETCH = 4.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Properties of the end of a piece.

    Attributes:
        end: true when it ends the turn.
        inside: true when it stops inside a sentence. No melody marks it then.
        filler: true when its last word is a filler.
        last_word_ms: length of the last word, as the voice speaks it.
        lengthened: factor by which the voice itself lengthens it.
    """

    end: bool
    inside: bool
    filler: bool
    last_word_ms: int
    lengthened: float = 1.0

    def drawn_out(self, strength: float) -> float:
        """Return the factor by which the last word is to be lengthened at this strength."""
        if self.end:
            times = 1 + TURN_FINAL_MS * strength * self.lengthened / self.last_word_ms
        else:
            times = (BEFORE_FILLER if self.filler else DRAWN_OUT) ** strength
        # The voice's own lengthening is never undone.
        return min(LONGEST_STRETCH, max(1.0, times / self.lengthened))


def marked(
    sound: np.ndarray, rate_hz: int, ending: Ending, strength: float, rng: np.random.Generator
) -> np.ndarray:
    """Return ``sound`` with the marks of its ending: float32, (samples,), possibly a little longer.

    The same random draws are taken at every strength, so that two strengths mark the same pauses.
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
