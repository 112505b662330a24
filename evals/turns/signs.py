"""Evidence at each pause of a call, as the product's predictor of ends gets it."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from parley.evals.turns.callers import LOOKS_MS, ScriptedCall
from parley.language import find_language
from parley.turn_taking.endpointing.end_predictor import PauseSigns
from parley.turn_taking.endpointing.evidence_voice import CallerVoiceAverage


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a pause.

    Attributes:
        signs: evidence at the look.
        end: true when it was the end of the turn.
        look: index of the look.
    """

    signs: PauseSigns
    end: bool
    look: int


def looks(calls: Iterable[ScriptedCall]) -> Iterator[Look]:
    """Yield every look at every pause."""
    for call in calls:
        own = CallerVoiceAverage()
        for turn in call.turns:
            asked, text = find_language("en").cues.asked_for(turn.prompt), ""
            for silence in turn.silences:
                text = f"{text} {silence.heard}".strip()
                voice = own.signs(silence.voice_end) if silence.voice_end is not None else None
                for look, odds in enumerate(silence.log_odds):
                    signs = PauseSigns(
                        text,
                        asked,
                        silence.confidence,
                        probability(odds),
                        silence.filler_log_odds,
                        LOOKS_MS[look],
                        voice,
                    )
                    yield Look(signs, silence.length_ms is None, look)
                if silence.voice_end is not None:
                    own.on_voice_end(silence.voice_end)


def probability(log_odds: float) -> float:
    """Return the probability of an end, when ends and holds are equally frequent."""
    return 1 / (1 + math.exp(-log_odds))
