"""Run a recogniser on one clip: word errors, times of its words, cost.

Audio is fed in pieces of 20 ms as fast as the engine takes it, on a clock that is computed. A piece arrives
when it would in a call, its work begins when the engine is free, and takes the time that was measured. A
partial that an engine makes too slowly is late on that clock, and so is the final transcript.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np

from parley.core.media import float_to_pcm16, ms_to_samples
from parley.evals.stt.normalise import normalised
from parley.models.stt import SpeechStream

RATE_HZ = 16_000
PIECE_SAMPLES = 320
# Audio that a call keeps before the voice, and the silence that ends a turn.
LEAD_MS, TAIL_MS = 300, 200


@dataclass(frozen=True, slots=True)
class HeardClip:
    """Result of one clip and one recogniser.

    Attributes:
        id: recording.
        condition: of the audio.
        reference: spoken words, normalised.
        transcript: recognised words, normalised.
        errors: number of words to substitute, delete and insert.
        first_partial_ms: from the first sound to the first partial with a word. None without one.
        final_ms: from the last piece of audio to the final transcript.
        final_cpu_ms: processor time of the final transcript alone, independent of other load.
        edits: number of words that partials and the final transcript added or took back.
        audio_s: length of the audio.
        cpu_s: processor time of it.
    """

    id: str
    condition: str
    reference: tuple[str, ...]
    transcript: tuple[str, ...]
    errors: int
    first_partial_ms: float | None
    final_ms: float
    final_cpu_ms: float
    edits: int
    audio_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Input of a recogniser.

    Attributes:
        id: recording.
        condition: of the audio.
        samples: float32, (samples,), 16 kHz, silence before and after.
        onset: first sample of the voice.
        text: spoken words.
        language: ISO 639-1.
    """

    id: str
    condition: str
    samples: np.ndarray
    onset: int
    text: str
    language: str


def hear(stream: SpeechStream, clip: Clip) -> HeardClip:
    """Feed a clip to a recogniser and judge the transcript.

    Raises:
        EngineError: the recogniser failed.
    """
    free_s, first_s = 0.0, None
    said: list[tuple[str, ...]] = []
    cpu_s = time.process_time()
    free_s += _timed(stream.start)
    for end in range(PIECE_SAMPLES, len(clip.samples) + PIECE_SAMPLES, PIECE_SAMPLES):
        piece = float_to_pcm16(clip.samples[end - PIECE_SAMPLES : end])
        began_s = time.perf_counter()
        partial = stream.feed(piece)
        free_s = max(free_s, end / RATE_HZ) + time.perf_counter() - began_s
        if partial is None:
            continue
        words = normalised(partial.text, clip.language)
        said.append(words)
        if words and first_s is None:
            first_s = free_s
    ended_s = end / RATE_HZ
    began_s, final_cpu_s = time.perf_counter(), time.process_time()
    final = stream.finish()
    free_s = max(free_s, ended_s) + time.perf_counter() - began_s
    now_s = time.process_time()
    cpu_s, final_cpu_s = now_s - cpu_s, now_s - final_cpu_s
    transcript, reference = normalised(final.text, clip.language), normalised(clip.text, clip.language)
    return HeardClip(
        clip.id,
        clip.condition,
        reference,
        transcript,
        word_errors(reference, transcript),
        None if first_s is None else (first_s - clip.onset / RATE_HZ) * 1000,
        (free_s - ended_s) * 1000,
        final_cpu_s * 1000,
        edits([*said, transcript]),
        len(clip.samples) / RATE_HZ,
        cpu_s,
    )


def _timed(action: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def word_errors(reference: Sequence[str], transcript: Sequence[str]) -> int:
    """Return the number of words to substitute, delete and insert.

    A compound is one word or two: neighbours that the other side writes together are joined.
    """
    if not reference:
        return len(transcript)
    said, understood = joined(reference, transcript), joined(transcript, reference)
    counted = jiwer.process_words(" ".join(said), " ".join(understood))
    return int(counted.substitutions + counted.deletions + counted.insertions)


def joined(words: Sequence[str], other: Sequence[str]) -> list[str]:
    """Join two neighbours where the other side has them as one word."""
    known, written = set(other), list[str]()
    for word in words:
        if written and written[-1] + word in known:
            written[-1] += word
        else:
            written.append(word)
    return written


def edits(hypotheses: Sequence[Sequence[str]]) -> int:
    """Count the words that each hypothesis takes back from the one before it and adds to it."""
    count, before = 0, tuple[str, ...]()
    for words in hypotheses:
        same = 0
        for one, other in zip(before, words, strict=False):
            if one != other:
                break
            same += 1
        count += len(before) - same + len(words) - same
        before = tuple(words)
    return count


def padded(samples: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a voice with silence before and after it, and its first sample."""
    lead, tail = ms_to_samples(LEAD_MS, RATE_HZ), ms_to_samples(TAIL_MS, RATE_HZ)
    return np.pad(samples, (lead, tail)).astype(np.float32), lead
