"""turn-1-mini and turn-1 of p99lab: open weights, from a folder that the user provides.

Input: the turn so far with its trailing silence. Output: the probability that it is complete. Runs on the
caller's thread (the GIL is released in the network); the session is shared and thread-safe. The scores are
not calibrated, according to their makers; ``turn_taking`` decides how long to wait at which estimate.

turn-1-mini (5.3 M parameters, Apache-2.0) is published as an ONNX graph of one step of 160 ms: it takes audio
and state, and returns eight probabilities and the next state. Its band limit of 4 kHz and its features are in
the graph. It was evaluated on the whole turn from a state of zeros. ``estimate`` does the same, with the
newest 8 s at most: its six layers look back 1.2 s each, so older audio changes nothing.

turn-1 (the mean of two speech encoders of 2.0 and 0.8 B parameters with heads) is published as safetensors
for a package of its own. The layout of its heads is not documented. It is therefore used as a graph that was
exported from that package, with a contract as small as the other's: see ``Turn1``. Both understand English
only. The last words of the bot, which turn-1 can read, are not given to it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from pydantic import Field

from parley.core.errors import EngineError, ModelFileError, ShapeError
from parley.core.media import ms_to_samples
from parley.core.strict_model import StrictModel
from parley.models.turn import TurnEstimate

RATE_HZ = 16_000
MAX_SAMPLES = ms_to_samples(8_000, RATE_HZ)
STEP_SAMPLES = ms_to_samples(160, RATE_HZ)
FRAME_SAMPLES = ms_to_samples(20, RATE_HZ)
FRAMES_PER_STEP = STEP_SAMPLES // FRAME_SAMPLES
AUDIO, PROBABILITIES, PROBABILITY = "audio", "probs", "probability"
STATE, NEXT_STATE = "state_", "new_state_"
# File names as published; the first that exists is used.
MINI_FILES = {
    "float32": ("turn-1-mini.step.onnx", "onnx/turn-1-mini.step.onnx"),
    "int8": ("turn-1-mini.step.int8dyn.onnx", "onnx/turn-1-mini.step.int8dyn.onnx"),
}
TURN_1_FILES = ("turn-1.onnx",)
PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
}


class Turn1MiniSettings(StrictModel):
    """Place of the weights, and threads of one estimate."""

    folder: Path = Field(description="a copy of p99lab/turn-1-mini, or of its folder onnx")
    variant: Literal["float32", "int8"] = Field(
        default="float32", description="float32 is the evaluated one; int8 is smaller and faster"
    )
    cpu_count: int = Field(default=1, ge=1, le=16, description="threads per estimate")

    @property
    def file(self) -> Path:
        """Path of the variant's graph."""
        return _present(self.folder, MINI_FILES[self.variant])

    def check(self) -> None:
        """Check that the graph exists, as ``core.files.Checked`` requires."""
        _require("turn_1_mini", self.file, "put the files of p99lab/turn-1-mini into the folder")


class Turn1Settings(StrictModel):
    """Place of the weights, and the device that they run on."""

    folder: Path = Field(description="folder of turn-1.onnx and its data (docs/reference/weights.md)")
    device: Literal["cpu", "cuda"] = Field(
        default="cuda", description="the authors used a GPU with 20 GB; cuda needs onnxruntime-gpu"
    )
    cpu_count: int = Field(default=1, ge=1, le=64, description="threads per estimate on a CPU")

    @property
    def file(self) -> Path:
        """Path of the graph."""
        return _present(self.folder, TURN_1_FILES)

    def check(self) -> None:
        """Check that the graph exists, as ``core.files.Checked`` requires."""
        _require("turn_1", self.file, "export turn-1 as described in docs/reference/weights.md")


class Turn1Mini:
    """Model turn-1-mini with shared weights. Thread-safe.

    Args:
        settings: place of the weights, and threads.

    Raises:
        ModelFileError: the graph does not exist.
        EngineError: it does not load, or has other inputs and outputs than turn-1-mini.
    """

    rate_hz = RATE_HZ
    max_samples = MAX_SAMPLES
    engine = "turn_1_mini"

    def __init__(self, settings: Turn1MiniSettings) -> None:
        settings.check()
        self._session = _open(settings.file, PROVIDERS["cpu"], settings.cpu_count, self.engine)
        inputs = _shapes(self._session.get_inputs())
        outputs = _shapes(self._session.get_outputs())
        self._states = {
            name: tuple(size for size in shape if isinstance(size, int))
            for name, shape in inputs.items()
            if name.startswith(STATE)
        }
        expected = {PROBABILITIES, *(NEXT_STATE + name.removeprefix(STATE) for name in self._states)}
        takes_one_step = inputs.get(AUDIO) == (1, STEP_SAMPLES)
        has_fixed_states = all(self._states[name] == inputs[name] for name in self._states)
        if (
            not takes_one_step
            or not has_fixed_states
            or not self._states
            or set(inputs) != {AUDIO, *self._states}
            or expected - set(outputs)
        ):
            raise EngineError(
                f"{settings.file.name} is not a graph of turn-1-mini", engine=self.engine, retryable=False
            )
        self._outputs = [PROBABILITIES, *(NEXT_STATE + name.removeprefix(STATE) for name in self._states)]

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        """Return the estimate for a turn, at the end of its last whole frame of 20 ms.

        audio: float32, (samples,), at 16 kHz, in [-1, 1]; longer than 8 s is cut from the front.

        Raises:
            ShapeError: not one-dimensional.
            EngineError: the network failed.
        """
        heard = _newest(audio)
        state = {name: np.zeros(shape, np.float32) for name, shape in self._states.items()}
        # Before the first frame the turn has not begun.
        complete = 0.0
        for start in range(0, len(heard), STEP_SAMPLES):
            piece = heard[start : start + STEP_SAMPLES]
            frames = len(piece) // FRAME_SAMPLES
            if not frames:
                break
            step = np.zeros((1, STEP_SAMPLES), np.float32)
            step[0, : len(piece)] = piece
            probabilities, *following = _run(
                self._session, self._outputs, {AUDIO: step, **state}, self.engine
            )
            frame_probabilities = probabilities.reshape(-1)
            if len(frame_probabilities) != FRAMES_PER_STEP:
                raise EngineError("the network returned no probability for each frame", engine=self.engine)
            # The frames that were padded to a whole step have no speech.
            complete = float(frame_probabilities[frames - 1])
            state = dict(zip(self._states, following, strict=True))
        return TurnEstimate(_checked(complete, self.engine))


