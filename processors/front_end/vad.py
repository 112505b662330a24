"""Voice activity for the pipeline: the shared detector behind Pipecat's ``VADAnalyzer``.

In: 16-bit microphone audio in pieces of any length. Out: quiet, starting, speaking or stopping, and at which
sample of the stream a voice began and ended. Decides with two counters: so many windows of voice in a row
begin speech, so many without end it; a window counts when the model is confident and the last 400 ms are loud
enough.

The weights and the executor are shared by all calls; this object holds one caller's state. Audio that
completes no window costs no thread change, several windows at once cost one. Inference never runs on the
loop, except without an executor (simulated time, where the detector costs nothing). Slow: the audio behind
waits in the processor's queue.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams, VADState
from pydantic import BaseModel, ConfigDict, Field

from core.errors import ConfigError
from core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, pcm16_to_float
from models.vad import VoiceActivityDetector

# Pipecat maps loudness from -110 to -10 dB onto 0..1; its ``min_volume`` is read on the same scale.
QUIETEST_DB = -110.0
LOUDNESS_RANGE_DB = 100.0
# Loudness is that of the last 400 ms, a gating block of ITU-R BS.1770-5. Its K-weighting is left out: it
# costs twice as much as the network does, and the gate only has to tell a caller from a room.
LOUDNESS_BLOCK_MS = 400
# The level of a voice is that of its loudest three windows in a row, about a syllable.
LEVEL_WINDOWS = 3


class VadSettings(BaseModel):
    """When a voice begins and ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float = Field(default=0.7, gt=0, lt=1, description="from here on a window holds a voice")
    start_ms: int = Field(default=128, ge=32, le=2_000, description="voice before speech has begun")
    stop_ms: int = Field(default=128, ge=32, le=5_000, description="quiet before speech has ended")
    pause_ms: int = Field(default=96, ge=32, le=5_000, description="quiet that is reported as a possible end")
    min_volume: float = Field(default=0.5, ge=0, le=1, description="0 is -110 dB, 1 is -10 dB full scale")

    def params(self) -> VADParams:
        """The same for Pipecat."""
        return VADParams(
            confidence=self.confidence,
            start_secs=self.start_ms / 1000,
            stop_secs=self.stop_ms / 1000,
            min_volume=self.min_volume,
        )


