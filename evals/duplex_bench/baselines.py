"""Bots that calibrate the figures: always talking, always silent, timers, and a random listener.

They are engines like any other and pass through the same runner. None of them understands speech. They repeat
a single text. Their time is the length of the audio they get: no thread, no clock.

    always_talk          from the first unit to the last
    always_silent        nothing
    timer_300, timer,    begins when the caller has been silent for 0.3, 0.6 or 1.0 s after a voice, and
      timer_1000         falls silent 0.3 s into a voice: voice activity and a timer, as most bots are
    random_backchannel   hums at random moments, ``RATE_PER_S`` of them, whatever the caller says
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from parley.core.errors import ConfigError, ShapeError
from parley.core.media import pcm16_to_float
from parley.core.units import Vote
from parley.evals.harness.voices import pieces_of
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.phases import EngineCall, Phases, checked_audio
from parley.models.tts import TextToSpeech
from parley.models.vad import VoiceActivityDetector
from parley.turn_taking.voice_gate import GateState, VoiceGate

UNIT_MS, INPUT_HZ = 80, 16_000
TIMERS_MS = {"timer_300": 300, "timer": 600, "timer_1000": 1_000}
# After this length of the caller's voice the bot stops.
STOPS_MS = 300
# People make about 0.28 in each second of the other's talk (CANDOR); published models make far fewer.
RATE_PER_S = 0.1
SPEECH = (
    "I can tell you something about that. There are a few things that you need to know, and I will go "
    "through them one after the other. First of all, you can find most of it in the app. Then there are the "
    "branches, which are open on weekdays. If anything is missing, you can always ask somebody there."
)
HUM = "Mhm."


@dataclass(frozen=True, slots=True)
class Phrase:
    """Synthesised speech with the places of its words.

    Attributes:
        audio: float32, (samples,).
        rate_hz: of it.
        words: with the sample at which each begins.
    """

    audio: np.ndarray
    rate_hz: int
    words: tuple[tuple[str, int], ...] = ()


def spoken(tts: TextToSpeech, text: str) -> Phrase:
    """Synthesise a text in this voice."""
    pieces = pieces_of(tts, text)
    words = [(word.text, word.start_ms * tts.rate_hz // 1000) for piece in pieces for word in piece.words]
    return Phrase(pcm16_to_float(b"".join(piece.pcm for piece in pieces)), tts.rate_hz, tuple(words))


class Speech:
    """Endless repetition of a phrase, taken a unit at a time."""

    def __init__(self, phrase: Phrase) -> None:
        self._phrase = phrase
        self._at = 0

    def begin(self) -> None:
        """Restart from the first word."""
        self._at = 0

    @property
    def is_over(self) -> bool:
        """True when the phrase was spoken once."""
        return self._at >= len(self._phrase.audio)

    def take(self) -> tuple[np.ndarray, str]:
        """Return the next unit, with the words that begin in it."""
        samples = UNIT_MS * self._phrase.rate_hz // 1000
        audio = self._phrase.audio[self._at : self._at + samples]
        words = [word for word, at in self._phrase.words if self._at <= at < self._at + samples]
        self._at += samples
        return audio, "".join(f" {word}" for word in words)


class Policy:
    """Reaction of a baseline to a unit; this one is silent."""

    def hear(self, audio: np.ndarray) -> None:
        """Take a unit: float32, (samples,), 16 kHz."""

    def vote(self) -> UnitResult:
        """Return the output of the unit."""
        return UnitResult(Vote.LISTEN)

    def hush(self) -> None:
        """Give up the present speech."""


class AlwaysTalk(Policy):
    """Policy that talks from the first unit to the last."""

    def __init__(self, phrase: Phrase) -> None:
        self._speech = Speech(phrase)

    def vote(self) -> UnitResult:
        """Return more of the phrase."""
        if self._speech.is_over:
            self._speech.begin()
        audio, words = self._speech.take()
        return UnitResult(Vote.SPEAK, words, audio)


class Timer(Policy):
    """Policy that talks after the caller has been silent for a while."""

    def __init__(self, phrase: Phrase, vad: VoiceActivityDetector, silence_ms: int) -> None:
        self._speech, self._vad = Speech(phrase), vad
        self._stream = vad.open_stream()
        self._gate = VoiceGate(
            vad.window_samples,
            rate_hz=vad.rate_hz,
            start_ms=STOPS_MS,
            stop_ms=silence_ms,
            pause_ms=silence_ms,
            confidence=0.7,
            least_db=-60.0,
        )
        self._pending = np.zeros(0, np.float32)
        self._talks = self._was_voiced = False

    def hear(self, audio: np.ndarray) -> None:
        """Run voice activity detection."""
        self._pending = np.concatenate((self._pending, audio))
        window = self._vad.window_samples
        while len(self._pending) >= window:
            piece, self._pending = self._pending[:window], self._pending[window:]
            self._gate.on_window(self._stream.probability(piece), float(np.vdot(piece, piece)) / window)

    def vote(self) -> UnitResult:
        """Begin when a voice has ended, stop when one has begun."""
        is_voiced = self._gate.state in (GateState.SPEAKING, GateState.STOPPING)
        ended, self._was_voiced = self._was_voiced and not is_voiced, is_voiced
        if is_voiced and self._talks:
            self._talks = False
            return UnitResult(Vote.YIELD, end_of_turn=True)
        if ended:
            self._talks = True
            self._speech.begin()
        if not self._talks:
            return UnitResult(Vote.LISTEN)
        audio, words = self._speech.take()
        self._talks = not self._speech.is_over
        return UnitResult(Vote.SPEAK, words, audio, end_of_turn=not self._talks)

    def hush(self) -> None:
        """Wait for the next voice."""
        self._talks = False


class RandomBackchannel(Policy):
    """Policy that hums at random, whatever the caller says."""

    def __init__(self, phrase: Phrase, rng: np.random.Generator, rate_per_s: float) -> None:
        self._speech, self._rng, self._rate_per_s = Speech(phrase), rng, rate_per_s
        self._hums = False

    def vote(self) -> UnitResult:
        """Begin a backchannel in each unit with the same probability."""
        if not self._hums and self._rng.random() < self._rate_per_s * UNIT_MS / 1000:
            self._hums = True
            self._speech.begin()
        if not self._hums:
            return UnitResult(Vote.LISTEN)
        audio, _ = self._speech.take()
        self._hums = not self._speech.is_over
        return UnitResult(Vote.BACKCHANNEL, audio=audio)

    def hush(self) -> None:
        """Give up the present backchannel."""
        self._hums = False


class _NoSettings(BaseModel):
    """Settings of a baseline: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BaselineEngine:
    """Engine of a conversation with a baseline; see ``OmniEngine``.

    Args:
        build: makes the policy, anew for each conversation.
        rate_hz: of its speech.
    """

    unit_ms = first_unit_ms = UNIT_MS
    input_rate_hz = INPUT_HZ
    context_units: int | None = None
    takes_frames = False

    def __init__(self, build: Callable[[], Policy], rate_hz: int) -> None:
        self.output_rate_hz = rate_hz
        self._build = build
        self._policy = Policy()
        self._phases = Phases()

    def prepare(self, preparation: Preparation) -> None:
        """Build the policy of a conversation.

        Raises:
            ConfigError: there are settings.
        """
        try:
            _NoSettings.model_validate(preparation.settings)
        except ValidationError as error:
            raise ConfigError(f"a baseline has no settings, got {sorted(preparation.settings)}") from error
        self._phases.enter(EngineCall.PREPARE)
        self._policy = self._build()

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Pass a unit of the caller's audio to the policy.

        Raises:
            ShapeError: there are frames, or the audio is no unit.
        """
        before = self._phases.phase
        active = self._phases.enter(EngineCall.PREFILL)
        try:
            if frames:
                raise ShapeError("a baseline takes no frames")
            heard = checked_audio(audio, UNIT_MS * INPUT_HZ // 1000, frames=0)
        except ShapeError:
            self._phases.take_back(EngineCall.PREFILL, before)
            raise
        if active:
            self._policy.hear(heard)

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Return the policy's output; ``force_listen`` makes it give up and yield."""
        if not self._phases.enter(EngineCall.GENERATE):
            return UnitResult(Vote.LISTEN)
        result = self._policy.vote()
        if force_listen and not result.is_listen:
            self._policy.hush()
            return UnitResult(Vote.YIELD, end_of_turn=True)
        return result

    def finalize(self) -> None:
        """End the unit."""
        self._phases.enter(EngineCall.FINALIZE)

    def stop(self) -> None:
        """Stop: later units only listen."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """End the conversation and drop its policy."""
        self._phases.enter(EngineCall.CLEANUP)
        self._policy = Policy()


class BaselineHost:
    """Host of all conversations with a baseline.

    Args:
        build: makes a policy, given the number of engines opened before it.
        rate_hz: of its speech.
    """

    sessions: int | None = None
    takes_frames = False

    def __init__(self, build: Callable[[int], Policy], rate_hz: int) -> None:
        self._build, self._rate_hz = build, rate_hz
        self._opened = 0

    def open_engine(self) -> BaselineEngine:
        """Open an engine; its policy gets the number of engines opened before."""
        number, self._opened = self._opened, self._opened + 1
        return BaselineEngine(lambda: self._build(number), self._rate_hz)

    def close(self) -> None:
        """Do nothing: a baseline holds no resources."""


def baselines(
    speech: Phrase, hum: Phrase, vad: VoiceActivityDetector, *, seed: int, rate_per_s: float = RATE_PER_S
) -> Mapping[str, BaselineHost]:
    """Return all baselines by name, in the order of a report.

    Args:
        speech: text of the talking ones.
        hum: backchannel of the random listener.
        vad: for the timers.
        seed: of the random listener, with the number of the conversation.
        rate_per_s: frequency of its backchannels.
    """

    def timer(silence_ms: int) -> Callable[[int], Policy]:
        return lambda number: Timer(speech, vad, silence_ms)

    builders: dict[str, Callable[[int], Policy]] = {
        "always_talk": lambda number: AlwaysTalk(speech),
        "always_silent": lambda number: Policy(),
        **{name: timer(silence_ms) for name, silence_ms in TIMERS_MS.items()},
        "random_backchannel": lambda number: RandomBackchannel(
            hum, np.random.default_rng([seed, number]), rate_per_s
        ),
    }
    return {
        name: BaselineHost(build, (hum if name == "random_backchannel" else speech).rate_hz)
        for name, build in builders.items()
    }
