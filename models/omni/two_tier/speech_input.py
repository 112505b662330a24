"""Input side of the small tier: detects voices and their ends, completeness of pauses, and words.

Inputs: units of the caller's audio, and transcripts of a separate recogniser, from any thread. Output: calls
of ``DuplexPolicy``, with times that are counted in samples. Voice activity runs at once, on the engine's
thread (1 ms for 32 ms of audio). Completeness is computed in an executor when a voice may have ended, and
reported with the first unit after its result.

Words come from a recogniser, because an engine that speaks does not transcribe. Without one a turn has no
words and is not answered.
"""

import threading
from collections import deque
from concurrent.futures import Executor, Future

import numpy as np
from loguru import logger
from pydantic import Field

from parley.core.speech_reports import OwnVoice, SpeechReport, Spotted, Spotting
from parley.core.strict_model import StrictModel
from parley.models.turn import TurnCompleteness, TurnEstimate
from parley.models.vad import VoiceActivityDetector
from parley.turn_taking.barge_in.speaker_level import SpeakerLevel
from parley.turn_taking.duplex_policy import DuplexPolicy
from parley.turn_taking.voice_gate import GateEvent, GateState, VoiceGate

# Greatest number of transcripts that wait for the next unit; a recogniser makes fewer.
WAITING_WORDS = 64
# Audio before a voice was detected that the completeness model gets too, as in a cascade.
PRE_SPEECH_MS = 500


class SpeechInputSettings(StrictModel):
    """Thresholds for the beginning and end of a voice."""

    confidence: float = Field(0.7, gt=0, lt=1, description="probability from which a window counts as voice")
    start_ms: int = Field(128, ge=32, le=2_000, description="voice before speech counts as started")
    stop_ms: int = Field(128, ge=32, le=5_000, description="silence before speech counts as ended")
    pause_ms: int = Field(96, ge=32, le=5_000, description="silence that counts as a possible end")
    least_db: float = Field(-60.0, ge=-110, le=-10, description="lowest level of a voice, in dB full scale")


