"""Embedding of a voice: the encoder of Resemblyzer (GE2E; Wan et al., ICASSP 2018), in numpy.

Input: a stretch of speech. Output: 256 numbers of length 1; the cosine of two embeddings says how alike the
voices are. Three LSTM layers read 40 mel bands every 10 ms, and the last state is projected. The weights come
from the wheel of Resemblyzer (Apache-2.0), whose own code needs PyTorch; ``models.specialists.torch_tensors``
reads them.

About 40 ms of a processor for 1.6 s of speech, the length that the network was trained on. Thread-safe.
"""

from pathlib import Path

import numpy as np

from parley.core.errors import EngineError, ShapeError
from parley.models.specialists.torch_tensors import read_tensors
from parley.models.turn.smart_turn import FFT_SAMPLES, HOP_SAMPLES, RATE_HZ, mel_bands

ENGINE = "speakers"
MEL_BANDS, UNITS, LAYERS = 40, 256, 3
# The encoder's rate and windows are those of smart-turn's network.
ENCODER_RATE_HZ = RATE_HZ
# Level to which the package raises a softer voice.
LEVEL_DBFS = -30.0


class VoiceEncoder:
    """Encoder with shared weights.

    Args:
        weights: tensors by name, as in the package's file.

    Raises:
        EngineError: a tensor is missing or has another shape.
    """

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        try:
            self._layers = [
                (
                    _shaped(
                        weights[f"lstm.weight_ih_l{layer}"], (4 * UNITS, UNITS if layer else MEL_BANDS)
                    ).T.copy(),
                    _shaped(weights[f"lstm.weight_hh_l{layer}"], (4 * UNITS, UNITS)).copy(),
                    _shaped(
                        weights[f"lstm.bias_ih_l{layer}"] + weights[f"lstm.bias_hh_l{layer}"], (4 * UNITS,)
                    ),
                )
                for layer in range(LAYERS)
            ]
            self._linear = _shaped(weights["linear.weight"], (UNITS, UNITS))
            self._bias = _shaped(weights["linear.bias"], (UNITS,))
        except KeyError as error:
            raise EngineError(f"the encoder has no {error}", engine=ENGINE, retryable=False) from error
        self._bands = mel_bands(MEL_BANDS).astype(np.float32)

    @classmethod
    def load(cls, path: Path) -> "VoiceEncoder":
        """Read the package's file.

        Raises:
            EngineError: it does not load.
        """
        return cls(read_tensors(path, "model_state"))

    def embed(self, audio: np.ndarray) -> np.ndarray:
        """Return the embedding of a stretch: float32, (256,), of length 1.

        audio: float32, (samples,), 16 kHz, in [-1, 1], with no long silence in it.

        Raises:
            ShapeError: not one-dimensional, or shorter than one window.
        """
        if audio.ndim != 1 or len(audio) < FFT_SAMPLES:
            raise ShapeError(f"expected (samples,) of at least {FFT_SAMPLES}, got {audio.shape}")
        values = self.mel(audio)
        for into, within, bias in self._layers:
            values = _lstm(values @ into + bias, within)
        projected = np.maximum(self._linear @ values[-1] + self._bias, 0.0)
        result: np.ndarray = projected / max(float(np.linalg.norm(projected)), 1e-9)
        return result

    def mel(self, audio: np.ndarray) -> np.ndarray:
        """Return the power in each band: float32, (frames, 40), one frame every 10 ms, centred."""
        rms = float(np.sqrt(np.mean(audio.astype(np.float64) ** 2)))
        gain = max(1.0, 10 ** (LEVEL_DBFS / 20) / max(rms, 1e-9))
        padded = np.pad(audio * np.float32(gain), FFT_SAMPLES // 2)
        frames = np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[::HOP_SAMPLES]
        # A periodic window, as of the transform that the network was trained with.
        window = np.hanning(FFT_SAMPLES + 1)[:-1].astype(np.float32)
        power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
        result: np.ndarray = (power.astype(np.float32) @ self._bands.T).astype(np.float32)
        return result


def _lstm(gates_in: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the states of a layer: float32, (frames, units).

    gates_in: float32, (frames, 4 * units): input, forget, cell and output gate, as PyTorch orders them.
    """
    states = np.empty((len(gates_in), UNITS), np.float32)
    hidden, cell = np.zeros(UNITS, np.float32), np.zeros(UNITS, np.float32)
    for place, given in enumerate(gates_in):
        gates = given + within @ hidden
        opened = 1 / (1 + np.exp(-gates))
        cell = opened[UNITS : 2 * UNITS] * cell + opened[:UNITS] * np.tanh(gates[2 * UNITS : 3 * UNITS])
        hidden = opened[3 * UNITS :] * np.tanh(cell)
        states[place] = hidden
    return states


def _shaped(tensor: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if tensor.shape != shape:
        raise EngineError(
            f"the encoder has a tensor {tensor.shape}, expected {shape}", engine=ENGINE, retryable=False
        )
    return tensor.astype(np.float32)