class Turn1:
    """Model turn-1, or any graph with its contract, with shared weights. Thread-safe.

    ``turn-1.onnx`` has one input ``audio``, float32, (1, samples), 16 kHz, at most 8 s, unfiltered, and an
    output ``probability`` with one float32: the probability that the turn is complete. The number of samples
    is free or fixed; if fixed, the audio is padded with silence at the front.

    Args:
        settings: place of the weights, and device.

    Raises:
        ModelFileError: the graph does not exist.
        EngineError: it does not load here, or has another contract.
    """

    rate_hz = RATE_HZ
    max_samples = MAX_SAMPLES
    engine = "turn_1"

    def __init__(self, settings: Turn1Settings) -> None:
        settings.check()
        providers = PROVIDERS[settings.device]
        if providers[0] not in onnxruntime.get_available_providers():
            raise EngineError(
                f"{settings.device} is not available: install onnxruntime-gpu, or set device: cpu",
                engine=self.engine,
                retryable=False,
            )
        self._session = _open(settings.file, providers, settings.cpu_count, self.engine)
        inputs = _shapes(self._session.get_inputs())
        audio = inputs.get(AUDIO, ())
        outputs = _shapes(self._session.get_outputs())
        if set(inputs) != {AUDIO} or len(audio) != 2 or PROBABILITY not in outputs:
            raise EngineError(
                f"{settings.file.name} does not map {AUDIO} (1, samples) to {PROBABILITY}",
                engine=self.engine,
                retryable=False,
            )
        self._samples = audio[1] if isinstance(audio[1], int) else None

    def estimate(self, audio: np.ndarray) -> TurnEstimate:
        """Return the estimate for a turn, as ``Turn1Mini.estimate``."""
        heard = _newest(audio)
        if not len(heard):
            return TurnEstimate(0.0)
        if self._samples is not None:
            heard = heard[-self._samples :]
            heard = np.pad(heard, (self._samples - len(heard), 0))
        (probability,) = _run(self._session, [PROBABILITY], {AUDIO: heard[None]}, self.engine)
        if probability.size != 1:
            raise EngineError("the network returned more than one probability", engine=self.engine)
        return TurnEstimate(_checked(float(probability.reshape(-1)[0]), self.engine))


def _present(folder: Path, names: Sequence[str]) -> Path:
    """Return the first of these files that exists, or else the path of the first."""
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _require(engine: str, file: Path, advice: str) -> None:
    if not file.is_file():
        raise ModelFileError(f"{engine!r} needs {file}, which does not exist: {advice}")


def _open(file: Path, providers: list[str], cpu_count: int, engine: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = cpu_count
    try:
        # Loaded by path and not by content: a graph over 2 GB has its weights in a file of its own.
        return onnxruntime.InferenceSession(str(file), sess_options=options, providers=providers)
    except Exception as error:  # the errors of onnxruntime have no common base class
        raise EngineError(f"cannot load {file.name}", engine=engine, retryable=False) from error


def _shapes(ends: Sequence[Any]) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shape of each input or output by its name; a free dimension is not a number."""
    return {each.name: tuple(each.shape) for each in ends}


def _run(
    session: onnxruntime.InferenceSession, outputs: list[str], inputs: Mapping[str, np.ndarray], engine: str
) -> list[np.ndarray]:
    try:
        found: list[np.ndarray] = session.run(outputs, dict(inputs))
    except Exception as error:  # the errors of onnxruntime have no common base class
        raise EngineError("the network failed", engine=engine) from error
    return found


def _newest(audio: np.ndarray) -> np.ndarray:
    if audio.ndim != 1:
        raise ShapeError(f"expected (samples,), got {audio.shape}")
    return np.asarray(audio[-MAX_SAMPLES:], dtype=np.float32)


def _checked(probability: float, engine: str) -> float:
    if not 0.0 <= probability <= 1.0:
        raise EngineError("the network returned no probability", engine=engine)
    return probability