class SharedVadAnalyzer(VADAnalyzer):
    """One caller's voice activity on a shared detector.

    Args:
        detector: shared weights.
        executor: where inference runs, shared by all calls; None runs it on the loop.
        params: thresholds and times; the defaults are those of ``VadSettings``.
        on_pause: told once when ``pause_ms`` of quiet have passed inside speech, before it has ended: the
            moment to begin what will be needed if it does. Called on the loop; must not block.
        pause_ms: see there.
        on_resume: told when the speech goes on behind such a pause. Called on the loop; must not block.
        on_onset: told when the first window of a possible speech was heard. Called on the loop; must not
            block.
        on_audio: shown every piece of the caller's audio before it is judged, so that whoever keeps it has
            all that a later ``on_pause`` is about. Called on the loop; must not block.

    Attributes:
        speech_started_sample: where the voice of the last begun speech was first heard, counted from the
            first sample of the stream; None before any.
        speech_stopped_sample: where it fell quiet; None before any.
    """

    def __init__(
        self,
        detector: VoiceActivityDetector,
        *,
        executor: Executor | None,
        params: VADParams | None = None,
        on_pause: Callable[[], None] | None = None,
        pause_ms: int = 96,
        on_resume: Callable[[], None] | None = None,
        on_onset: Callable[[], None] | None = None,
        on_audio: Callable[[bytes], None] | None = None,
    ) -> None:
        self._on_audio = on_audio
        self._on_onset = on_onset
        self._on_pause = on_pause
        self._on_resume = on_resume
        self._pause_ms = pause_ms
        super().__init__(sample_rate=detector.rate_hz, params=params or VadSettings().params())
        self.speech_started_sample: int | None = None
        self.speech_stopped_sample: int | None = None
        self._detector = detector
        self._shared_executor = executor
        self._stream = detector.open_stream()
        self._pending = bytearray()
        self._window_bytes = detector.window_samples * PCM_BYTES_PER_SAMPLE
        block_windows = -(-ms_to_samples(LOUDNESS_BLOCK_MS, detector.rate_hz) // detector.window_samples)
        self._powers: deque[float] = deque(maxlen=block_windows)
        self._last_powers: deque[float] = deque(maxlen=LEVEL_WINDOWS)
        # Of the present or the last voice, and of what may become one.
        self._loudest_power = self._rising_power = 0.0
        self._position = 0
        self._state = VADState.QUIET
        self._run_windows = 0
        self._run_began_sample = 0
        self._start_windows = 1
        self._stop_windows = 1
        # ``on_pause`` was told of this silence.
        self._paused = False
        self._min_power = 0.0

    def set_sample_rate(self, sample_rate: int) -> None:
        """Take the pipeline's rate.

        Raises:
            ConfigError: it is not the detector's.
        """
        if sample_rate != self._detector.rate_hz:
            raise ConfigError(
                f"voice activity wants {self._detector.rate_hz} Hz input audio, not {sample_rate} Hz"
            )
        super().set_sample_rate(sample_rate)

    def set_params(self, params: VADParams) -> None:
        """Change thresholds and times; a speech under way is forgotten, as in the base class."""
        super().set_params(params)
        window_s = self._detector.window_samples / self._detector.rate_hz
        self._start_windows = max(1, round(params.start_secs / window_s))
        self._stop_windows = max(1, round(params.stop_secs / window_s))
        self._pause_windows = max(1, round(self._pause_ms / 1000 / window_s))
        self._min_power = math.pow(10.0, (QUIETEST_DB + LOUDNESS_RANGE_DB * params.min_volume) / 10.0)
        self._state = VADState.QUIET
        self._run_windows = 0
        self._paused = False

    @property
    def judged_ms(self) -> int:
        """How much audio has been judged so far."""
        return self._position * 1000 // self._detector.rate_hz

    @property
    def voice_level_db(self) -> float | None:
        """Level of the present voice so far, or of the last one, dBFS; None before any."""
        return 10 * math.log10(self._loudest_power) if self._loudest_power > 0 else None

    def num_frames_required(self) -> int:
        """Samples per window."""
        return self._detector.window_samples

    def voice_confidence(self, buffer: bytes) -> float:
        """Probability of voice in one window of 16-bit audio."""
        return self._stream.probability(pcm16_to_float(bytes(buffer)))

    async def analyze_audio(self, buffer: bytes) -> VADState:
        """Take audio of any length and return the state after its last whole window.

        Raises:
            EngineError: the detector failed.
        """
        if self._on_audio:
            self._on_audio(buffer)
        self._pending += buffer
        whole = len(self._pending) - len(self._pending) % self._window_bytes
        if not whole:
            return self._state
        windows = bytes(self._pending[:whole])
        del self._pending[:whole]
        if self._shared_executor is None:
            measured = self._measure(windows)
        else:
            loop = asyncio.get_running_loop()
            measured = await loop.run_in_executor(self._shared_executor, self._measure, windows)
        for probability, power in measured:
            self._on_window(probability, power)
        return self._state

    def _measure(self, pcm: bytes) -> list[tuple[float, float]]:
        """Voice probability and mean power of each window."""
        windows = pcm16_to_float(pcm).reshape(-1, self._detector.window_samples)
        return [
            (self._stream.probability(window), float(np.vdot(window, window)) / window.size)
            for window in windows
        ]

    def _on_window(self, probability: float, power: float) -> None:
        began_sample, self._position = self._position, self._position + self._detector.window_samples
        self._powers.append(power)
        loud = sum(self._powers) / len(self._powers) >= self._min_power
        voice = loud and probability >= self.params.confidence
        if voice == (self._state in (VADState.SPEAKING, VADState.STARTING)):
            self._run_windows += 1
        else:
            self._run_windows = 1
            self._run_began_sample = began_sample
        if self._state is VADState.QUIET:
            # What was loud before a voice says nothing about it.
            self._rising_power = 0.0
            self._last_powers.clear()
        self._last_powers.append(power)
        if voice:
            self._rising_power = max(self._rising_power, sum(self._last_powers) / len(self._last_powers))
        self._state = self._next_state(voice)
        if self._state is VADState.SPEAKING:
            self._loudest_power = self._rising_power

    def _next_state(self, voice: bool) -> VADState:
        """The state after one more window, which has been counted in the run of its kind."""
        speaking = self._state in (VADState.SPEAKING, VADState.STOPPING)
        if speaking == voice:
            if self._paused:
                self._paused = False
                if self._on_resume:
                    self._on_resume()
            return VADState.SPEAKING if speaking else VADState.QUIET
        if voice:
            if self._run_windows < self._start_windows:
                if self._run_windows == 1 and self._on_onset:
                    self._on_onset()
                return VADState.STARTING
            self.speech_started_sample = self._run_began_sample
            return VADState.SPEAKING
        if self._run_windows < self._stop_windows:
            if self._run_windows == self._pause_windows:
                self._paused = True
                if self._on_pause:
                    self._on_pause()
            return VADState.STOPPING
        self._paused = False
        self.speech_stopped_sample = self._run_began_sample
        return VADState.QUIET
