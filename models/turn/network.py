"""Network of smart-turn, with access to the states of its layers, which a fitted line weighs.

The network is Whisper's encoder, trained to detect ends of turns; its own head uses the last of four layers.
After the second and the third, its states still represent the sounds. One file holds the network and one each
line, which belongs to the network that it was fitted on; that is checked.
"""

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from parley.core.errors import EngineError
from parley.models.pipecat_data import pipecat_file
from parley.models.turn.onnx_graph import with_fusable_gelu, with_output

# Name of the output with the probability that the turn is complete.
LOGITS = "logits"
INPUT = "input_features"
# Outputs of the second and the third of the four layers of smart-turn v3.2.
SECOND_LAYER, THIRD_LAYER = "add_268", "add_390"
STATE_SIZE = 384
STATE_SAMPLES = 320


class Network:
    """Network with states of layers among its outputs. Thread-safe.

    Args:
        layers: layers whose states are added to the outputs.
        weights: an ONNX file of this network; None for the one in the Pipecat wheel.
        cpu_count: threads of one pass.
        engine: name for errors.

    Raises:
        ConfigError: the weights are not where the Pipecat wheel puts them.
        EngineError: they cannot be loaded, or have no such layer.
    """

    def __init__(
        self, layers: Sequence[str], *, weights: Path | None = None, cpu_count: int = 1, engine: str
    ) -> None:
        self._engine = engine
        path = weights or pipecat_file("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")
        options = onnxruntime.SessionOptions()
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = cpu_count
        try:
            content = path.read_bytes()
            self.sha256 = hashlib.sha256(content).hexdigest()
            content = with_fusable_gelu(content)
            for layer in layers:
                content = with_output(content, layer)
            self._session = onnxruntime.InferenceSession(
                content, sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"cannot load {path.name}", engine=engine, retryable=False) from error

    def run(self, outputs: Sequence[str], log_mel: np.ndarray) -> list[np.ndarray]:
        """Make one pass over float32, (80, 800); return float32 for each of the outputs.

        ``LOGITS`` is (1,), a layer is (400, ``STATE_SIZE``), one row for each ``STATE_SAMPLES``.

        Raises:
            EngineError: the network failed.
        """
        try:
            found = self._session.run(list(outputs), {INPUT: log_mel[None]})
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError("the network failed", engine=self._engine) from error
        return [each[0] for each in found]


@dataclass(frozen=True, slots=True)
class LinearScore:
    """Linear weights of features, with log odds as the result.

    Attributes:
        weights: float32, (features,).
        bias: log odds where all features are 0.
        network: SHA-256 of the file of the network that they belong to, hexadecimal.
    """

    weights: np.ndarray
    bias: float
    network: str

    def log_odds(self, features: np.ndarray) -> float:
        """Return the log odds for float32, (features,)."""
        return float(features @ self.weights + self.bias)

    def save(self, path: Path) -> None:
        """Write the line to a file for ``load``."""
        np.savez_compressed(
            path, weights=self.weights.astype(np.float32), bias=np.float32(self.bias), network=self.network
        )

    @classmethod
    def load(cls, path: Path, *, features: int, network: str, engine: str) -> "LinearScore":
        """Return the line that ``save`` wrote, for these features of this network.

        Raises:
            EngineError: the file is missing or invalid, or for another network.
        """
        try:
            with np.load(path, allow_pickle=False) as kept:
                line = cls(kept["weights"], float(kept["bias"]), str(kept["network"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise EngineError(f"{path.name} does not load", engine=engine, retryable=False) from error
        if line.weights.shape != (features,) or line.network != network:
            raise EngineError(f"{path.name} is for another network", engine=engine, retryable=False)
        return line


def averaged(states: np.ndarray, parts: int) -> np.ndarray:
    """Return the means of ``parts`` parts of (states, ``STATE_SIZE``), concatenated: float32."""
    return np.concatenate([part.mean(axis=0) for part in np.array_split(states, parts)]).astype(np.float32)
