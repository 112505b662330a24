"""What a recording says about how far a reply was heard. Pure: arrays and times in, positions out.

The voice is deterministic: the same clauses give the same samples. The end of what the caller heard is looked
for in the reply's own audio by normalised cross-correlation; where it fits best is how far the reply was
heard, whatever happened to the sound before it. Positions are samples at 16 kHz.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audio.audible import audible_spans
from core.media import WordTime, ms_to_samples, pcm16_to_float, samples_to_ms
from models.tts import SpeechPiece, TextToSpeech
from models.tts.clauses import ClauseSettings, split_clauses

RATE_HZ = 16_000
# The end of the heard sound that is looked for, with the fit that it needs; the shorter one is for an end
# with a gap in it. Of 40 cut replies that went through the codec the longer one fitted with 0.72 and more, of
# 30 other replies none fitted better than 0.33; the shorter one with 0.66 against 0.61.
TAILS_MS = ((400, 0.5), (200, 0.65))
# The least that can be told apart.
MIN_TAIL_MS = 60
# How far the end may lie from where the beginning says: frames that came late are heard as gaps.
SEARCH_MS = 700


@dataclass(frozen=True, slots=True)
class Reference:
    """A reply as the voice makes it.

    Attributes:
        audio: float32, (samples,), 16 kHz.
        words: on the reply's own time line.
    """

    audio: np.ndarray
    words: tuple[WordTime, ...]

    def words_until(self, position: int, due_percent: int) -> int:
        """How many words were heard when this much of the audio was."""
        return sum(_due_samples(word, due_percent) <= position for word in self.words)

    def audible_until(self, position: int) -> int:
        """The last audible sample at or before a position, 0 when there is none."""
        spans = audible_spans(self.audio[: max(0, position)], RATE_HZ)
        return spans[-1].last if spans else 0


@dataclass(frozen=True, slots=True)
class Heard:
    """How far a reply was heard.

    Attributes:
        samples: position in the reply's audio of the last audible sample that was heard.
        fit: how well the end of the heard sound fits there, 0..1.
    """

    samples: int
    fit: float


def reference(
    voice: TextToSpeech, clauses: Sequence[str], settings: ClauseSettings | None = None
) -> Reference:
    """Speak the clauses of a reply, as the server's voice does: each by itself, one behind the other."""
    settings = settings or ClauseSettings()
    audio = bytearray()
    words: list[WordTime] = []
    for clause in clauses:
        whole = len(clause) <= settings.max_chars
        for piece in [clause] if whole else split_clauses(clause, settings):
            spoken, times = _speak(voice, piece)
            at_ms = len(audio) // 2 * 1000 // RATE_HZ
            words.extend(WordTime(w.text, at_ms + w.start_ms, at_ms + w.end_ms) for w in times)
            audio += spoken
    return Reference(pcm16_to_float(bytes(audio)), tuple(words))


def locate(said: Reference, heard: np.ndarray) -> Heard | None:
    """Find the end of what was heard in the reply; None when it is not of this reply.

    heard: float32, (samples,), 16 kHz, from the first to the last audible sample of the reply.
    """
    for tail_ms, needed_fit in TAILS_MS:
        end = _locate_tail(said.audio, heard, ms_to_samples(tail_ms, RATE_HZ))
        if end is not None and end.fit >= needed_fit:
            return end
    return None


def _locate_tail(audio: np.ndarray, heard: np.ndarray, samples: int) -> Heard | None:
    tail = _sharp(heard)[-samples:]
    spans = audible_spans(audio, RATE_HZ)
    if not spans or tail.size < ms_to_samples(MIN_TAIL_MS, RATE_HZ):
        return None
    expected = spans[0].first + heard.size - tail.size
    reach = ms_to_samples(SEARCH_MS, RATE_HZ)
    start = max(0, expected - reach)
    # Silence behind the reply: a codec rings out, and the end may lie a little behind the last sample.
    padded = np.concatenate((_sharp(audio), np.zeros(tail.size, np.float32)))
    window = padded[start : expected + reach + tail.size]
    if window.size < tail.size:
        return None
    fits = _fits(window, tail)
    best = int(np.argmax(fits))
    return Heard(min(start + best + tail.size, audio.size), float(fits[best]))


def _sharp(sound: np.ndarray) -> np.ndarray:
    """The differences of neighbours: otherwise the pitch decides, and any two vowels of a voice are alike."""
    return np.diff(sound, prepend=np.float32(0)).astype(np.float32)


def _fits(window: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """Normalised cross-correlation at every place where the tail lies in the window."""
    size = window.size + tail.size
    spectrum = np.fft.rfft(window, size) * np.conj(np.fft.rfft(tail, size))
    products = np.fft.irfft(spectrum, size)[: window.size - tail.size + 1]
    energy = np.concatenate(([0.0], np.cumsum(window.astype(np.float64) ** 2)))
    lengths = np.sqrt(np.maximum(energy[tail.size :] - energy[: -tail.size], 1e-6))
    return np.asarray(products / (lengths * max(float(np.linalg.norm(tail)), 1e-6)))


def _speak(voice: TextToSpeech, text: str) -> tuple[bytes, list[WordTime]]:
    pieces: list[SpeechPiece] = []

    def take(piece: SpeechPiece) -> bool:
        pieces.append(piece)
        return True

    voice.synthesize(text, take)
    return b"".join(piece.pcm for piece in pieces), [word for piece in pieces for word in piece.words]


def _due_samples(word: WordTime, due_percent: int) -> int:
    return ms_to_samples(word.start_ms * 100 + (word.end_ms - word.start_ms) * due_percent, RATE_HZ) // 100


def to_ms(samples: int) -> int:
    """Whole milliseconds of samples at 16 kHz."""
    return samples_to_ms(samples, RATE_HZ)
