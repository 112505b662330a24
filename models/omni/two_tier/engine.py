"""Two-tier engine: a cheap policy decides every 80 ms, and a model is woken for content.

Inputs: units of the caller's audio, transcripts of a separate recogniser. Outputs: a vote for each unit, and
a unit of speech when there is some. ``SpeechInput`` reports events to the policy, and this engine carries out
the decisions. A guess is passed to the large tier (``dialogue``) in advance, and the end of a turn is a
question to it. A backchannel is taken from a cache. A yield stops in the middle of a word, and after a false
alarm the reply continues from the beginning of that word.

Contents of the large tier are spoken in the order in which they come. A reply that was cut is kept, and its
making continues, until it is known whether the caller meant to interrupt: the next turn with words drops it.

Silence of the engine is not sent as audio: it is a vote on every unit.
"""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from loguru import logger
from pydantic import Field, ValidationError

from parley.core.errors import ConfigError
from parley.core.speech_reports import SpeechReport
from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.core.units import Vote
from parley.language import find_language
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.phases import EngineCall, Phases
from parley.models.omni.two_tier.content import Content, ContentMaker
from parley.models.omni.two_tier.dialogue import SpokenDialogue, TwoTierDialogue, UserTurnReady
from parley.models.omni.two_tier.speech_input import SpeechInput, SpeechInputSettings
from parley.models.turn import TurnCompleteness
from parley.models.vad import VoiceActivityDetector
from parley.turn_taking.duplex_policy import (
    Act,
    Ask,
    CloseTurn,
    ContinueReply,
    DiscardWords,
    DuplexPolicy,
    DuplexPolicySettings,
    EmitBackchannel,
    Guess,
    Open,
    Volume,
    Yield,
)

ENGINE = "two_tier"
UNIT_MS = 80
# Longer than the time from the first word of an answer to its first sound.
SETTLED_MS = 3_000


class TwoTierSettings(StrictModel):
    """Phrases in addition to the answers of the large tier."""

    apology: str = Field(
        "Sorry, something went wrong. Please say that again.",
        description="phrase instead of an answer that failed",
    )
    reprompt: str = Field(
        "Sorry, I did not catch that.",
        description="phrase, once, after an interruption in which no word was understood; empty: none",
    )
    greeting: str = Field(
        "", description="greeting at the start of the conversation; empty: the caller speaks first"
    )


class TwoTierTuning(TwoTierSettings):
    """Settings, and values that no deployment sets."""

    speech_input: SpeechInputSettings = SpeechInputSettings()
    policy: DuplexPolicySettings = DuplexPolicySettings()
    language: str = Field("en", description="tag of the language that callers speak")
    unheard_ms: int = Field(
        160,
        ge=0,
        le=2_000,
        description="end of the speech already sent that counts as not heard when the bot is interrupted: "
        "one unit, and the audio queued after it",
    )
    dialogue: int = Field(40, ge=2, le=1_000, description="messages of the dialogue that the model receives")


class TwoTierHost:
    """Host of the parts that all conversations share.

    Args:
        settings: a conversation's own settings override them.
        vad: weights.
        turn: weights, or None.
        maker: large tier of conversations that do not bring their own.
        executor: runs the completeness model.
    """

    sessions: int | None = None
    takes_frames = False

    def __init__(
        self,
        settings: TwoTierSettings | None = None,
        *,
        vad: VoiceActivityDetector,
        turn: TurnCompleteness | None,
        maker: ContentMaker | None = None,
        executor: Executor,
    ) -> None:
        self._vad, self._turn, self._maker, self._executor = vad, turn, maker, executor
        self._settings = tuned(TwoTierTuning, settings)

    @property
    def settings(self) -> TwoTierTuning:
        """Settings of conversations that do not bring their own."""
        return self._settings

    def open_engine(
        self, dialogue: TwoTierDialogue | None = None, settings: TwoTierTuning | None = None
    ) -> "TwoTierEngine":
        """Return an engine for one conversation.

        Args:
            dialogue: its large tier; None for the shared model and voice.
            settings: its settings; None for the shared ones.

        Raises:
            ConfigError: there is neither a dialogue nor a maker.
        """
        if dialogue is None:
            if self._maker is None:
                raise ConfigError("two_tier has no source of words: it needs a dialogue or a content maker")
            dialogue = SpokenDialogue(self._maker, messages=self._settings.dialogue)
        chosen = settings or self._settings
        return TwoTierEngine(self._vad, self._turn, dialogue, self._executor, chosen)

    def close(self) -> None:
        """End the large tier's thread."""
        if self._maker is not None:
            self._maker.close()


