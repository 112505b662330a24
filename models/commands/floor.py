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

from pathlib import Path

import numpy as np

from core.errors import ShapeError
from models.turn.network import STATE_SAMPLES, STATE_SIZE, THIRD_LAYER, Line, Network, averaged
from models.turn.smart_turn import RATE_HZ, LogMel

ENGINE = "floor"
PARTS = 3
FEATURES = PARTS * STATE_SIZE
# The voice is what lies within this of its loudest 10 ms, and a little around it.
RANGE_DB = 30.0
FRAME_SAMPLES = 160
MARGIN_FRAMES = 3
# Peaks below this are nobody's voice (-60 dBFS).
SILENT_PEAK = 0.001
# Only the end of a longer sound is listened to.
LONGEST_SAMPLES = 2 * RATE_HZ
LINE_FILE = Path(__file__).with_name("floor_line.npz")


class FloorEncoder:
    """The features that the line weighs. Thread-safe.

    Args:
        weights: see ``Network``.

    Raises:
        ConfigError, EngineError: as ``Network`` has them.
    """

    def __init__(self, weights: Path | None = None) -> None:
        self._mel = LogMel()
        self._network = Network([THIRD_LAYER], weights=weights, engine=ENGINE)
        self.network = self._network.sha256

    def features(self, audio: np.ndarray) -> np.ndarray:
        """Float32, (``FEATURES``,), of one short voice: float32, (samples,), 16 kHz, in [-1, 1].

        Raises:
            ShapeError: not one-dimensional, or empty.
            EngineError: the network failed.
        """
        if audio.ndim != 1 or not len(audio):
            raise ShapeError(f"expected (samples,), got {audio.shape}")
        voice = sounding(audio)[-LONGEST_SAMPLES:]
        [states] = self._network.run([THIRD_LAYER], self._mel(voice))
        # Sound stands at the end of what the network hears.
        return averaged(states[-max(PARTS, -(-len(voice) // STATE_SAMPLES)) :], PARTS)


class FloorJudge:
    """Encoder and line. Thread-safe.

    Args:
        line: its file; None for the one that comes with Parley.
        weights: see ``Network``.

    Raises:
        ConfigError, EngineError: as ``Network`` and ``Line.load`` have them.
    """

    def __init__(self, line: Path | None = None, *, weights: Path | None = None) -> None:
        self._encoder = FloorEncoder(weights)
        self._line = Line.load(
            line or LINE_FILE, features=FEATURES, network=self._encoder.network, engine=ENGINE
        )

    def log_odds(self, audio: np.ndarray) -> float | None:
        """That whoever this short voice is wants the floor; None where nothing sounds, of which the network
        makes anything. ``audio`` and errors as ``features`` has them.
        """
        features = self._encoder.features(audio)
        loudest = float(np.max(np.abs(audio)))
        return self._line.log_odds(features) if loudest > SILENT_PEAK else None


def sounding(audio: np.ndarray) -> np.ndarray:
    """The voice without what is soft in front and behind; all of it where nothing sounds."""
    frames = len(audio) // FRAME_SAMPLES
    power = np.mean(audio[: frames * FRAME_SAMPLES].reshape(frames, FRAME_SAMPLES) ** 2, axis=1)
    loud = np.flatnonzero(power > power.max(initial=0.0) * 10 ** (-RANGE_DB / 10))
    if not loud.size:
        return audio
    first, last = loud[0] - MARGIN_FRAMES, loud[-1] + 1 + MARGIN_FRAMES
    return audio[max(0, first * FRAME_SAMPLES) : last * FRAME_SAMPLES]
