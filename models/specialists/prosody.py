"""Judge how a stretch of speech was said: pitch, loudness, spectrum and tempo, and from them the tension.

Input: stretches of one caller's voice. Output: a ``ProsodyPayload`` for each stretch with enough voice. Each
value is compared with the caller's own speech so far, since voices and microphones differ by more than moods
do. No mood is stated before ``BASELINE_S`` of the caller's voice were heard.

Tension is a line over five offsets from the caller's own baseline, in within-speaker standard deviations: the
height and the range of the pitch, the peak of the loudness, the balance of the spectrum, and how fast the
sound changes. They are the cues on which studies of angry and fearful voices agree (Juslin and Laukka,
Psychological Bulletin 129, 2003; Banse and Scherer, JPSP 70, 1996). ``research.prosody.tension`` fits the
line on the tuning side of the acted exclamations (``evals.human``) and places it so that a chosen share of
their calm lines is shown as tense. ``python -m evals.perception.prosody`` reports it on other speakers, with
loudness alone for comparison. A finding's confidence is that of its mood, at most ``MOOD_CONFIDENCE``, so a
prompt says "seems tense". Valence, arousal, certainty and pauses are not judged: no recording that is
available here would show that the judgement is right.

Pure numpy, about 10 ms for a second of audio. Nothing of the audio is kept, only the running mean of the
measures.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.core.errors import EngineError, ShapeError
from parley.core.strict_model import StrictModel
from parley.core.timeline import ProsodyPayload, Source
from parley.models.specialists import Finding, VoiceStretch
from parley.turn_taking.endpointing.evidence_pitch import FRAME_MS, HOP_MS, pitch_hz
from parley.turn_taking.endpointing.evidence_tempo import spectral_change

ENGINE = "prosody"
RATE_HZ = 16_000
# Shorter voices say too little: a syllable has 150 ms.
LEAST_VOICED_FRAMES = 20
# Voice of the caller before a mood is stated, and the voice over which the baseline forgets.
BASELINE_S, MEMORY_S = 4.0, 60.0
# Share of tense lines among those shown as tense, of as many tense as calm ones: 3.4 % of the tense lines of
# the report side are shown so, and 2.3 % of the calm ones.
MOOD_CONFIDENCE = 0.6
# A caller far outside of all that was fitted is as tense as one at its edge.
MOST_DEVIATIONS = 4.0
# Ranges of the spectral balance: the first two formants' energy against that of the fundamental.
LOW_HZ, HIGH_HZ = (80.0, 500.0), (500.0, 1_500.0)
REFERENCE_HZ = 100.0
LINE_FILE = Path(__file__).with_name("prosody_line.json")


class ProsodySettings(StrictModel):
    """The specialist has nothing to set."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures of one stretch.

    Attributes:
        values: float64, (5,), in the order of ``MEASURES``.
        pitch_hz: median fundamental frequency.
        voiced_s: voice that was measured.
    """

    values: np.ndarray
    pitch_hz: float
    voiced_s: float


MEASURES = ("pitch_height_semitones", "pitch_range_semitones", "level_db", "balance_db", "change_log")


def measure(audio: np.ndarray) -> Measures | None:
    """Return the measures of a stretch; None when too little of it is voiced.

    audio: float32, (samples,), at ``RATE_HZ``, in [-1, 1].

    Raises:
        ShapeError: not one-dimensional.
    """
    if audio.ndim != 1:
        raise ShapeError(f"expected (samples,), got {audio.shape}")
    if not np.isfinite(audio).all():
        return None
    hertz = pitch_hz(audio, RATE_HZ)
    voiced = np.flatnonzero(np.isfinite(hertz))
    if len(voiced) < LEAST_VOICED_FRAMES:
        return None
    semitones = 12 * np.log2(hertz[voiced] / REFERENCE_HZ)
    frame, hop = FRAME_MS * RATE_HZ // 1000, HOP_MS * RATE_HZ // 1000
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), frame)[::hop][voiced]
    levels = 10 * np.log10(np.mean(frames * frames, axis=1))
    size = 1 << (frame - 1).bit_length()
    power = np.abs(np.fft.rfft(frames * np.hanning(frame), size)) ** 2
    balance = 10 * np.log10(_band(power, size, HIGH_HZ) / _band(power, size, LOW_HZ))
    changes = spectral_change(audio, RATE_HZ)
    change = float(np.mean(changes[voiced[voiced < len(changes)]]))
    low, high, height = np.percentile(semitones, (10, 90, 95))
    values = np.array(
        [height, high - low, np.percentile(levels, 95), balance.mean(), 0.5 * np.log(max(change, 1e-9))]
    )
    return Measures(values, float(np.median(hertz[voiced])), len(voiced) * HOP_MS / 1000)


def _band(power: np.ndarray, size: int, edges_hz: tuple[float, float]) -> np.ndarray:
    hertz = np.fft.rfftfreq(size, 1 / RATE_HZ)
    inside = (hertz >= edges_hz[0]) & (hertz < edges_hz[1])
    result: np.ndarray = power[:, inside].sum(axis=1) + 1e-12
    return result


class Baseline:
    """Running mean of one caller's measures, weighted by the voice in each stretch."""

    def __init__(self) -> None:
        self._mean = np.zeros(len(MEASURES))
        self._weight_s = 0.0

    @property
    def voiced_s(self) -> float:
        """Voice that the mean rests on, at most ``MEMORY_S``."""
        return self._weight_s

    def offsets(self, measures: Measures) -> np.ndarray | None:
        """Return the distance of a stretch from the caller's mean, (5,); None before ``BASELINE_S``."""
        return None if self._weight_s < BASELINE_S else measures.values - self._mean

    def add(self, measures: Measures) -> None:
        """Include a stretch."""
        self._weight_s = min(self._weight_s + measures.voiced_s, MEMORY_S)
        share = min(1.0, measures.voiced_s / self._weight_s)
        self._mean += share * (measures.values - self._mean)


