"""Classifier of short speech over the bot: does it claim the floor, or is it a backchannel?

Input: one short utterance. Output: the log odds that its speaker claims the floor. A recogniser writes its
best guess at half a second of sound, and a grammar has only its phrases; this classifier uses the sound
itself, independent of the words.

It uses smart-turn's encoder (Whisper's, trained to detect ends of turns) up to its third layer, where the
states still represent the sounds. The states of the first, the second and the last third of the utterance are
averaged, and one line (logistic regression) weighs them. ``research.turn_taking.floor`` fits the line, on
synthetic voices. The line belongs to the network that it was fitted on, which is checked.

Runs on the caller's thread, about 40 ms of one core; the interpreter lock is released in the network. The
session is shared and thread-safe.
"""

from pathlib import Path

import numpy as np

from parley.core.errors import ShapeError
from parley.models.turn.network import STATE_SAMPLES, STATE_SIZE, THIRD_LAYER, LinearScore, Network, averaged
from parley.models.turn.smart_turn import RATE_HZ, LogMel

ENGINE = "floor"
PARTS = 3
FEATURES = PARTS * STATE_SIZE
# The utterance is the audio within this range of its loudest 10 ms, and a margin around it.
RANGE_DB = 30.0
FRAME_SAMPLES = 160
MARGIN_FRAMES = 3
# Audio with a lower peak is silence (-60 dBFS).
SILENT_PEAK = 0.001
# Only the end of a longer sound is used.
LONGEST_SAMPLES = 2 * RATE_HZ
LINE_FILE = Path(__file__).with_name("floor_line.npz")


class FloorEncoder:
    """Extractor of the features that the line weighs. Thread-safe.

    Args:
        weights: file of the network; None for the one that comes with Pipecat.

    Raises:
        ConfigError: see ``Network``.
        EngineError: see ``Network``.
    """

    def __init__(self, weights: Path | None = None) -> None:
        self._mel = LogMel()
        self._network = Network([THIRD_LAYER], weights=weights, engine=ENGINE)
        self.network = self._network.sha256

    def features(self, audio: np.ndarray) -> np.ndarray:
        """Return float32, (``FEATURES``,), of one short utterance: float32, (samples,), 16 kHz, in [-1, 1].

        Raises:
            ShapeError: not one-dimensional, or empty.
            EngineError: the network failed.
        """
        if audio.ndim != 1 or not len(audio):
            raise ShapeError(f"expected (samples,), got {audio.shape}")
        voice = sounding(audio)[-LONGEST_SAMPLES:]
        [states] = self._network.run([THIRD_LAYER], self._mel(voice))
        # The network pads at the front, so the utterance is at the end of its states.
        return averaged(states[-max(PARTS, -(-len(voice) // STATE_SAMPLES)) :], PARTS)


class FloorJudge:
    """Encoder with the fitted line. Thread-safe.

    Args:
        line: file of the line; None for the one that comes with Parley.
        weights: file of the network; None for the one that comes with Pipecat.

    Raises:
        ConfigError: see ``Network`` and ``LinearScore.load``.
        EngineError: see ``Network``.
    """

    def __init__(self, line: Path | None = None, *, weights: Path | None = None) -> None:
        self._encoder = FloorEncoder(weights)
        self._line = LinearScore.load(
            line or LINE_FILE, features=FEATURES, network=self._encoder.network, engine=ENGINE
        )

    def log_odds(self, audio: np.ndarray) -> float | None:
        """Return the log odds that the speaker of a short utterance claims the floor; None for silence.

        The network would return a value for silence too. ``audio`` and errors are those of ``features``.
        """
        features = self._encoder.features(audio)
        loudest = float(np.max(np.abs(audio)))
        return self._line.log_odds(features) if loudest > SILENT_PEAK else None


def sounding(audio: np.ndarray) -> np.ndarray:
    """Return the audio without its soft beginning and end; all of it where nothing sounds."""
    frames = len(audio) // FRAME_SAMPLES
    power = np.mean(audio[: frames * FRAME_SAMPLES].reshape(frames, FRAME_SAMPLES) ** 2, axis=1)
    loud = np.flatnonzero(power > power.max(initial=0.0) * 10 ** (-RANGE_DB / 10))
    if not loud.size:
        return audio
    first, last = loud[0] - MARGIN_FRAMES, loud[-1] + 1 + MARGIN_FRAMES
    return audio[max(0, first * FRAME_SAMPLES) : last * FRAME_SAMPLES]
