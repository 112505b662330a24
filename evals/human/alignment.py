"""Forced alignment of the words of a recording with known text, by PocketSphinx, English only.

The dictionary's words are aligned to the sound (its acoustic model, no language model). Each boundary between
two words is then moved to the quietest moment near it, so that a cut there is not audible. A text with a word
that the dictionary lacks is not aligned.
"""

from dataclasses import dataclass

import numpy as np
from pocketsphinx import Decoder

from parley.core.media import float_to_pcm16, ms_to_samples
from parley.evals.human.recordings import RecordedUtterance
from parley.language import text_rules

RATE_HZ = 16_000
FRAME_SAMPLES = 160
# The aligner counts in 10 ms; the quietest moment is searched for this far to both sides.
SEARCH_MS = 40
POWER_WINDOW_MS = 10


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """Written word and its place in the sound.

    Attributes:
        written: as in the text, with its punctuation.
        first: first sample of it, at the rate of the recording.
        end: first sample after it.
    """

    written: str
    first: int
    end: int


class Aligner:
    """PocketSphinx with its acoustic model and dictionary. Not thread-safe."""

    def __init__(self) -> None:
        self._decoder = Decoder(lm=None, bestpath=False, backtrace=False, loglevel="FATAL")

    def align(self, one: RecordedUtterance) -> tuple[AlignedWord, ...] | None:
        """Return the words of an utterance; None when it is not English or cannot be aligned."""
        said = text_rules("en").spoken_words(one.text) if one.language == "en" else ()
        tokens = [[token.lower() for token in word.spoken] for word in said]
        flat = [token for word in tokens for token in word]
        if not flat or any(self._decoder.lookup_word(token) is None for token in flat):
            return None
        frames = self._frames(" ".join(flat), one)
        if frames is None or len(frames) != len(flat):
            return None
        words, at = [], 0
        for word, spoken in zip(said, tokens, strict=True):
            first, end = frames[at][0], frames[at + len(spoken) - 1][1]
            at += len(spoken)
            scale = FRAME_SAMPLES * one.rate_hz / RATE_HZ
            words.append(AlignedWord(word.written, round(first * scale), round(end * scale)))
        return tuple(words)

    def _frames(self, text: str, one: RecordedUtterance) -> list[tuple[int, int]] | None:
        """Return the first frame and the one after the last of each token."""
        try:
            self._decoder.set_align_text(text)
            self._decoder.start_utt()
            self._decoder.process_raw(float_to_pcm16(one.at_rate(RATE_HZ)), full_utt=True)
            self._decoder.end_utt()
            segments = list(self._decoder.seg() or ())
        except RuntimeError:
            # No path through the sound: the recording has other words than the text.
            return None
        return [(s.start_frame, s.end_frame + 1) for s in segments if not s.word.startswith("<")]


def quietest(samples: np.ndarray, rate_hz: int, first: int, end: int) -> int:
    """Return the middle of the quietest ``POWER_WINDOW_MS`` near a boundary.

    Args:
        samples: float32, (samples,).
        rate_hz: of the samples.
        first: begin of the gap between two words.
        end: end of the gap; may equal ``first``.
    """
    margin, window = ms_to_samples(SEARCH_MS, rate_hz), ms_to_samples(POWER_WINDOW_MS, rate_hz)
    start = max(0, first - margin)
    heard = samples[start : min(len(samples), end + margin)].astype(np.float64)
    if len(heard) <= window:
        return (first + end) // 2
    energy = np.concatenate(([0.0], np.cumsum(heard**2)))
    powers = energy[window:] - energy[:-window]
    return start + int(np.argmin(powers)) + window // 2