class _Reply:
    """Content that is to be spoken or is being spoken."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.said = ""
        self.is_begun = False


class TwoTierEngine:
    """Engine of one conversation; implements ``OmniEngine``."""

    unit_ms = first_unit_ms = UNIT_MS
    context_units: int | None = None
    takes_frames = False

    def __init__(
        self,
        vad: VoiceActivityDetector,
        turn: TurnCompleteness | None,
        dialogue: TwoTierDialogue,
        executor: Executor,
        settings: TwoTierTuning,
    ) -> None:
        self.input_rate_hz = vad.rate_hz
        self.output_rate_hz = dialogue.rate_hz
        self._vad, self._turn, self._dialogue, self._executor = vad, turn, dialogue, executor
        self._defaults = settings
        self._phases = Phases()
        # Contents that have arrived, from any thread, and were not processed yet.
        self._arrived: deque[Content] = deque()
        self._ends_turn = threading.Event()
        self._is_settled = threading.Event()
        self._forget()

    def _forget(self) -> None:
        self._speech_input: SpeechInput | None = None
        self._policy = DuplexPolicy()
        self._settings = self._defaults
        self._arrived.clear()
        # Replies in the order in which they are spoken; the first one is under way.
        self._replies: deque[_Reply] = deque()
        # Replies that were cut, while it is unknown whether the interruption was meant.
        self._lost: deque[_Reply] | None = None
        self._hum: Content | None = None
        self._gain = self._gain_to = 1.0
        self._yields = self._is_owed = self._has_reprompted = False
        # True when the open turn cut off a reply, or one that was owed.
        self._has_cut = False
        # Time from which the maker of answers reports that none is owed.
        self._settled_ms: int | None = None
        self._is_settled.clear()

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation, as ``OmniEngine.prepare``; the settings are those of ``TwoTierTuning``."""
        try:
            settings = TwoTierTuning.model_validate(self._defaults.model_dump() | preparation.settings)
        except ValidationError as error:
            raise ConfigError(f"two_tier: {error.error_count()} settings are wrong: {error}") from error
        self._phases.enter(EngineCall.PREPARE)
        self._forget()
        self._settings = settings
        self._policy = DuplexPolicy(settings.policy, language=find_language(settings.language))
        self._speech_input = SpeechInput(
            self._policy,
            vad=self._vad,
            turn=self._turn,
            executor=self._executor,
            settings=settings.speech_input,
        )
        self._dialogue.open(preparation, self._arrived.append)
        if settings.greeting and not preparation.history:
            self._dialogue.say(settings.greeting)

    def on_words(self, words: SpeechReport) -> None:
        """Receive a message of a recogniser or command spotter. Callable from any thread."""
        speech_input = self._speech_input
        if speech_input is not None:
            speech_input.on_words(words)

    def on_settled(self) -> None:
        """Receive the notice that the owed answer begins, or does not come. Callable from any thread."""
        self._is_settled.set()

    def end_turn(self) -> None:
        """End the caller's turn with the present transcript. Callable from any thread."""
        self._ends_turn.set()

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Process a unit of audio, as ``OmniEngine.prefill``; frames are refused."""
        samples = UNIT_MS * self.input_rate_hz // 1000
        unit = self._phases.enter_prefill(audio, frames, samples, engine="two_tier")
        if unit is not None and self._speech_input is not None:
            self._speech_input.hear(unit[0], bot_speaks=self._speaks)

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Decide on the unit, as ``OmniEngine.generate``."""
        if not self._phases.enter(EngineCall.GENERATE) or self._speech_input is None:
            return UnitResult(Vote.LISTEN, end_of_turn=bool(self._replies))
        self._yields = False
        if self._ends_turn.is_set():
            self._ends_turn.clear()
            self._policy.end_turn()
        self._take_in()
        self._give_up_waiting()
        for act in self._policy.on_tick(self._speech_input.now_ms):
            self._follow(act)
        if self._lost is not None and not self._policy.weighs_cut:
            self._lose()
        if force_listen and (self._replies or self._hum is not None):
            self._yields = self._speaks or self._hum is not None
            self._give_up()
        if self._yields:
            return UnitResult(Vote.YIELD, end_of_turn=True)
        if force_listen:
            return UnitResult(Vote.LISTEN)
        return self._spoken() or self._hummed() or UnitResult(Vote.LISTEN)

    def finalize(self) -> None:
        """End the unit, as ``OmniEngine.finalize``; no work is left to do."""
        self._phases.enter(EngineCall.FINALIZE)

    def stop(self) -> None:
        """Stop the conversation, as ``OmniEngine.stop``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """Release the conversation, as ``OmniEngine.cleanup``."""
        self._phases.enter(EngineCall.CLEANUP)
        self._dialogue.close()
        if self._hum is not None:
            self._hum.cancel()
        if self._speech_input is not None:
            self._speech_input.close()
        self._forget()

    @property
    def _speaks(self) -> bool:
        return bool(self._replies) and self._replies[0].is_begun

    @property
    def _now_ms(self) -> int:
        return self._speech_input.now_ms if self._speech_input is not None else 0

    # Actions of the policy.

    def _follow(self, act: Act) -> None:
        if isinstance(act, Guess):
            if self._lost is not None and not self._policy.weighs_cut:
                self._lose()
            # While the cut reply may still continue, it is not given up for a guess.
            self._dialogue.foresee(act.text if self._lost is None else None)
        elif isinstance(act, Open):
            self._dialogue.turn(is_open=True)
        elif isinstance(act, Ask):
            self._turn_over()
            self._ask(act)
        elif isinstance(act, CloseTurn):
            self._turn_over()
            self._close(act)
        elif isinstance(act, DiscardWords):
            self._dialogue.forget()
        elif isinstance(act, EmitBackchannel):
            self._hum = self._dialogue.hum(act.text)
        elif isinstance(act, Volume):
            self._gain_to = 10 ** (act.gain_db / 20)
        elif isinstance(act, Yield):
            self._yields = self._speaks
            self._has_cut = bool(self._replies) or self._is_owed
            self._lost, self._replies = self._replies, deque()
            self._dialogue.cut(self._lost[0].said if self._yields else "")
            self._end_hum()
        elif isinstance(act, ContinueReply):
            self._go_on()

    def _turn_over(self) -> None:
        if self._speech_input is not None:
            self._speech_input.turn_over()

    def _ask(self, act: Ask) -> None:
        if self._lost is not None:
            self._lose()
        if self._replies or self._is_owed:
            # The turn began during a reply without interrupting it, and interrupts it now.
            self._yields = self._speaks
            self._dialogue.drop()
        self._drop()
        self._has_reprompted = self._has_cut = False
        self._dialogue.ask(UserTurnReady(act.text, act.silence_ms, act.completeness))
        self._is_owed, self._settled_ms = True, None
        self._is_settled.clear()
        self._policy.on_reply_coming(self._now_ms)

    def _close(self, act: CloseTurn) -> None:
        """Close a turn without words. A bot that was cut off by it speaks the reprompt, once, because a room
        may be noisy.
        """
        self._dialogue.turn(is_open=False)
        has_cut, self._has_cut = self._has_cut and act.cut, False
        if has_cut and self._settings.reprompt and not self._has_reprompted:
            self._has_reprompted = True
            if self._lost is not None:
                self._lose()
            self._dialogue.say(self._settings.reprompt)

    def _go_on(self) -> None:
        """Continue the replies that were cut in error, from the beginning of the word that was cut."""
        lost, self._lost = self._lost, None
        self._has_cut = False
        self._dialogue.cut("")
        self._dialogue.turn(is_open=False)
        if not lost:
            return
        first = lost[0]
        again = first.content.rewind(self._settings.unheard_ms * self.output_rate_hz // 1000)
        if again:
            first.said = "".join(f" {word}" for word in first.said.split()[:-again])
        first.is_begun = False
        lost.extend(self._replies)
        self._replies = lost
        self._announce()

    def _lose(self) -> None:
        """Drop the replies that were cut, because the caller meant it."""
        for reply in self._lost or ():
            self._over(reply)
        self._lost = None
        self._is_owed = False
        self._dialogue.drop()

    def _drop(self) -> None:
        """Drop all replies that are spoken, wait or were cut."""
        for reply in (*(self._lost or ()), *self._replies):
            self._over(reply)
        self._lost = None
        self._is_owed = False
        self._replies.clear()
        self._end_hum()

    def _give_up(self) -> None:
        """Fall silent by ``force_listen``: drop all replies and their making."""
        self._drop()
        self._dialogue.drop()
        self._policy.on_bot_stopped(self._now_ms, "")

    def _over(self, reply: _Reply) -> None:
        reply.content.cancel()
        self._dialogue.said(reply.said)

    def _end_hum(self) -> None:
        if self._hum is not None:
            self._hum.cancel()
            self._hum = None

    # Speech.

    def _take_in(self) -> None:
        """Queue the contents that the large tier has given since the last unit."""
        while self._arrived:
            content = self._arrived.popleft()
            if not content.is_wanted:
                continue
            reply = _Reply(content)
            self._is_owed = self._is_owed and content.is_aside
            if self._lost is not None:
                # The content belongs to the reply that was cut, or covers the silence after it.
                self._lost.append(reply)
                continue
            self._replies.append(reply)
            if len(self._replies) == 1:
                self._announce()

    def _announce(self) -> None:
        """Notify the policy of the first reply that waits."""
        if self._replies:
            self._policy.on_reply_coming(self._now_ms, protected=self._replies[0].content.is_protected)

    def _give_up_waiting(self) -> None:
        """Stop waiting for an answer that does not come: the bot then counts as silent."""
        if self._is_settled.is_set() and self._settled_ms is None:
            self._settled_ms = self._now_ms
        if not self._is_owed or self._replies or self._lost is not None or self._settled_ms is None:
            return
        if self._now_ms - self._settled_ms >= SETTLED_MS:
            self._is_owed = False
            self._policy.on_bot_stopped(self._now_ms, "")

    def _spoken(self) -> UnitResult | None:
        while self._replies and not self._replies[0].content.is_wanted:
            # The large tier cancelled it: the caller typed a message, or the call is ending.
            gone = self._replies.popleft()
            self._policy.on_bot_stopped(self._now_ms, gone.said)
            self._announce()
        if not self._replies:
            return None
        reply, policy, now_ms = self._replies[0], self._policy, self._now_ms
        content = reply.content
        if not (reply.is_begun or policy.may_speak):
            return None
        audio, words = content.take(UNIT_MS * self.output_rate_hz // 1000)
        if len(audio) and not reply.is_begun:
            reply.is_begun = True
            policy.on_bot_started(now_ms)
        reply.said += words
        if words:
            policy.on_saying(words)
            policy.on_heard(len(reply.said.split()) - 1)
        if not content.is_over:
            # A model that pauses in the middle of its answer keeps the floor. One that has not begun does not
            # have it.
            return self._result(reply, audio, words) if reply.is_begun else None
        self._replies.popleft()
        self._dialogue.said("" if content.is_aside else reply.said)
        policy.on_bot_stopped(now_ms, reply.said)
        if content.error is not None:
            logger.warning(f"two_tier: an answer broke off: {content.error}")
            self._dialogue.say(self._settings.apology)
        self._announce()
        if not self._replies and content.is_aside and self._is_owed:
            policy.on_reply_coming(now_ms)
        if not reply.is_begun:
            return None
        return self._result(reply, audio, words, is_last=True)

    def _result(self, reply: _Reply, audio: np.ndarray, words: str, *, is_last: bool = False) -> UnitResult:
        return UnitResult(
            Vote.SPEAK,
            words,
            self._at_volume(audio),
            end_of_turn=is_last,
            is_aside=reply.content.is_aside,
            written=reply.content.text,
            broke_off=reply.content.took_break,
        )

    def _hummed(self) -> UnitResult | None:
        if self._hum is None:
            return None
        audio, _ = self._hum.take(UNIT_MS * self.output_rate_hz // 1000)
        if self._hum.is_over:
            self._hum = None
        return UnitResult(Vote.BACKCHANNEL, audio=audio) if len(audio) else None

    def _at_volume(self, audio: np.ndarray) -> np.ndarray:
        """Return the audio at the present gain; a change is spread over a unit, to avoid a click."""
        if self._gain == self._gain_to == 1.0:
            return audio
        ramp = np.linspace(self._gain, self._gain_to, len(audio), dtype=np.float32)
        self._gain = self._gain_to
        return audio * ramp
