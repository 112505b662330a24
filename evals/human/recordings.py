"""Recording of one utterance of one person, and decoders for the files of packages.

Times are samples of the recording. The permitted use of a recording is decided elsewhere (``split``).
"""

import hashlib
import io
import re
from dataclasses import dataclass

import av
import numpy as np
import soundfile
import soxr

from parley.audio.audible import AudibleRule, audible_spans
from parley.core.errors import MediaError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, ms_to_samples, pcm16_to_float

# eot-bench counts silences from this length on.
SHORTEST_PAUSE_MS = 100
# Recordings differ in level and noise. Sound is this far above the quietest frames, within these distances
# below the loudest ones (decibels of 10 ms frames).
_OVER_FLOOR_DB, _LOWEST_DB, _HIGHEST_DB = 12.0, 40.0, 15.0
_FRAME_MS = 10
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class RecordedPause:
    """Silence between two sounds of one recording.

    Attributes:
        first: first silent sample.
        end: first sample after the silence.
    """

    first: int
    end: int

    def length_ms(self, rate_hz: int) -> int:
        """Length of the silence."""
        return (self.end - self.first) * 1000 // rate_hz


@dataclass(frozen=True, slots=True, eq=False)
class RecordedUtterance:
    """Recording with its text, speaker and pauses.

    Attributes:
        id: source and member, unique.
        samples: float32, (samples,), in [-1, 1], as recorded.
        rate_hz: of ``samples``.
        text: spoken words, as the source writes them. Empty when the source has no text.
        speaker: person or synthetic voice.
        source: a row of ``sources``, ``own`` for a user's folder, or the name of a voice generator.
        language: ISO 639-1.
        pauses: silences of at least ``SHORTEST_PAUSE_MS`` between the first and the last sound.
    """

    id: str
    samples: np.ndarray
    rate_hz: int
    text: str
    speaker: str
    source: str
    language: str
    pauses: tuple[RecordedPause, ...]

    @property
    def duration_s(self) -> float:
        """Length of the recording."""
        return len(self.samples) / self.rate_hz

    def at_rate(self, rate_hz: int) -> np.ndarray:
        """Return the samples at another rate: float32, (samples,)."""
        if rate_hz == self.rate_hz:
            return self.samples
        return soxr.resample(self.samples, self.rate_hz, rate_hz).astype(np.float32)

    def digest(self) -> str:
        """Return the SHA-256 of the samples as 16-bit PCM."""
        return hashlib.sha256(float_to_pcm16(self.samples)).hexdigest()


def utterance(
    identity: str,
    samples: np.ndarray,
    rate_hz: int,
    *,
    text: str,
    speaker: str,
    source: str,
    language: str,
    pauses: tuple[RecordedPause, ...] | None = None,
) -> RecordedUtterance:
    """Make an utterance; its pauses are measured unless they are given.

    ``samples`` are float32, (samples,), in [-1, 1].

    Raises:
        ShapeError: the samples are no mono signal.
        MediaError: nothing is audible.
    """
    if samples.ndim != 1:
        raise ShapeError(f"{identity}: expected (samples,), got {samples.shape}")
    found = pauses_of(samples, rate_hz) if pauses is None else pauses
    return RecordedUtterance(identity, samples, rate_hz, text, speaker, source, language, found)


def pauses_of(samples: np.ndarray, rate_hz: int) -> tuple[RecordedPause, ...]:
    """Find the silences between the first and the last sound.

    Args:
        samples: float32, (samples,).
        rate_hz: of the samples.

    Raises:
        MediaError: nothing is audible.
    """
    spans = audible_spans(samples, rate_hz, rule_for(samples, rate_hz))
    if not spans:
        raise MediaError("the recording is silent")
    gaps = (RecordedPause(one.last + 1, other.first) for one, other in zip(spans, spans[1:], strict=False))
    return tuple(gap for gap in gaps if gap.length_ms(rate_hz) >= SHORTEST_PAUSE_MS)


def edges_of(samples: np.ndarray, rate_hz: int, rule: AudibleRule | None = None) -> tuple[int, int]:
    """Return the first sample of the sound and the first one after it; ``rule`` defaults to ``rule_for``.

    Raises:
        MediaError: nothing is audible.
    """
    spans = audible_spans(samples, rate_hz, rule or rule_for(samples, rate_hz))
    if not spans:
        raise MediaError("the recording is silent")
    return spans[0].first, spans[-1].last + 1


def rule_for(samples: np.ndarray, rate_hz: int) -> AudibleRule:
    """Return the definition of audible sound in a recording with its own level and noise."""
    levels = _levels_db(samples, rate_hz)
    if not levels.size:
        return AudibleRule()
    floor, speech = np.percentile(levels, (2, 90))
    threshold = min(max(floor + _OVER_FLOOR_DB, speech - _LOWEST_DB), speech - _HIGHEST_DB)
    return AudibleRule(threshold_dbfs=float(threshold))


def _levels_db(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    size = ms_to_samples(_FRAME_MS, rate_hz)
    whole = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64)
    return 10 * np.log10(np.mean(whole**2, axis=1) + 1e-12)


def plain_words(text: str) -> tuple[str, ...]:
    """Return the words of a text in any script, lower case, without punctuation."""
    return tuple(_WORD.findall(text.casefold().replace("’", "'")))


def text_digest(text: str) -> str:
    """Return the SHA-256 of the plain words of a text."""
    return hashlib.sha256(" ".join(plain_words(text)).encode()).hexdigest()


def decode_g722(data: bytes) -> tuple[np.ndarray, int]:
    """Decode G.722 at 64 kbit/s: float32, (samples,), and 16 kHz. Its arithmetic is exact on every machine.

    Raises:
        MediaError: not decodable.
    """
    decoder = av.CodecContext.create("g722", "r")
    frames = []
    try:
        for packet in (av.Packet(data), None):
            frames += [frame.to_ndarray().reshape(-1) for frame in decoder.decode(packet)]
    except av.error.FFmpegError as error:
        raise MediaError(f"not G.722: {error}") from error
    if not frames:
        raise MediaError("the G.722 file is empty")
    return pcm16_to_float(np.concatenate(frames).astype("<i2").tobytes()), 16_000


def decode_wav(data: bytes) -> tuple[np.ndarray, int]:
    """Decode a WAV or Ogg file: float32, (samples,), the mean of its channels, and its rate.

    Raises:
        MediaError: not a file that can be read.
    """
    try:
        samples, rate_hz = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise MediaError(f"not a WAV file: {error}") from error
    return samples.mean(axis=1).astype(np.float32), int(rate_hz)


def decode_raw(data: bytes, rate_hz: int) -> tuple[np.ndarray, int]:
    """Read 16-bit little-endian samples: float32, (samples,), and the rate."""
    return pcm16_to_float(data[: len(data) // PCM_BYTES_PER_SAMPLE * PCM_BYTES_PER_SAMPLE]), rate_hz
