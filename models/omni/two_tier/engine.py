"""The two-tier engine: a policy that costs nothing decides every 80 ms, and a model is woken for content.

In: units of the caller's audio, words of a recogniser beside. Out: a vote for each unit, and a unit of speech
where there is something to say. The ears tell the policy what is heard; what follows is carried out here: a
guess has an answer made in advance, the end of the turn adopts it when the words are the same, a hum is said
from what is kept, a yield drops the answer where it is, and a false alarm says the rest of it, from the first
word that was not said.

The dialogue is kept as it was heard here: an answer that was cut stands in it as far as it was said. What the
session store holds is the pipeline's affair; a new context begins with what it says (``history``).

Silence of the engine is no audio: it is voted on every unit, and not sent.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError, ShapeError
from models.llm import Message
from models.omni import Preparation, UnitResult, Vote
from models.omni.phases import Call, Phases, checked_audio
from models.omni.two_tier.content import Content, ContentMaker
from models.omni.two_tier.ears import Ears, EarSettings, Words
from models.turn import TurnCompleteness
from models.vad import VoiceActivityDetector
from turn_taking.duplex_policy import (
    Act,
    Ask,
    DuplexPolicy,
    DuplexPolicySettings,
    GoOn,
    Guess,
    Hum,
    Volume,
    Yield,
)

ENGINE = "two_tier"
UNIT_MS = 80


class TwoTierSettings(BaseModel):
    """How the small tier decides, and what is said when the large one fails."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ears: EarSettings = EarSettings()
    policy: DuplexPolicySettings = DuplexPolicySettings()
    apology: str = Field(
        "Sorry, something went wrong. Please say that again.", description="in place of an answer that fails"
    )
    greeting: str = Field("", description="said when the conversation begins; empty: the caller begins")
    dialogue: int = Field(40, ge=2, le=1_000, description="messages of the dialogue that the model is given")


class TwoTierHost:
    """What all conversations share.

    Args:
        vad: weights.
        turn: weights, or None.
        maker: the large tier.
        executor: where completeness is asked.
        settings: see the model; a conversation's own override them.
    """

    sessions: int | None = None

    def __init__(
        self,
        *,
        vad: VoiceActivityDetector,
        turn: TurnCompleteness | None,
        maker: ContentMaker,
        executor: Executor,
        settings: TwoTierSettings | None = None,
    ) -> None:
        self._vad, self._turn, self._maker, self._executor = vad, turn, maker, executor
        self._settings = settings or TwoTierSettings()

    def open_engine(self) -> "TwoTierEngine":
        """An engine for one conversation."""
        return TwoTierEngine(self._vad, self._turn, self._maker, self._executor, self._settings)

    def close(self) -> None:
        """End the large tier's thread."""
        self._maker.close()


