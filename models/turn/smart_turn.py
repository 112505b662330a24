"""Turn completeness by smart-turn v3.

Input: the turn so far with its trailing silence. Output: the probability that it is complete, and the log
odds that it stops on a filler. Runs on the caller's thread, about 35 ms on one core (the GIL is released in
the network); the session is shared and thread-safe. ``turn_taking`` decides how long to wait at which
estimate.

The network was not trained to recognise "um": some synthetic callers who stop on one are judged complete. Its
second layer represents the sound, and a line on the last 0.8 s of its states detects it at no cost
(``network.py``; fitted by ``research.turn_taking.filler``). A recogniser writes "them" or "stone" for it,
and only once its words are there.

The network takes the log-mel features of Whisper (Radford et al. 2022, section 2.2: 16 kHz, 25 ms Hann
windows every 10 ms, 80 Slaney mel bands) over 8 s, padded with silence at the front. The waveform is
normalised to zero mean and unit variance. Most turns are shorter than 8 s. The padding is one constant, all
of whose frames are equal, so only frames that touch sound are transformed.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from parley.core.errors import ShapeError
from parley.core.strict_model import StrictModel
from parley.models.turn import TurnEstimate
from parley.models.turn.network import LOGITS, SECOND_LAYER, STATE_SIZE, LinearScore, Network, averaged

ENGINE = "smart_turn"
RATE_HZ = 16_000
MAX_SAMPLES = 8 * RATE_HZ
FFT_SAMPLES = 400
HOP_SAMPLES = 160
FRAMES = MAX_SAMPLES // HOP_SAMPLES
MEL_BANDS = 80
# The end of the turn, 0.8 s, in parts of 160 ms.
FILLER_STATES, FILLER_PARTS = 40, 5
FILLER_FEATURES = FILLER_PARTS * STATE_SIZE
FILLER_FILE = Path(__file__).with_name("filler_line.npz")
# Constants of Whisper's feature definition.
MEL_FLOOR = 1e-10
DYNAMIC_RANGE_LOG10 = 8.0
VARIANCE_FLOOR = 1e-7


class SmartTurnSettings(StrictModel):
    """Bound of the processors for one estimate."""

    cpu_count: int = Field(
        default=1, ge=1, le=16, description="threads per estimate; more than 1 disturbs audio pacing"
    )


class SmartTurn:
    """Model with shared weights. Thread-safe.

    Args:
        settings: bounds; None for the defaults.
        weights: an ONNX file of the network; None for the one in the Pipecat wheel.
        filler: file of the line that detects fillers; None for the one that comes with Parley.

    Raises:
        ConfigError: see ``Network``.
        EngineError: see ``Network`` and ``LinearScore.load``.
    """

    rate_hz = RATE_HZ
    max_samples = MAX_SAMPLES

    def __init__(
        self,
        settings: SmartTurnSettings | None = None,
        *,
        weights: Path | None = None,
        filler: Path | None = None,
    ) -> None:
        chosen = settings or SmartTurnSettings()
        self._features = LogMel()
        self._network = Network([SECOND_LAYER], weights=weights, cpu_count=chosen.cpu_count, engine=ENGINE)
        self._filler = LinearScore.load(
            filler or FILLER_FILE, features=FILLER_FEATURES, network=self._network.sha256, engine=ENGINE
        )

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        """Return the estimate for a turn.

        audio: float32, (samples,), at 16 kHz, in [-1, 1]; longer than 8 s is cut from the front.

        Raises:
            ShapeError: not one-dimensional.
            EngineError: the network failed.
        """
        if audio.ndim != 1:
            raise ShapeError(f"expected (samples,), got {audio.shape}")
        features = self._features(audio[-MAX_SAMPLES:])
        complete, states = self._network.run([LOGITS, SECOND_LAYER], features)
        return TurnEstimate(float(complete[0]), self._filler.log_odds(filler_features(states)))


def filler_features(states: np.ndarray) -> np.ndarray:
    """Return float32, (``FILLER_FEATURES``,), from the last states of ``SECOND_LAYER``."""
    return averaged(states[-FILLER_STATES:], FILLER_PARTS)


class LogMel:
    """Whisper's log-mel features of at most 8 s of audio. Thread-safe."""

    def __init__(self) -> None:
        # Periodic Hann, as in the reference (numpy's is the symmetric one).
        self._window = np.hanning(FFT_SAMPLES + 1)[:-1]
        self._bands = mel_bands()

    def __call__(self, audio: np.ndarray) -> np.ndarray:
        """Return float32, (80, 800), of ``audio``: float32, (at most 128000,), padded with silence at the
        front.
        """
        samples = len(audio)
        silence = MAX_SAMPLES - samples
        # Mean and variance are those of the padded 8 s; the padding adds only zeros to both sums.
        padded = np.zeros(MAX_SAMPLES, dtype=np.float32)
        padded[silence:] = audio
        normal = (padded - padded.mean()) / np.sqrt(padded.var() + VARIANCE_FLOOR)
        edge = FFT_SAMPLES // 2
        centred = np.pad(normal.astype(np.float64), edge, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(centred, FFT_SAMPLES)[::HOP_SAMPLES][:FRAMES]
        # Frame f covers padded[f*hop-200 : f*hop+200]: those ending in the padding all equal the first one.
        silent_frames = min(max(0, (silence - edge) // HOP_SAMPLES), FRAMES - 1)
        power = np.abs(np.fft.rfft(windows[silent_frames:] * self._window, axis=-1)) ** 2
        sounding = np.log10(np.maximum(MEL_FLOOR, self._bands @ power.T))
        log_mel = np.empty((MEL_BANDS, FRAMES))
        log_mel[:, silent_frames:] = sounding
        log_mel[:, :silent_frames] = sounding[:, :1]
        log_mel = np.maximum(log_mel, log_mel.max() - DYNAMIC_RANGE_LOG10)
        result: np.ndarray = ((log_mel + 4.0) / 4.0).astype(np.float32)
        return result


def mel_bands(bands: int = MEL_BANDS) -> np.ndarray:
    """Return Slaney's area-normalised triangular filters, power to mel: float64, (bands, 201)."""
    # Slaney's mel scale: linear (3 mel per 200 Hz) below 1 kHz, logarithmic (27 mel per factor 6.4) above.
    knee_hz, knee_mel, mel_per_log = 1_000.0, 15.0, 27.0 / np.log(6.4)
    top_mel = knee_mel + np.log(RATE_HZ / 2 / knee_hz) * mel_per_log
    mels = np.linspace(0.0, top_mel, bands + 2)
    corners_hz = np.where(
        mels < knee_mel, mels * 200.0 / 3.0, knee_hz * np.exp((mels - knee_mel) / mel_per_log)
    )
    bins_hz = np.linspace(0.0, RATE_HZ / 2, FFT_SAMPLES // 2 + 1)
    low, centre, high = corners_hz[:-2, None], corners_hz[1:-1, None], corners_hz[2:, None]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    result: np.ndarray = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (high - low))
    return result
