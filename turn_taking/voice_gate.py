"""Decide where a voice begins and ends.

Inputs: for each window of audio in order, the probability of voice and the power. Outputs: ``GateEvent``s,
and the samples of the stream at which the last voice began and ended. Two counters decide: a number of
windows of voice in a row begins it, a number without ends it. A window counts when the model is certain
enough and the last 400 ms were loud enough. Loudness is that of a gating block of ITU-R BS.1770-5 without its
K-weighting. The K-weighting costs twice as much as the network does, while the gate only has to distinguish a
caller from a room.

The module is pure. Each caller has one object; all windows have one length.
"""

import math
from collections import deque
from enum import Enum

BLOCK_MS = 400
# The level of a voice is that of its loudest three windows in a row, about a syllable.
LEVEL_WINDOWS = 3


class GateState(Enum):
    """State of the gate."""

    QUIET = "quiet"
    STARTING = "starting"
    SPEAKING = "speaking"
    STOPPING = "stopping"


class GateEvent(Enum):
    """Change that a window caused."""

    ONSET = "a voice may have begun"
    STARTED = "it has"
    PAUSED = "it may have ended"
    RESUMED = "it had not"
    STOPPED = "it has ended"


class VoiceGate:
    """Voice gate of one caller.

    Args:
        window_samples: length of a window.
        rate_hz: sample rate of the audio.
        start_ms: voice after which speech has begun.
        stop_ms: quiet after which it has ended.
        pause_ms: quiet that is reported as a possible end.
        confidence: probability from which a window holds a voice.
        least_db: least loudness, dB full scale.

    Attributes:
        position: number of samples judged.
        started_sample: where the last voice began; None before any.
        stopped_sample: where it fell quiet; None before any.
    """

    def __init__(
        self,
        window_samples: int,
        *,
        rate_hz: int,
        start_ms: int,
        stop_ms: int,
        pause_ms: int,
        confidence: float,
        least_db: float,
    ) -> None:
        self._window = window_samples
        window_ms = 1000 * window_samples / rate_hz
        self._powers: deque[float] = deque(maxlen=math.ceil(BLOCK_MS / window_ms))
        self._last_powers: deque[float] = deque(maxlen=LEVEL_WINDOWS)
        self._start = max(1, round(start_ms / window_ms))
        self._stop = max(1, round(stop_ms / window_ms))
        self._pause = max(1, round(pause_ms / window_ms))
        self._confidence = confidence
        self._least_power = 10.0 ** (least_db / 10.0)
        # Power of the present or the last voice, and of a sound that may become one.
        self._loudest_power = self._rising_power = 0.0
        self._state = GateState.QUIET
        self._run = 0
        self._run_began = 0
        self._is_paused = False
        self.position = 0
        self.started_sample: int | None = None
        self.stopped_sample: int | None = None

    def follow(self, before: "VoiceGate") -> None:
        """Continue at the position of another gate; a voice in progress is forgotten."""
        self.position = before.position
        self.started_sample, self.stopped_sample = before.started_sample, before.stopped_sample

    def end(self) -> None:
        """End a voice whose audio has ended: what comes later is another one."""
        if self._state in (GateState.SPEAKING, GateState.STOPPING):
            self.stopped_sample = self.position
        self._state, self._run, self._is_paused = GateState.QUIET, 0, False

    @property
    def state(self) -> GateState:
        """The current state."""
        return self._state

    @property
    def level_db(self) -> float | None:
        """Level of the present voice so far, or of the last one, dBFS; None before any."""
        return 10 * math.log10(self._loudest_power) if self._loudest_power > 0 else None

    def on_window(self, probability: float, power: float) -> GateEvent | None:
        """Process the next window and return the change that it caused.

        Args:
            probability: probability that it holds a voice.
            power: mean of the squares of its samples, in [-1, 1].
        """
        began, self.position = self.position, self.position + self._window
        self._powers.append(power)
        is_loud = sum(self._powers) / len(self._powers) >= self._least_power
        is_voice = is_loud and probability >= self._confidence
        if is_voice == (self._state in (GateState.SPEAKING, GateState.STARTING)):
            self._run += 1
        else:
            self._run, self._run_began = 1, began
        if self._state is GateState.QUIET:
            # Loud sound before a voice is no measure of the voice.
            self._rising_power = 0.0
            self._last_powers.clear()
        self._last_powers.append(power)
        if is_voice:
            self._rising_power = max(self._rising_power, sum(self._last_powers) / len(self._last_powers))
        self._state, event = self._following(is_voice)
        if self._state is GateState.SPEAKING:
            self._loudest_power = self._rising_power
        return event

    def _following(self, is_voice: bool) -> tuple[GateState, GateEvent | None]:
        is_speaking = self._state in (GateState.SPEAKING, GateState.STOPPING)
        if is_speaking == is_voice:
            was_paused, self._is_paused = self._is_paused, False
            event = GateEvent.RESUMED if was_paused else None
            return (GateState.SPEAKING if is_speaking else GateState.QUIET), event
        if is_voice:
            if self._run < self._start:
                return GateState.STARTING, GateEvent.ONSET if self._run == 1 else None
            self.started_sample = self._run_began
            return GateState.SPEAKING, GateEvent.STARTED
        if self._run < self._stop:
            self._is_paused = self._is_paused or self._run == self._pause
            return GateState.STOPPING, GateEvent.PAUSED if self._run == self._pause else None
        self._is_paused = False
        self.stopped_sample = self._run_began
        return GateState.QUIET, GateEvent.STOPPED
