"""Conversations of one caller, composed of real utterances, with the true times of every event.

A caller is one speaker of a set. Each turn is a recording with hesitations (``hesitations``); silence
follows, in which an agent would answer. The whole goes through a condition (``conditions``), which shifts
nothing: the times of the speech are sample positions of the result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import soxr

from parley.core.media import ms_to_samples
from parley.evals.human.alignment import Aligner
from parley.evals.human.conditions import CLEAN, RATE_HZ, Condition, Surroundings
from parley.evals.human.hesitations import (
    ComposedTurn,
    HesitationLaw,
    PlacedPause,
    boundaries,
    choose,
    compose,
)
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import SpeechSet

# A caller's peak, -6 dBFS: the level of a headset microphone.
PEAK = 0.5
# A quiet room between the turns.
SILENCE_DBFS = -70.0


@dataclass(frozen=True, slots=True)
class PlacedTurn:
    """Turn in a composed call. Times are samples of it.

    Attributes:
        text: spoken words.
        utterance_id: recording from which it was made.
        first: first sample of the voice.
        end: first sample after the last sound, the true end of the turn.
        pauses: silences inside, none of which ends the turn.
    """

    text: str
    utterance_id: str
    first: int
    end: int
    pauses: tuple[PlacedPause, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ComposedCall:
    """Caller's side of a call.

    Attributes:
        samples: float32, (samples,), as they arrive.
        rate_hz: of ``samples``.
        speaker: of the turns.
        condition: name of the condition between mouth and recogniser.
        turns: in order.
    """

    samples: np.ndarray
    rate_hz: int
    speaker: str
    condition: str
    turns: tuple[PlacedTurn, ...]


class Composer:
    """Compose turns and calls of a set.

    Args:
        material: of one side of the split.
        law: of the callers' pauses.
    """

    def __init__(self, material: SpeechSet, law: HesitationLaw | None = None) -> None:
        self._material = material
        self._law = law or HesitationLaw()
        self._aligner = Aligner()
        self._surroundings = Surroundings(material)

    def turn(self, one: RecordedUtterance, rng: np.random.Generator) -> ComposedTurn:
        """Return an utterance at 16 kHz and a caller's level, with hesitations if its words are known.

        Raises:
            MediaError: the recording is silent.
        """
        lengths_ms = self._law.lengths_ms(rng)
        words = self._aligner.align(one) or ()
        cuts = choose(boundaries(one, words), len(lengths_ms), one.rate_hz, rng)
        return at_caller_rate(compose(one, cuts, lengths_ms, rng, words))

    def turns(
        self, utterances: Sequence[RecordedUtterance], count: int, rng: np.random.Generator
    ) -> Iterator[ComposedTurn]:
        """Yield ``count`` turns, every utterance once before any is repeated."""
        left: list[int] = []
        for _ in range(count):
            left = left or [int(place) for place in rng.permutation(len(utterances))]
            yield self.turn(utterances[left.pop()], rng)

    def conversation(
        self,
        utterances: Sequence[RecordedUtterance],
        rng: np.random.Generator,
        *,
        condition: Condition = CLEAN,
        answer_ms: int = 3_000,
    ) -> ComposedCall:
        """Compose a call of one speaker's utterances, in their order, with silence after each turn.

        Raises:
            ConfigError: the condition needs voices that the set lacks.
            MediaError: a recording is silent.
            ValueError: no utterance, or of more than one speaker.
        """
        speakers = {one.speaker for one in utterances}
        if len(speakers) != 1:
            raise ValueError("a caller is one speaker")
        speaker = speakers.pop()
        silence = ms_to_samples(answer_ms, RATE_HZ)
        parts, placed, length = [np.zeros(silence, np.float32)], list[PlacedTurn](), silence
        for turn in (self.turn(one, rng) for one in utterances):
            pauses = tuple(
                PlacedPause(length + each.first, length + each.end, each.place, each.words)
                for each in turn.pauses
            )
            end = length + len(turn.samples)
            placed.append(PlacedTurn(turn.utterance.text, turn.utterance.id, length, end, pauses))
            parts += [turn.samples, np.zeros(silence, np.float32)]
            length = end + silence
        said = np.concatenate(parts)
        said += (10 ** (SILENCE_DBFS / 20) * rng.standard_normal(len(said))).astype(np.float32)
        heard = self._surroundings.heard(said, condition, rng, speaker=speaker)
        return ComposedCall(heard, RATE_HZ, speaker, condition.name, tuple(placed))


def at_caller_rate(turn: ComposedTurn) -> ComposedTurn:
    """Return the turn at 16 kHz and with the peak of a caller."""
    samples = turn.samples
    if turn.rate_hz != RATE_HZ:
        samples = soxr.resample(samples, turn.rate_hz, RATE_HZ)
    peak = float(np.abs(samples).max(initial=0.0))
    scale = RATE_HZ / turn.rate_hz
    pauses = tuple(
        PlacedPause(round(each.first * scale), round(each.end * scale), each.place, each.words)
        for each in turn.pauses
    )
    loud = samples * (PEAK / peak) if peak else samples
    return ComposedTurn(turn.utterance, loud.astype(np.float32), RATE_HZ, pauses)