@dataclass(frozen=True, slots=True)
class TensionLine:
    """Line that weighs the offsets.

    Attributes:
        deviations: within-speaker standard deviation of each measure, (5,).
        weights: weight of each offset in deviations, (5,).
        bias: log odds of a stretch at the baseline.
    """

    deviations: np.ndarray
    weights: np.ndarray
    bias: float

    def score(self, offsets: np.ndarray) -> float:
        """Return the tension, 0..1, of offsets from the baseline, (5,)."""
        scaled = np.clip(offsets / self.deviations, -MOST_DEVIATIONS, MOST_DEVIATIONS)
        return float(1 / (1 + np.exp(-(scaled @ self.weights + self.bias))))

    @classmethod
    def load(cls, path: Path = LINE_FILE) -> "TensionLine":
        """Read the line that comes with Parley.

        Raises:
            EngineError: the file is missing or holds something else.
        """
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            line = cls(
                np.array([kept["deviations"][name] for name in MEASURES], dtype=np.float64),
                np.array([kept["weights"][name] for name in MEASURES], dtype=np.float64),
                float(kept["bias"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{path.name} does not load", engine=ENGINE, retryable=False) from error
        if not (line.deviations > 0).all():
            raise EngineError(
                f"{path.name} has deviations that are not positive", engine=ENGINE, retryable=False
            )
        return line


class ProsodySpecialist:
    """Specialist of the row ``prosody``. Thread-safe.

    Raises:
        EngineError: the line does not load.
    """

    rate_hz = RATE_HZ
    source = Source.PROSODY

    def __init__(self, settings: ProsodySettings | None = None) -> None:
        self._line = TensionLine.load()

    def open_stream(self) -> "ProsodyStream":
        """Return a stream for a caller of whom nothing is known."""
        return ProsodyStream(self._line)


class ProsodyStream:
    """Baseline and judgement of one caller."""

    def __init__(self, line: TensionLine) -> None:
        self._line = line
        self._baseline = Baseline()

    def judge(self, stretch: VoiceStretch) -> tuple[Finding, ...]:
        """Return what stands out in a stretch; nothing when too little of it is voiced."""
        measures = measure(stretch.audio)
        if measures is None:
            return ()
        offsets = self._baseline.offsets(measures)
        self._baseline.add(measures)
        place = {"start_us": stretch.start_us, "end_us": stretch.end_us}
        if offsets is None:
            # The pitch is certain; a mood is not stated yet.
            return (Finding(1.0, prosody=ProsodyPayload(**place, pitch_hz=measures.pitch_hz)),)
        height, _, level, _, change = (float(each) for each in offsets)
        return (
            Finding(
                MOOD_CONFIDENCE * min(1.0, self._baseline.voiced_s / (2 * BASELINE_S)),
                prosody=ProsodyPayload(
                    **place,
                    stress=self._line.score(offsets),
                    pitch_hz=measures.pitch_hz,
                    pitch_offset_semitones=height,
                    level_offset_db=level,
                    tempo_offset=change,
                ),
            ),
        )

    def close(self) -> None:
        """Forget the caller."""
        self._baseline = Baseline()
