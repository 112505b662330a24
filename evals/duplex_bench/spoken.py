"""Speech of a bot in a clip: stretches of voice and words, and who has the floor by them.

The rules are those of Full-Duplex-Bench v1. A turn is a second of talk or more than three words. A stretch of
less than a second with two words at most is a backchannel. Words are the engine's own if it writes any, each
at its place in the audio; an engine that writes none is judged by its voice alone (``Evidence``). Stretches
of voice are those that Silero finds in the bot's output, as in the benchmark, or those that are audible.

Pure except for the detector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from parley.audio.audible import audible_spans
from parley.models.vad import VoiceActivityDetector

RATE_HZ = 16_000
TURN_MS, TURN_WORDS = 1_000, 3
BACKCHANNEL_MS, BACKCHANNEL_WORDS = 1_000, 2
# Silero on recordings: probability of a voice, silence that separates two, the shortest voice. A gate of the
# product would miss a hum of 200 ms.
VOICE, GAP_MS, SHORTEST_MS = 0.5, 100, 96
AUDIBLE_GAP_MS = 200
# Stretches that are no further apart are one talk.
TALK_GAP_MS = 500


class Evidence(Enum):
    """Evidence by which a system is judged."""

    WORDS = "words"
    VOICE = "voice"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of voice, in ms from the beginning of the clip."""

    began_ms: int
    ended_ms: int

    @property
    def length_ms(self) -> int:
        """Length of the stretch."""
        return self.ended_ms - self.began_ms


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its time in the audio, in ms from the beginning of the clip."""

    text: str
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Spoken:
    """Output of the bot in a clip.

    Attributes:
        length_ms: of the clip.
        segments: stretches of voice, in order.
        words: in order. None from an engine that writes none in any clip.
    """

    length_ms: int
    segments: tuple[Segment, ...]
    words: tuple[Word, ...] | None = None

    def since(self, at_ms: int) -> "Spoken":
        """Return the output from a moment on; a stretch that is under way begins there."""
        segments = tuple(
            Segment(max(at_ms, each.began_ms), each.ended_ms)
            for each in self.segments
            if each.ended_ms > at_ms
        )
        words = self.words
        return Spoken(
            self.length_ms,
            segments,
            None if words is None else tuple(word for word in words if word.began_ms >= at_ms),
        )

    def joined(self, gap_ms: int) -> tuple[Segment, ...]:
        """Return the stretches with gaps of up to ``gap_ms`` closed."""
        joined: list[Segment] = []
        for each in self.segments:
            if joined and each.began_ms - joined[-1].ended_ms <= gap_ms:
                joined[-1] = Segment(joined[-1].began_ms, each.ended_ms)
            else:
                joined.append(each)
        return tuple(joined)

    def words_in(self, segment: Segment) -> int | None:
        """Return the number of words that begin in a stretch; None when words are not known."""
        if self.words is None:
            return None
        return sum(segment.began_ms <= word.began_ms < segment.ended_ms for word in self.words)


def takes_turn(spoken: Spoken) -> bool:
    """Return whether this is a turn: a second of talk, first to last, or more than three words."""
    if spoken.words is None:
        spans = [(each.began_ms, each.ended_ms) for each in spoken.segments]
    else:
        spans = [(word.began_ms, word.ended_ms) for word in spoken.words]
    if not spans:
        return False
    return spans[-1][1] - spans[0][0] >= TURN_MS or len(spoken.words or ()) > TURN_WORDS


def is_backchannel(segment: Segment, words: int | None) -> bool:
    """Return whether a stretch is a listener's: short, and of a word or two."""
    return segment.length_ms < BACKCHANNEL_MS and (words or 0) <= BACKCHANNEL_WORDS


def first_talk(spoken: Spoken, *, gap_ms: int = TALK_GAP_MS) -> Segment | None:
    """Return the first stretch that is more than a backchannel, with short gaps closed; None without one."""
    for each in spoken.joined(gap_ms):
        if not is_backchannel(each, spoken.words_in(each)):
            return each
    return None


Segmenter = Callable[[np.ndarray], tuple[Segment, ...]]


def by_silero(vad: VoiceActivityDetector) -> Segmenter:
    """Return a segmenter by the detector, for float32, (samples,), 16 kHz, in [-1, 1]."""

    def segments(audio: np.ndarray) -> tuple[Segment, ...]:
        stream, window = vad.open_stream(), vad.window_samples
        voiced = [
            stream.probability(audio[at : at + window]) >= VOICE
            for at in range(0, len(audio) - window + 1, window)
        ]
        runs = _runs(voiced)
        scale = 1000 * window / vad.rate_hz
        found = tuple(Segment(round(first * scale), round(last * scale)) for first, last in runs)
        joined = Spoken(0, found).joined(GAP_MS)
        return tuple(each for each in joined if each.length_ms >= SHORTEST_MS)

    return segments


def by_level(audio: np.ndarray) -> tuple[Segment, ...]:
    """Return the stretches that are audible, of float32, (samples,), 16 kHz."""
    found = tuple(
        Segment(span.first * 1000 // RATE_HZ, (span.last + 1) * 1000 // RATE_HZ)
        for span in audible_spans(audio, RATE_HZ)
    )
    return Spoken(0, found).joined(AUDIBLE_GAP_MS)


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return (first, after the last) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], np.asarray(flags, bool), [False])).astype(int)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]
