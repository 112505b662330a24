"""Does a short voice over the bot want the floor, or does it only listen?

In: one short voice. Out: the log odds that its owner wants to be heard. A recogniser writes its best guess at
half a second of sound, and a grammar knows only its phrases; this hears how the sound goes, whatever was
said. It is smart-turn's encoder (Whisper's, made to tell ends of turns) up to its third layer, where the
states still say which sounds they were; those of the first, the second and the last third of the voice are
averaged, and one line (logistic regression) weighs them. ``python -m evals.turns.floor`` fits the line, on
synthetic voices; it belongs to the network that it was fitted on, which is checked.

Runs on the caller's thread, about 40 ms of one core; the interpreter lock is released in the network. The
session is shared and thread-safe.
"""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from core.errors import EngineError, ShapeError
from models.pipecat_data import pipecat_file
from models.turn.smart_turn import RATE_HZ, LogMel

ENGINE = "floor"
# What runs through the network behind the third of four layers, in the file of smart-turn v3.2.
LAYER = "add_390"
STATE_SIZE = 384
STATE_SAMPLES = 320
PARTS = 3
FEATURES = PARTS * STATE_SIZE
# The voice is what lies within this of its loudest 10 ms, and a little around it.
RANGE_DB = 30.0
FRAME_SAMPLES = 160
MARGIN_FRAMES = 3
# Only the end of a longer sound is listened to.
LONGEST_SAMPLES = 2 * RATE_HZ
HEAD_FILE = Path(__file__).with_name("floor_head.npz")
# Protocol buffers: fields of ONNX messages, all of them length-delimited.
_MODEL_GRAPH, _GRAPH_OUTPUT, _VALUE_NAME = 7, 12, 1


@dataclass(frozen=True, slots=True)
class FloorHead:
    """The line.

    Attributes:
        weights: float32, (``FEATURES``,).
        bias: log odds where all features are 0.
        network: SHA-256 of the network's file, hexadecimal.
    """

    weights: np.ndarray
    bias: float
    network: str

    def save(self, path: Path) -> None:
        """Write it; ``load`` reads it."""
        np.savez_compressed(
            path, weights=self.weights.astype(np.float32), bias=np.float32(self.bias), network=self.network
        )

    @classmethod
    def load(cls, path: Path) -> "FloorHead":
        """What ``save`` wrote.

        Raises:
            EngineError: there is none, or it is none.
        """
        try:
            with np.load(path, allow_pickle=False) as kept:
                head = cls(kept["weights"], float(kept["bias"]), str(kept["network"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise EngineError(f"{path.name} does not load", engine=ENGINE, retryable=False) from error
        if head.weights.shape != (FEATURES,):
            raise EngineError(f"{path.name} is for another network", engine=ENGINE, retryable=False)
        return head


class FloorEncoder:
    """The features that the line weighs. Thread-safe.

    Args:
        weights: an ONNX file of this network; None for the one in the Pipecat wheel.

    Raises:
        ConfigError: the weights are not where the Pipecat wheel puts them.
        EngineError: they cannot be loaded, or have no such layer.
    """

    def __init__(self, weights: Path | None = None) -> None:
        path = weights or pipecat_file("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")
        self._mel = LogMel()
        options = onnxruntime.SessionOptions()
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        try:
            network = path.read_bytes()
            self.network = hashlib.sha256(network).hexdigest()
            self._session = onnxruntime.InferenceSession(
                with_output(network, LAYER), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the errors of onnxruntime have no root of their own
            raise EngineError(f"cannot load {path.name}", engine=ENGINE, retryable=False) from error

    def features(self, audio: np.ndarray) -> np.ndarray:
        """Float32, (``FEATURES``,), of one short voice: float32, (samples,), 16 kHz, in [-1, 1].

        Raises:
            ShapeError: not one-dimensional, or empty.
            EngineError: the network failed.
        """
        if audio.ndim != 1 or not len(audio):
            raise ShapeError(f"expected (samples,), got {audio.shape}")
        voice = sounding(audio)[-LONGEST_SAMPLES:]
        try:
            states = self._session.run([LAYER], {"input_features": self._mel(voice)[None]})[0][0]
        except Exception as error:  # the errors of onnxruntime have no root of their own
            raise EngineError("the encoder failed", engine=ENGINE) from error
        # Sound stands at the end of what the network hears.
        heard = states[-max(PARTS, -(-len(voice) // STATE_SAMPLES)) :]
        return np.concatenate([part.mean(axis=0) for part in np.array_split(heard, PARTS)]).astype(np.float32)


class FloorJudge:
    """Encoder and line. Thread-safe.

    Args:
        head: the line; None for the one that comes with Parley.
        weights: see ``FloorEncoder``.

    Raises:
        ConfigError: see ``FloorEncoder``.
        EngineError: the network or the line does not load, or they do not belong together.
    """

    def __init__(self, head: Path | None = None, *, weights: Path | None = None) -> None:
        self._encoder = FloorEncoder(weights)
        self._head = FloorHead.load(head or HEAD_FILE)
        if self._head.network != self._encoder.network:
            raise EngineError(
                "the head was fitted on another network: python -m evals.turns.floor fits it",
                engine=ENGINE,
                retryable=False,
            )

    def log_odds(self, audio: np.ndarray) -> float:
        """That whoever this short voice is wants the floor; ``audio`` and errors as ``features`` has them."""
        return float(self._encoder.features(audio) @ self._head.weights + self._head.bias)


def sounding(audio: np.ndarray) -> np.ndarray:
    """The voice without what is soft in front and behind; all of it where nothing sounds."""
    frames = len(audio) // FRAME_SAMPLES
    power = np.mean(audio[: frames * FRAME_SAMPLES].reshape(frames, FRAME_SAMPLES) ** 2, axis=1)
    loud = np.flatnonzero(power > power.max(initial=0.0) * 10 ** (-RANGE_DB / 10))
    if not loud.size:
        return audio
    first, last = loud[0] - MARGIN_FRAMES, loud[-1] + 1 + MARGIN_FRAMES
    return audio[max(0, first * FRAME_SAMPLES) : last * FRAME_SAMPLES]


def with_output(network: bytes, name: str) -> bytes:
    """An ONNX network that also gives this value of its graph.

    Two protocol buffers behind each other are one, in which the graphs are merged and their outputs are one
    list (the encoding's "last one wins, messages are merged"), so that nothing has to be parsed.
    """
    return network + _field(_MODEL_GRAPH, _field(_GRAPH_OUTPUT, _field(_VALUE_NAME, name.encode())))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes((*written, value))
