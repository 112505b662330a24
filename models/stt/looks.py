"""Early classification of a voice over the bot: does the caller claim the floor, or only listen?

Input: the first 0.2 to 0.5 s of a voice. Output: the log odds that its speaker interrupts. Words take two or
three times as long, and a backchannel may have none. The encoder of Moonshine tiny, which a server with that
recogniser has loaded already, processes the sound. Its states over the first and the second half of the voice
so far, and at its end, are weighed by one line for each look (logistic regression).
``research.turn_taking.looks`` fits the lines on the tuning side of the recorded speech. They belong to the
encoder that they were fitted on, which is checked.

A look is one run of the encoder over at most 0.7 s, and nothing is decoded. Runs on the caller's thread; the
interpreter lock is released in the network. Thread-safe.
"""

import zipfile
from pathlib import Path
from typing import Protocol

import numpy as np

from parley.core.errors import EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, pcm16_to_float
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "looks"
RATE_HZ = 16_000
# Duration of voice at each look, by voice activity, and the audio before it that is included.
LOOKS_MS = (192, 240, 288, 352, 448)
BEFORE_MS = 160
# Duration and size of one state of the encoder.
STATE_MS = 24
STATE_SIZE = 288
LAST_STATES = 3
FEATURES = 3 * STATE_SIZE
LINES_FILE = Path(__file__).with_name("look_lines.npz")


class AudioEncoder(Protocol):
    """Encoder of a line of audio."""

    sha256: str

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Return float32, (states, ``STATE_SIZE``), of float32, (samples,), 16 kHz, in [-1, 1]."""
        ...


class LookJudge:
    """Encoder with the fitted lines. Thread-safe.

    Args:
        encoder: computes the states.
        lines: file of the lines; None for the one that comes with Parley.

    Raises:
        EngineError: the lines do not load, or are for another encoder.
    """

    def __init__(self, encoder: AudioEncoder, lines: Path | None = None) -> None:
        self._encoder = encoder
        path = lines or LINES_FILE
        try:
            with np.load(path, allow_pickle=False) as kept:
                self._weights = kept["weights"].astype(np.float32)
                self._bias = kept["bias"].astype(np.float64)
                network = str(kept["network"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise EngineError(f"{path.name} does not load", engine=ENGINE, retryable=False) from error
        if self._weights.shape != (len(LOOKS_MS), FEATURES) or self._bias.shape != (len(LOOKS_MS),):
            raise EngineError(f"{path.name} has weights for other looks", engine=ENGINE, retryable=False)
        if network != encoder.sha256:
            raise EngineError(f"{path.name} is for another encoder", engine=ENGINE, retryable=False)

    def log_odds(self, audio: np.ndarray, look: int) -> float:
        """Return the log odds that the voice claims the floor.

        Args:
            audio: float32, (samples,), 16 kHz, in [-1, 1]: the voice so far and ``BEFORE_MS`` before it.
            look: index in ``LOOKS_MS``.

        Raises:
            ShapeError: not one-dimensional, or there is no such look.
            EngineError: the encoder failed.
        """
        if not 0 <= look < len(LOOKS_MS):
            raise ShapeError(f"there is no look {look}")
        return float(features(self._encoder, audio, look) @ self._weights[look] + self._bias[look])

    def answer(self, question: EngineMessage) -> Answer:
        """Answer a question of ``ask_look``; ``read_look`` decodes the answer.

        Raises:
            ShapeError: the question is invalid, or as ``log_odds``.
            EngineError: as ``log_odds``.
        """
        pcm, look = question.payload, question.facts.get("look")
        if not isinstance(look, int) or not pcm or len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are no question about a voice")
        return {"log_odds": self.log_odds(pcm16_to_float(pcm), look)}, b""


def ask_look(pcm: bytes, look: int) -> EngineMessage:
    """Return the question about a voice: 16-bit mono PCM at 16 kHz, as ``LookJudge.log_odds`` takes it."""
    return EngineMessage(MessageType.MEASURE, facts={"look": look}, payload=pcm)


def read_look(answer: EngineMessage) -> float:
    """Return the log odds of an answer.

    Raises:
        EngineError: the answer has none.
    """
    log_odds = answer.facts.get("log_odds")
    if not isinstance(log_odds, float):
        raise EngineError("the answer has no log odds", engine=ENGINE, retryable=False)
    return log_odds


def features(encoder: AudioEncoder, audio: np.ndarray, look: int) -> np.ndarray:
    """Return float32, (``FEATURES``,), for a line; arguments and errors as ``LookJudge.log_odds``."""
    if audio.ndim != 1 or not len(audio):
        raise ShapeError(f"expected (samples,), got {audio.shape}")
    states = encoder.encode(audio[-look_samples(look) :])
    voiced = states[-max(LAST_STATES, LOOKS_MS[look] // STATE_MS) :]
    halves = np.array_split(voiced, 2)
    parts = (*halves, states[-LAST_STATES:])
    return np.concatenate([part.mean(axis=0) for part in parts]).astype(np.float32)


def look_samples(look: int) -> int:
    """Return the number of samples of a look: the voice and the audio before it."""
    return ms_to_samples(BEFORE_MS + LOOKS_MS[look], RATE_HZ)
