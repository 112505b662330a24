"""Calls as the engines heard them: turns with pieces of speech, pauses and scores, for ``simulator``.

The lengths of pauses follow the law of eot-bench (``turn_taking.endpointing.pauses``). Scores and words do
not depend on the length of a later pause. ``with_new_pauses`` therefore draws the lengths of one measured
call repeatedly, and a few hundred measured pauses give steady rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from parley.turn_taking.endpointing.pauses import PauseLaw

# Voice activity detection has reported the silence by the first; the other is that of ``policies.LOOKS_MS``.
LOOKS_MS = (160, 320)


@dataclass(frozen=True, slots=True)
class CallSpec:
    """Parameters of a set of calls.

    Attributes:
        callers: number of callers.
        turns: number of turns of each.
        looks_ms: silences at which the score is computed.
        spread: standard deviation of the logarithm of the callers' factors.
        stretch: factor on the length of all pauses; policies are tuned on 1.
        words_ms: silence after which the final words are known.
    """

    callers: int = 150
    turns: int = 20
    looks_ms: tuple[int, ...] = LOOKS_MS
    spread: float = 0.35
    stretch: float = 1.0
    words_ms: int = 200


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence of a caller and the words before it.

    Attributes:
        length_ms: of a hold. None at the end of the turn.
        log_odds: at each look, of the score alone. ``log P(score | end) / P(score | hold)``.
        said: the words of the piece.
        heard: the same words as the recogniser writes them.
        inside: true when the pause is inside a sentence, a number or an address.
        confidence: of the last recognised word, 0..1.
        voice_end: the end of the voice. None when it was not measured.
        filler_log_odds: that the piece stops on a filler by its sound. None when it was not measured.
    """

    length_ms: int | None
    log_odds: tuple[float, ...]
    said: str
    heard: str
    inside: bool = False
    confidence: float = 1.0
    voice_end: VoiceEnd | None = None
    filler_log_odds: float | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """A turn of a caller.

    Attributes:
        prompt: the bot's words before it.
        silences: holds and the end, in order.
    """

    prompt: str
    silences: tuple[Silence, ...]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """All turns of one caller.

    Attributes:
        factor: by which this caller's pauses are longer.
        hold_share: share of this caller's pauses that are holds.
        turns: in order.
    """

    factor: float
    hold_share: float
    turns: tuple[ScriptedTurn, ...]


def with_new_pauses(call: ScriptedCall, spec: CallSpec, rng: np.random.Generator) -> ScriptedCall:
    """Return the same words and scores with all lengths of pauses drawn anew, for a caller with another
    factor.
    """
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


def replayed(calls: Sequence[ScriptedCall], spec: CallSpec, *, seed: int, times: int) -> list[ScriptedCall]:
    """Return the calls ``times`` times, each time with pauses of new lengths."""
    rng = np.random.default_rng(seed)
    return [with_new_pauses(call, spec, rng) for _ in range(times) for call in calls]