class SpeechInput:
    """Input side of one caller. Used from the engine's thread except for ``on_words``.

    Args:
        policy: notified of voices, pauses and words.
        vad: shared weights.
        turn: shared weights; None for no completeness.
        executor: runs the completeness model.
        settings: thresholds.

    Attributes:
        policy: as given.
        rate_hz: rate of the audio.
    """

    def __init__(
        self,
        policy: DuplexPolicy,
        *,
        vad: VoiceActivityDetector,
        turn: TurnCompleteness | None,
        executor: Executor,
        settings: SpeechInputSettings,
    ) -> None:
        self.policy = policy
        self._vad, self._turn = vad, turn
        self.rate_hz = vad.rate_hz
        self._executor = executor
        self._settings = settings
        self._stream = vad.open_stream()
        self._gate = VoiceGate(
            vad.window_samples,
            rate_hz=vad.rate_hz,
            **settings.model_dump(),
        )
        self._pending = np.zeros(0, np.float32)
        self._heard: deque[np.ndarray] = deque()
        self._heard_samples = 0
        self._estimate: Future[TurnEstimate] | None = None
        self._usual = SpeakerLevel()
        self._over_bot = False
        self._words: deque[SpeechReport] = deque(maxlen=WAITING_WORDS)
        # Number of the voice, as the policy counts, that is being checked for commands.
        self._spotting: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def now_ms(self) -> int:
        """End of the audio that was processed, in ms."""
        return self._gate.position * 1000 // self._vad.rate_hz

    @property
    def is_voiced(self) -> bool:
        """True while a voice is on."""
        return self._gate.state in (GateState.SPEAKING, GateState.STOPPING)

    def on_words(self, words: SpeechReport) -> None:
        """Queue a message for the next unit. Callable from any thread."""
        with self._lock:
            self._words.append(words)

    def hear(self, audio: np.ndarray, *, bot_speaks: bool) -> None:
        """Process a unit of the caller's audio: float32, (samples,), at the detector's rate."""
        self._over_bot = self._over_bot or bot_speaks
        self._keep(audio)
        self._pending = np.concatenate((self._pending, audio))
        window = self._vad.window_samples
        while len(self._pending) >= window:
            piece, self._pending = self._pending[:window], self._pending[window:]
            power = float(np.vdot(piece, piece)) / window
            event = self._gate.on_window(self._stream.probability(piece), power)
            if event is not None:
                self._report(event, bot_speaks=bot_speaks)
        if self.is_voiced:
            self._report_level()
        self._report_words()
        self._report_estimate()

    def close(self) -> None:
        """Cancel the completeness estimate."""
        if self._estimate is not None:
            self._estimate.cancel()

    def _report(self, event: GateEvent, *, bot_speaks: bool) -> None:
        policy, chosen, now_ms = self.policy, self._settings, self.now_ms
        if event is GateEvent.ONSET:
            self._over_bot = bot_speaks
            policy.on_onset(now_ms)
        elif event is GateEvent.STARTED:
            self._forget_estimate()
            policy.on_voice_started(now_ms, voiced_ms=chosen.start_ms)
        elif event is GateEvent.PAUSED:
            policy.on_pause(now_ms)
            self._ask()
        elif event is GateEvent.RESUMED:
            self._forget_estimate()
            policy.on_resume(now_ms)
        else:
            self._report_level(learns=True)
            policy.on_voice_stopped(now_ms, silence_ms=chosen.stop_ms)

    def _report_level(self, *, learns: bool = False) -> None:
        level_db = self._gate.level_db
        if level_db is None:
            return
        above_usual_db = self._usual.above_usual_db(level_db)
        if above_usual_db is not None:
            self.policy.on_level(self.now_ms, above_usual_db)
        began, ended = self._gate.started_sample, self._gate.stopped_sample
        if learns and not self._over_bot and began is not None and ended is not None:
            self._usual.learn(level_db, voiced_ms=(ended - began) * 1000 // self._vad.rate_hz)

    def turn_over(self) -> None:
        """Discard audio of a turn that is over: the next pause is judged without it."""
        self._heard.clear()
        self._heard_samples = 0

    def _keep(self, audio: np.ndarray) -> None:
        """Keep the audio of the turn so far; between turns only enough for a soft first sound."""
        if self._turn is None:
            return
        is_turn = self._gate.state is not GateState.QUIET or self.policy.awaits_end
        keep = self._turn.max_samples if is_turn else PRE_SPEECH_MS * self._vad.rate_hz // 1000
        self._heard.append(audio)
        self._heard_samples += len(audio)
        while self._heard_samples - len(self._heard[0]) >= keep:
            self._heard_samples -= len(self._heard.popleft())

    def _ask(self) -> None:
        if self._turn is not None:
            self._forget_estimate()
            heard = np.concatenate(list(self._heard))[-self._turn.max_samples :]
            self._estimate = self._executor.submit(self._turn.estimate, heard)

    def _forget_estimate(self) -> None:
        if self._estimate is not None:
            self._estimate.cancel()
            self._estimate = None

    def _report_estimate(self) -> None:
        """Report an estimate, which applies to the pause for which it was made, once the voice has ended."""
        estimate = self._estimate
        if estimate is None or not estimate.done() or self._gate.state is not GateState.QUIET:
            return
        self._estimate = None
        if (error := estimate.exception()) is not None:
            logger.warning(f"two_tier: no completeness score for a pause: {error}")
            return
        known = estimate.result()
        self.policy.on_completeness(known.complete, filler_log_odds=known.filler_log_odds)

    def _report_words(self) -> None:
        with self._lock:
            words, self._words = list(self._words), deque(maxlen=WAITING_WORDS)
        for each in words:
            if isinstance(each, Spotting):
                self._spotting = {each.number: self.policy.voice_number}
                self.policy.on_spotting()
            elif isinstance(each, Spotted):
                voice, odds = self._spotting.get(each.number), each.floor_log_odds
                self.policy.on_spotted(self.now_ms, each.text, voice=voice, floor_log_odds=odds)
            elif isinstance(each, OwnVoice):
                self.policy.on_self_voice(self.now_ms, own=each.is_own)
            else:
                notify = self.policy.on_final if each.is_final else self.policy.on_partial
                notify(self.now_ms, each.text, confidences=each.confidences)
