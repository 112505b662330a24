"""Voice activity for the pipeline: the shared detector as Pipecat's ``VADAnalyzer``.

Input: 16-bit microphone audio in pieces of any length. Outputs: quiet, starting, speaking or stopping, and
the samples of the stream at which a voice began and ended: ``turn_taking.voice_gate`` decides.

The weights and the executor are shared by all calls; this object holds one caller's state. Audio that
completes no window costs no thread change, several windows at once cost one. Inference never runs on the
loop, except without an executor (simulated time, where the detector costs nothing). When inference is slow,
later audio waits in the processor's queue. With a ``hosted`` front end the windows come from it. When it
fails, this process continues, with fresh state for the caller.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from loguru import logger
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams, VADState
from pydantic import Field

from parley.core.call_events import CallEvent, VoicePaused, VoiceResumed, VoiceSuspected
from parley.core.errors import ConfigError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.core.strict_model import StrictModel
from parley.models.omni.two_tier.speech_input import SpeechInputSettings
from parley.models.vad import VoiceActivityDetector
from parley.models.vad.meter import VoiceMeter, Window
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.voice_gate import GateEvent, GateState, VoiceGate

# Pipecat maps loudness from -110 to -10 dB onto 0..1; its ``min_volume`` is read on the same scale.
QUIETEST_DB = -110.0
LOUDNESS_RANGE_DB = 100.0

_STATES = {
    GateState.QUIET: VADState.QUIET,
    GateState.STARTING: VADState.STARTING,
    GateState.SPEAKING: VADState.SPEAKING,
    GateState.STOPPING: VADState.STOPPING,
}
_EVENTS: dict[GateEvent, type[CallEvent]] = {
    GateEvent.ONSET: VoiceSuspected,
    GateEvent.PAUSED: VoicePaused,
    GateEvent.RESUMED: VoiceResumed,
}


class VadSettings(StrictModel):
    """Thresholds and times of the beginning and end of a voice."""

    confidence: float = Field(
        default=0.7, gt=0, lt=1, description="probability from which a window counts as voice"
    )
    start_ms: int = Field(default=128, ge=32, le=2_000, description="voice before speech counts as started")
    stop_ms: int = Field(default=128, ge=32, le=5_000, description="silence before speech counts as ended")
    pause_ms: int = Field(
        default=96, ge=32, le=5_000, description="silence that is reported as a possible end"
    )
    min_volume: float = Field(
        default=0.5, ge=0, le=1, description="lowest volume of speech: 0 is -110 dB, 1 is -10 dB full scale"
    )

    def params(self) -> VADParams:
        """Return these settings for Pipecat."""
        return VADParams(
            confidence=self.confidence,
            start_secs=self.start_ms / 1000,
            stop_secs=self.stop_ms / 1000,
            min_volume=self.min_volume,
        )

    def as_speech_input(self) -> SpeechInputSettings:
        """Return these settings for an engine that detects voices itself."""
        return SpeechInputSettings(
            confidence=self.confidence,
            start_ms=self.start_ms,
            stop_ms=self.stop_ms,
            pause_ms=self.pause_ms,
            least_db=QUIETEST_DB + self.min_volume * LOUDNESS_RANGE_DB,
        )


# Settings of every call.
VOICE = VadSettings()


class SharedVadAnalyzer(VADAnalyzer):
    """Voice activity of one caller on a shared detector.

    Args:
        detector: shared weights.
        executor: where inference runs, shared by all calls; None runs it on the loop.
        params: thresholds and times; the defaults are those of ``VadSettings``.
        events: events of the call. The first window of a possible voice, a pause inside of a voice and its
            end are published at once; Pipecat reports in a frame that a voice has begun or ended.
        pause_ms: quiet inside of a voice that is published, before the voice has ended: the moment to begin
            work that is needed if it does.
        listeners: called with every piece of the caller's audio before it is judged, so that they have all
            audio that a later event is about. Called on the loop; must not block.
        hosted: measures in the detector's place; closed with the analyzer.
    """

    def __init__(
        self,
        detector: VoiceActivityDetector,
        *,
        executor: Executor | None,
        params: VADParams | None = None,
        events: CallEvents | None = None,
        pause_ms: int = 96,
        listeners: Sequence[Callable[[bytes], None]] = (),
        hosted: HostedFrontEnd | None = None,
    ) -> None:
        self._hosted, self._is_over = hosted, False
        self._listeners = tuple(listeners)
        self._events = events or CallEvents()
        self._pause_ms = pause_ms
        super().__init__(sample_rate=detector.rate_hz, params=params or VOICE.params())
        self._detector = detector
        self._shared_executor = executor
        self._stream = detector.open_stream()
        self._pending = bytearray()
        self._window_bytes = detector.window_samples * PCM_BYTES_PER_SAMPLE
        self._gate = self._new_gate()
        self._meter = self._new_meter()

    def set_sample_rate(self, sample_rate: int) -> None:
        """Set the pipeline's rate.

        Raises:
            ConfigError: it is not the detector's.
        """
        if sample_rate != self._detector.rate_hz:
            raise ConfigError(
                f"voice activity detection needs input audio at {self._detector.rate_hz} Hz, got "
                f"{sample_rate} Hz"
            )
        super().set_sample_rate(sample_rate)

    def set_params(self, params: VADParams) -> None:
        """Change thresholds and times; speech in progress is forgotten, as in the base class."""
        super().set_params(params)
        before, self._gate = self._gate, self._new_gate()
        self._gate.follow(before)
        self._meter = self._new_meter()

    def _new_gate(self) -> VoiceGate:
        params = self.params
        return VoiceGate(
            self._detector.window_samples,
            rate_hz=self._detector.rate_hz,
            start_ms=round(params.start_secs * 1000),
            stop_ms=round(params.stop_secs * 1000),
            pause_ms=self._pause_ms,
            confidence=params.confidence,
            least_db=self._least_db,
        )

    def _new_meter(self) -> VoiceMeter:
        return VoiceMeter(
            self._stream,
            self._detector.window_samples,
            rate_hz=self._detector.rate_hz,
            least_db=self._least_db,
        )

    @property
    def _least_db(self) -> float:
        return QUIETEST_DB + LOUDNESS_RANGE_DB * self.params.min_volume

    @property
    def speech_started_sample(self) -> int | None:
        """Sample at which the voice of the last speech began; None before any."""
        return self._gate.started_sample

    @property
    def speech_stopped_sample(self) -> int | None:
        """Sample at which it fell quiet; None before any."""
        return self._gate.stopped_sample

    @property
    def judged_ms(self) -> int:
        """Length of the audio judged so far."""
        return self._gate.position * 1000 // self._detector.rate_hz

    @property
    def voice_level_db(self) -> float | None:
        """Level of the present voice so far, or of the last one, dBFS; None before any."""
        return self._gate.level_db

    def num_frames_required(self) -> int:
        """Return the number of samples per window."""
        return self._detector.window_samples

    def voice_confidence(self, buffer: bytes) -> float:
        """Return the probability of voice in one window of 16-bit audio."""
        return self._stream.probability(pcm16_to_float(bytes(buffer)))

    async def analyze_audio(self, buffer: bytes) -> VADState:
        """Process audio of any length and return the state after its last whole window.

        Raises:
            EngineError: the detector failed.
        """
        for listen in self._listeners:
            listen(buffer)
        self._pending += buffer
        whole = len(self._pending) - len(self._pending) % self._window_bytes
        if not whole:
            return _STATES[self._gate.state]
        windows = bytes(self._pending[:whole])
        del self._pending[:whole]
        for probability, power in await self._measured(windows):
            self._publish(self._gate.on_window(probability, power))
        return _STATES[self._gate.state]

    def end_voice(self) -> None:
        """End a voice whose audio has ended: what comes later is another one."""
        self._gate.end()

    async def cleanup(self) -> None:
        self._is_over = True
        await super().cleanup()
        # The listeners hold the turn policies, which hold this object.
        self._listeners = ()
        if self._hosted is not None:
            self._hosted.close()

    async def _measured(self, windows: bytes) -> list[Window]:
        if self._hosted is not None:
            try:
                return await self._hosted.measure(windows, len(windows) // self._window_bytes)
            except EngineError as error:
                if self._is_over:
                    return []
                self._hosted = None
                logger.warning(f"voice activity detection of a call continues in this process: {error}")
        if self._shared_executor is None:
            return self._measure(windows)
        return await asyncio.get_running_loop().run_in_executor(self._shared_executor, self._measure, windows)

    def _measure(self, pcm: bytes) -> list[Window]:
        return self._meter.measure(pcm)

    def _publish(self, event: GateEvent | None) -> None:
        kind = _EVENTS.get(event) if event is not None else None
        if kind is not None:
            self._events.publish(kind(self._events.now_ms()))