class _Reply:
    """An answer that is coming or being said."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.said = ""
        self.is_begun = False


class TwoTierEngine:
    """One conversation; see ``OmniEngine``."""

    unit_ms = first_unit_ms = UNIT_MS
    context_units: int | None = None
    takes_frames = False

    def __init__(
        self,
        vad: VoiceActivityDetector,
        turn: TurnCompleteness | None,
        maker: ContentMaker,
        executor: Executor,
        settings: TwoTierSettings,
    ) -> None:
        self.input_rate_hz = vad.rate_hz
        self.output_rate_hz = maker.rate_hz
        self._vad, self._turn, self._maker, self._executor = vad, turn, maker, executor
        self._defaults = settings
        self._phases = Phases()
        self._forget()

    def _forget(self) -> None:
        self._ears: Ears | None = None
        self._policy = DuplexPolicy()
        self._settings = self._defaults
        self._system = ""
        self._dialogue: deque[Message] = deque()
        self._reply: _Reply | None = None
        self._lost: _Reply | None = None
        self._guess: tuple[str, Content] | None = None
        self._hum: Content | None = None
        self._gain = self._gain_to = 1.0
        self._yields = False

    def prepare(self, preparation: Preparation) -> None:
        """See ``OmniEngine``; the settings are those of ``TwoTierSettings``."""
        try:
            settings = TwoTierSettings.model_validate(self._defaults.model_dump() | preparation.settings)
        except ValidationError as error:
            raise ConfigError(f"two_tier: {error.error_count()} settings are wrong: {error}") from error
        self._phases.enter(Call.PREPARE)
        self._forget()
        self._settings = settings
        self._policy = DuplexPolicy(settings.policy)
        self._ears = Ears(
            self._policy, vad=self._vad, turn=self._turn, executor=self._executor, settings=settings.ears
        )
        self._system = preparation.system_prompt
        self._dialogue = deque(maxlen=settings.dialogue)
        for role, text in preparation.history:
            self._dialogue.append(Message("assistant" if role == "assistant" else "user", text))
        if settings.greeting and not preparation.history:
            self._begin(self._maker.say(settings.greeting))

    def on_words(self, words: Words) -> None:
        """What a recogniser beside understood; from any thread."""
        ears = self._ears
        if ears is not None:
            ears.on_words(words)

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """See ``OmniEngine``; it sees nothing."""
        before = self._phases.phase
        active = self._phases.enter(Call.PREFILL)
        try:
            if frames:
                raise ShapeError("two_tier takes no frames")
            heard = checked_audio(audio, UNIT_MS * self.input_rate_hz // 1000, frames=0)
        except ShapeError:
            self._phases.take_back(Call.PREFILL, before)
            raise
        if active and self._ears is not None:
            self._ears.hear(heard, bot_speaks=self._reply is not None and self._reply.is_begun)

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """See ``OmniEngine``."""
        if not self._phases.enter(Call.GENERATE) or self._ears is None:
            return UnitResult(Vote.LISTEN, end_of_turn=self._reply is not None)
        self._yields = False
        for act in self._policy.on_tick(self._ears.now_ms):
            self._follow(act)
        if force_listen and (self._reply is not None or self._hum is not None):
            self._drop()
            self._policy.on_bot_stopped(self._ears.now_ms, "")
            self._yields = True
        if self._yields:
            return UnitResult(Vote.YIELD, end_of_turn=True)
        if force_listen:
            return UnitResult(Vote.LISTEN)
        return self._spoken() or self._hummed() or UnitResult(Vote.LISTEN)

    def finalize(self) -> None:
        """See ``OmniEngine``: nothing is left to do."""
        self._phases.enter(Call.FINALIZE)

    def stop(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.STOP)

    def cleanup(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.CLEANUP)
        self._drop()
        if self._guess is not None:
            self._guess[1].cancel()
        if self._ears is not None:
            self._ears.close()
        self._forget()

    # What follows from what was heard.

    def _follow(self, act: Act) -> None:
        if isinstance(act, Guess):
            self._foresee(act.text)
        elif isinstance(act, Ask):
            self._answer(act.text)
        elif isinstance(act, Hum):
            self._hum = self._maker.say(act.text)
        elif isinstance(act, Volume):
            self._gain_to = 10 ** (act.gain_db / 20)
        elif isinstance(act, Yield):
            self._yields = self._reply is not None and self._reply.is_begun
            self._lost = self._reply
            self._drop()
        elif isinstance(act, GoOn):
            self._go_on()

    def _foresee(self, text: str | None) -> None:
        """An answer is made in advance; another guess, or none, drops it."""
        if self._guess is not None and self._guess[0] != text:
            self._guess[1].cancel()
            self._guess = None
        if text is not None and self._guess is None:
            self._guess = text, self._maker.answer(self._messages(text))

    def _answer(self, text: str) -> None:
        self._foresee(text)
        guess, self._guess, self._lost = self._guess, None, None
        self._dialogue.append(Message("user", text))
        if guess is not None:
            self._begin(guess[1])

    def _begin(self, content: Content) -> None:
        self._drop()
        self._reply = _Reply(content)
        now_ms = self._ears.now_ms if self._ears is not None else 0
        self._policy.on_reply_coming(now_ms)

    def _go_on(self) -> None:
        """What was cut for nothing is said on, from the first word that was not said."""
        lost, self._lost = self._lost, None
        if lost is None:
            return
        words = lost.content.text.split()
        rest = " ".join(words[len(lost.said.split()) :])
        if rest:
            self._begin(self._maker.say(rest))

    def _drop(self) -> None:
        """The answer ends where it is; the dialogue holds what was said of it."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.content.cancel()
            self._remember(reply)
        if self._hum is not None:
            self._hum.cancel()
            self._hum = None

    def _remember(self, reply: _Reply) -> None:
        if said := reply.said.strip():
            self._dialogue.append(Message("assistant", said))

    def _messages(self, text: str) -> list[Message]:
        system = [Message("system", self._system)] if self._system else []
        return [*system, *self._dialogue, Message("user", text)]

    # What is said.

    def _spoken(self) -> UnitResult | None:
        reply, policy = self._reply, self._policy
        if reply is None or not (reply.is_begun or policy.may_speak):
            return None
        assert self._ears is not None
        now_ms = self._ears.now_ms
        audio, words = reply.content.take(UNIT_MS * self.output_rate_hz // 1000)
        if len(audio) and not reply.is_begun:
            reply.is_begun = True
            policy.on_bot_started(now_ms)
        reply.said += words
        if words:
            policy.on_saying(words)
            policy.on_heard(len(reply.said.split()) - 1)
        if not reply.content.is_over:
            # A model that has stopped to think in the middle keeps the floor; one that has not begun has
            # none.
            return UnitResult(Vote.SPEAK, words, self._at_volume(audio)) if reply.is_begun else None
        self._reply = None
        self._remember(reply)
        policy.on_bot_stopped(now_ms, reply.said)
        if reply.content.error is not None:
            logger.warning(f"two_tier: an answer broke off: {reply.content.error}")
            self._begin(self._maker.say(self._settings.apology))
        return UnitResult(Vote.SPEAK, words, self._at_volume(audio), end_of_turn=True)

    def _hummed(self) -> UnitResult | None:
        if self._hum is None:
            return None
        audio, _ = self._hum.take(UNIT_MS * self.output_rate_hz // 1000)
        if self._hum.is_over:
            self._hum = None
        return UnitResult(Vote.BACKCHANNEL, audio=audio) if len(audio) else None

    def _at_volume(self, audio: np.ndarray) -> np.ndarray:
        """A change is spread over a unit, so that it does not click."""
        if self._gain == self._gain_to == 1.0:
            return audio
        ramp = np.linspace(self._gain, self._gain_to, len(audio), dtype=np.float32)
        self._gain = self._gain_to
        return audio * ramp
