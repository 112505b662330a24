"""Silero voice activity: one ONNX session for the process, one recurrent state per caller.

Input: windows of 32 ms. Output: the probability of voice in each. Runs on the caller's thread (0.15 ms per
window, the GIL is released inside); the session is shared and thread-safe, a stream belongs to one thread at
a time. Other components decide from the probabilities whether speech has begun or ended.

The model drifts: after half a minute of music it needs 0.4 s (worst 1.7 s) to detect a voice, with a reset in
quiet 0.17 s (0.3 s). After silence or noise the reset costs nothing (80 onsets measured). A stream therefore
resets its state every ``reset_after_ms``, but only in the middle of clear quiet: a reset inside a word lowers
the probabilities.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
from pydantic import Field

from parley.core.errors import EngineError, ShapeError
from parley.core.media import samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.pipecat_data import pipecat_file

# Samples per window, and samples of the previous window that the network expects before it, by rate.
WINDOW_SAMPLES = {16_000: 512, 8_000: 256}
CONTEXT_SAMPLES = {16_000: 64, 8_000: 32}
# Recurrent state: (layers, batch, units).
STATE_SHAPE = (2, 1, 128)


class SileroSettings(StrictModel):
    """Rate and drift control."""

    rate_hz: Literal[8_000, 16_000] = 16_000
    reset_after_ms: int = Field(
        default=2_000, ge=0, le=600_000, description="shortest time between resets; 0: never"
    )
    reset_quiet_ms: int = Field(default=320, ge=32, le=10_000, description="clear silence before a reset")
    reset_quiet_probability: float = Field(
        default=0.1, gt=0, lt=1, description="probability below which a window is clear silence"
    )


class SileroVad:
    """Detector with shared weights. Thread-safe.

    Args:
        settings: rate and drift control; None for the defaults.
        weights: an ONNX file of this network; None for the one in the Pipecat wheel.

    Raises:
        ConfigError: the weights are not where the Pipecat wheel puts them.
        EngineError: they cannot be loaded.
    """

    def __init__(self, settings: SileroSettings | None = None, *, weights: Path | None = None) -> None:
        self._settings = settings or SileroSettings()
        self.rate_hz: int = self._settings.rate_hz
        self.window_samples = WINDOW_SAMPLES[self.rate_hz]
        options = onnxruntime.SessionOptions()
        # One thread: a window is too small to split, and spinning pool threads cost more than the network.
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = 1
        path = weights or pipecat_file("audio", "vad", "data", "silero_vad.onnx")
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"cannot load {path.name}", engine="silero", retryable=False) from error

    def open_stream(self) -> "SileroStream":
        """Return a stream for a new caller."""
        return SileroStream(self._session, self._settings)


class SileroStream:
    """Voice activity of one caller, with its recurrent state. Not thread-safe."""

    def __init__(self, session: onnxruntime.InferenceSession, settings: SileroSettings) -> None:
        self._session = session
        self._settings = settings
        self._window_samples = WINDOW_SAMPLES[settings.rate_hz]
        self._context_samples = CONTEXT_SAMPLES[settings.rate_hz]
        self._rate = np.array(settings.rate_hz, dtype=np.int64)
        window_ms = samples_to_ms(self._window_samples, settings.rate_hz)
        self._reset_after_windows = -(-settings.reset_after_ms // window_ms)
        self._reset_quiet_windows = -(-settings.reset_quiet_ms // window_ms)
        self._state = np.zeros(STATE_SHAPE, dtype=np.float32)
        self._windows = 0
        self._quiet_windows = 0
        self._input = np.zeros((1, self._context_samples + self._window_samples), dtype=np.float32)

    def probability(self, window: np.ndarray) -> float:
        """Return the probability of voice in ``window``, 0..1.

        window: float32, (window_samples,), in [-1, 1].

        Raises:
            ShapeError: another length or more dimensions.
            EngineError: the network failed.
        """
        if window.shape != (self._window_samples,):
            raise ShapeError(f"expected ({self._window_samples},), got {window.shape}")
        context = self._context_samples
        self._input[0, :context] = self._input[0, -context:]
        self._input[0, context:] = window
        try:
            output, self._state = self._session.run(
                None, {"input": self._input, "state": self._state, "sr": self._rate}
            )
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError("voice activity detection failed", engine="silero") from error
        probability = float(output[0, 0])
        self._count(probability)
        return probability

    def reset(self) -> None:
        """Reset the state and the context."""
        self._state = np.zeros(STATE_SHAPE, dtype=np.float32)
        self._input[:] = 0
        self._windows = 0
        self._quiet_windows = 0

    def _count(self, probability: float) -> None:
        self._windows += 1
        quiet = probability < self._settings.reset_quiet_probability
        self._quiet_windows = self._quiet_windows + 1 if quiet else 0
        due = 0 < self._reset_after_windows <= self._windows
        if due and self._quiet_windows >= self._reset_quiet_windows:
            self.reset()
