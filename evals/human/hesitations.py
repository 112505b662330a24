"""Hesitations: places at which a caller stops to think inside a turn, and their lengths.

A recording is cut between two words and continues after a silence. The places are those at which people
pause: between sentences, between clauses, and inside a clause after a function word, before the word that the
speaker searches for. Of the pauses inside a turn, 55 % are at grammatical junctures (Goldman-Eisler 1968, as
commonly cited) if the recording has any. Lengths follow the law of the hold pauses of eot-bench
(``turn_taking.endpointing.pauses``), stretched by a log-normal factor of each turn, as callers differ. A turn
has as many pauses as eot-bench has holds for each end.

The voice before a cut is that of fluent speech: it is not lengthened and its pitch does not stay up, as it
does when people hesitate. A model that uses the voice alone has a harder task here than with people.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from parley.core.media import ms_to_samples
from parley.evals.human.alignment import AlignedWord, quietest
from parley.evals.human.recordings import RecordedUtterance, edges_of, rule_for
from parley.turn_taking.endpointing.pauses import HOLD_SHARE, LONGEST_MS, PauseLaw

JUNCTURE_SHARE = 0.55
# A piece of speech between two cuts, or before the first one, is at least this long.
SHORTEST_PIECE_MS = 250
FADE_MS = 8
# Sound this far from the first and the last word still belongs to them.
EDGE_MS = 120
TONE_MS = 60
_SENTENCE_MARKS, _CLAUSE_MARKS = ".?!;", ",:"
_CLAUSE_WORDS = frozenset(
    "and or but if when because so that which who whose where while then unless until after before".split()
)
_FUNCTION_WORDS = frozenset(
    "a an the this that these those my your his her its our their some any no each every to of in on at for"
    " with by from about into over under as than is are was were be been has have had do does did will would"
    " can could may might must shall should not and or but if when because so i you he she it we they".split()
)


class PausePlace(Enum):
    """Kind of boundary at which a turn is interrupted by a pause."""

    SENTENCE = "between sentences"
    CLAUSE = "between clauses"
    PHRASE = "inside a clause"


@dataclass(frozen=True, slots=True)
class Boundary:
    """Possible pause.

    Attributes:
        at: sample of the recording at which it is cut.
        place: kind of boundary.
        words: words of the text before it.
    """

    at: int
    place: PausePlace
    words: int


@dataclass(frozen=True, slots=True)
class HesitationLaw:
    """Law of the number and the lengths of pauses.

    Attributes:
        per_turn: mean number of pauses in a turn, by a geometric law.
        spread: standard deviation of the logarithm of the factor of a turn.
        longest_ms: longer draws are repeated.
    """

    per_turn: float = HOLD_SHARE / (1 - HOLD_SHARE)
    spread: float = 0.35
    longest_ms: int = LONGEST_MS

    def lengths_ms(self, rng: np.random.Generator) -> list[int]:
        """Draw the pauses of one turn."""
        count = int(rng.geometric(1 / (1 + self.per_turn))) - 1
        law = PauseLaw(scale=math.exp(rng.normal(0, self.spread)))
        lengths: list[int] = []
        while len(lengths) < count:
            length = round(law.sample(rng))
            if length <= self.longest_ms:
                lengths.append(length)
        return lengths


@dataclass(frozen=True, slots=True)
class PlacedPause:
    """Silence inside a turn, in samples of it.

    Attributes:
        first: first silent sample.
        end: first sample of the voice that continues.
        place: kind of boundary. None for a silence of the recording itself.
        words: number of words of the text before it. None when they are not known.
    """

    first: int
    end: int
    place: PausePlace | None
    words: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ComposedTurn:
    """Turn of a caller, pauses included.

    Attributes:
        utterance: the recording from which it was made.
        samples: float32, (samples,), from the first sound to the last one.
        rate_hz: of ``samples``.
        pauses: silences inside, in order.
    """

    utterance: RecordedUtterance
    samples: np.ndarray
    rate_hz: int
    pauses: tuple[PlacedPause, ...]

    @property
    def longest_pause_ms(self) -> int:
        """Length of the longest silence inside, 0 without one."""
        return max(((pause.end - pause.first) * 1000 // self.rate_hz for pause in self.pauses), default=0)


def boundaries(one: RecordedUtterance, words: Sequence[AlignedWord]) -> tuple[Boundary, ...]:
    """Return the places at which the recording may be cut, in order.

    Raises:
        MediaError: the recording is silent.
    """
    begin, finish = speech_span(one, words)
    shortest, found = ms_to_samples(SHORTEST_PIECE_MS, one.rate_hz), []
    for count, (word, following) in enumerate(zip(words, words[1:], strict=False), start=1):
        place = _place(word.written, following.written)
        at = quietest(one.samples, one.rate_hz, word.end, following.first)
        if place is not None and begin + shortest <= at <= finish - shortest:
            found.append(Boundary(at, place, count))
    return tuple(found)


def _place(word: str, following: str) -> PausePlace | None:
    if word[-1] in _SENTENCE_MARKS:
        return PausePlace.SENTENCE
    if word[-1] in _CLAUSE_MARKS or following.strip("\"'(").lower() in _CLAUSE_WORDS:
        return PausePlace.CLAUSE
    return PausePlace.PHRASE if word.strip("\"'(").lower() in _FUNCTION_WORDS else None


def choose(
    places: Sequence[Boundary], count: int, rate_hz: int, rng: np.random.Generator
) -> tuple[Boundary, ...]:
    """Draw up to ``count`` boundaries, ``JUNCTURE_SHARE`` of them at junctures if there are any."""
    left, taken = list(places), list[Boundary]()
    apart = ms_to_samples(SHORTEST_PIECE_MS, rate_hz)
    for _ in range(count):
        junctures = [place for place in left if place.place is not PausePlace.PHRASE]
        inside = [place for place in left if place.place is PausePlace.PHRASE]
        kind = junctures if rng.random() < JUNCTURE_SHARE else inside
        pool = kind or junctures or inside
        if not pool:
            break
        one = pool[int(rng.integers(len(pool)))]
        taken.append(one)
        left = [place for place in left if abs(place.at - one.at) >= apart]
    return tuple(sorted(taken, key=lambda place: place.at))


def compose(
    one: RecordedUtterance,
    cuts: Sequence[Boundary],
    lengths_ms: Sequence[int],
    rng: np.random.Generator,
    words: Sequence[AlignedWord] = (),
) -> ComposedTurn:
    """Insert silences into a recording; ``words`` are its own, if they are known.

    A silence of the recording at the place of a cut becomes part of the pause. The pause then has the drawn
    length, or that of the recording's own silence if it is longer.

    Raises:
        MediaError: the recording is silent.
    """
    begin, finish = speech_span(one, words)
    parts: list[np.ndarray] = []
    pauses: list[PlacedPause] = []
    length, at = 0, begin
    own = [pause for pause in one.pauses if begin <= pause.first and pause.end <= finish]

    def speak(until: int) -> None:
        nonlocal length, at
        for pause in own:
            if at <= pause.first and pause.end <= until:
                first, end = length + pause.first - at, length + pause.end - at
                before = sum((word.first + word.end) // 2 <= pause.first for word in words)
                pauses.append(PlacedPause(first, end, None, before if words else None))
        # Without a fade a cut voice would click.
        parts.append(_faded(one.samples[at:until], one.rate_hz, first=at > begin, last=until < finish))
        length += until - at
        at = until

    for cut, length_ms in zip(cuts, lengths_ms, strict=False):
        around = next((pause for pause in own if pause.first <= cut.at <= pause.end), None)
        stop, resume = (around.first, around.end) if around else (cut.at, cut.at)
        speak(stop)
        wanted = max(ms_to_samples(length_ms, one.rate_hz), resume - stop)
        parts.append(room_tone(one, wanted, rng))
        pauses.append(PlacedPause(length, length + wanted, cut.place, cut.words))
        length, at = length + wanted, resume
    speak(finish)
    return ComposedTurn(one, np.concatenate(parts).astype(np.float32), one.rate_hz, tuple(pauses))


def speech_span(one: RecordedUtterance, words: Sequence[AlignedWord]) -> tuple[int, int]:
    """Return the first sample of the speech and the first one after it.

    Sound far from every word is not speech: a click, or the end of the sentence before.

    Raises:
        MediaError: nothing is audible there.
    """
    if not words:
        return edges_of(one.samples, one.rate_hz)
    margin = ms_to_samples(EDGE_MS, one.rate_hz)
    start = max(0, words[0].first - margin)
    near = one.samples[start : words[-1].end + margin]
    first, end = edges_of(near, one.rate_hz, rule_for(one.samples, one.rate_hz))
    return start + first, start + end


def room_tone(one: RecordedUtterance, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return noise with the spectrum of the recording's quietest moment: float32, (samples,)."""
    size = min(ms_to_samples(TONE_MS, one.rate_hz), len(one.samples))
    energy = np.concatenate(([0.0], np.cumsum(one.samples.astype(np.float64) ** 2)))
    start = int(np.argmin(energy[size:] - energy[:-size]))
    quiet = one.samples[start : start + size] * np.hanning(size)
    spectrum = np.abs(np.fft.rfft(quiet, size))
    power = float(np.mean(one.samples[start : start + size].astype(np.float64) ** 2))
    hertz = np.fft.rfftfreq(max(samples, 2))
    shape = np.interp(hertz, np.fft.rfftfreq(size), spectrum)
    noise = np.fft.irfft(shape * np.fft.rfft(rng.standard_normal(max(samples, 2))), max(samples, 2))[:samples]
    level = math.sqrt(float(np.mean(noise**2))) if samples else 0.0
    return (noise * (math.sqrt(power) / level) if level else noise).astype(np.float32)


def _faded(samples: np.ndarray, rate_hz: int, *, first: bool, last: bool) -> np.ndarray:
    size = min(ms_to_samples(FADE_MS, rate_hz), len(samples))
    ramp, faded = np.linspace(0.0, 1.0, size, dtype=np.float32), samples.copy()
    if first:
        faded[:size] *= ramp
    if last:
        faded[len(faded) - size :] *= ramp[::-1]
    return faded
