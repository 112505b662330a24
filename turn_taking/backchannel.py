"""Decide when the bot says "mhm" during the caller's turn, without taking the floor.

Inputs: the caller's voice and its pauses, how complete the turn sounds and reads, and when the end of turn
would be decided. Output: ``Backchannel``, at a pause in which a listener would make a sound. It fits when the
caller has talked for a while, has paused for a moment and not for long, is not searching for a word, and will
surely continue: a turn that sounds complete gets an answer and not a hum. People make about one every four
seconds of the other side's talk (CANDOR); a machine with half that rate is perceived as listening.

A backchannel is spoken from cache. It is not part of the conversation, nor a reply that can be interrupted,
and it ends early when the caller continues.

The module is pure; all times are milliseconds on the session clock.
"""

from dataclasses import dataclass

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import Language, find_language


class BackchannelSettings(StrictModel):
    """Phrases of the bot's backchannels."""

    tokens: tuple[str, ...] = Field(
        ("Mhm.", "Uh huh.", "I see."), min_length=1, description="backchannels, used in turn"
    )


class BackchannelTuning(BackchannelSettings):
    """Backchannel settings including the values that no deployment sets."""

    gap_ms: int = Field(8_000, ge=1_000, le=120_000, description="shortest time between two backchannels")
    talk_ms: int = Field(
        4_000,
        ge=500,
        le=60_000,
        description="voice of the caller before the first backchannel, and between two",
    )
    most_in_turn: int = Field(3, ge=1, le=20)
    pause_ms: int = Field(300, ge=100, le=2_000, description="silence before a backchannel")
    latest_ms: int = Field(
        900, ge=100, le=5_000, description="silence after which it is too late for a backchannel"
    )
    lead_ms: int = Field(
        200,
        ge=0,
        le=2_000,
        description="time before the expected end of turn in which no backchannel is given",
    )
    unfinished_probability: float = Field(
        0.4,
        ge=0,
        le=1,
        description="probability of completeness above which the turn gets an answer and no backchannel",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "BackchannelTuning":
        if self.pause_ms > self.latest_ms:
            raise ValueError("expected pause_ms <= latest_ms")
        return self


@dataclass(frozen=True, slots=True)
class Backchannel:
    """Say this text from cache, without taking the floor.

    Attributes:
        at_ms: when it was decided.
        text: one of the tokens.
    """

    at_ms: int
    text: str


class BackchannelPolicy:
    """Backchannel policy of one call.

    Args:
        settings: phrases and limits; None for the defaults.
        language: that of the caller; None for the default language.
    """

    def __init__(
        self, settings: BackchannelSettings | None = None, *, language: Language | None = None
    ) -> None:
        self._settings = tuned(BackchannelTuning, settings)
        self._cues = (language or find_language()).cues
        self._bot_is_quiet = True
        self._said = 0
        self._last_ms: int | None = None
        self._onset_ms: int | None = None
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._talk_ms = 0
        self._in_turn = 0
        self._text = ""
        self._forget_pause()

    def _forget_pause(self) -> None:
        self._silent_since_ms: int | None = None
        self._completeness: float | None = None
        self._endpoint_ms: int | None = None

    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> None:
        """Register a voice that began ``voiced_ms`` before ``at_ms``."""
        if self._onset_ms is None:
            self._onset_ms = at_ms - voiced_ms
        self._forget_pause()

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """Register that the voice fell silent ``silence_ms`` before ``at_ms``."""
        if self._onset_ms is None:
            return
        self._silent_since_ms = at_ms - silence_ms
        self._talk_ms += max(0, self._silent_since_ms - self._onset_ms)
        self._onset_ms = None

    def on_completeness(self, probability: float) -> None:
        """Register how complete the turn sounds in this pause, 0..1."""
        self._completeness = probability

    def on_text(self, text: str) -> None:
        """Register the words of the turn so far."""
        self._text = text

    def on_endpoint_due(self, due_ms: int | None) -> None:
        """Register when the end of turn will be decided if the silence lasts; None while unknown."""
        self._endpoint_ms = due_ms

    def on_turn_ended(self) -> None:
        """Register the end of the caller's turn."""
        self._forget_turn()

    def on_bot_busy(self, busy: bool) -> None:
        """Register whether the bot has something to say. Its backchannels do not count."""
        self._bot_is_quiet = not busy

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` must be called; None while no backchannel fits."""
        if self._silent_since_ms is None or not self._fits():
            return None
        return self._silent_since_ms + self._settings.pause_ms

    def on_deadline(self, at_ms: int) -> Backchannel | None:
        """Return the backchannel that is due at ``at_ms``; None without one. A pause has at most one."""
        due_ms = self.next_deadline_ms()
        if due_ms is None or self._silent_since_ms is None or at_ms < due_ms:
            return None
        chosen = self._settings
        is_late = at_ms > self._silent_since_ms + chosen.latest_ms
        is_too_close = self._endpoint_ms is not None and self._endpoint_ms - at_ms < chosen.lead_ms
        is_too_soon = self._last_ms is not None and at_ms - self._last_ms < chosen.gap_ms
        self._forget_pause()
        if is_late or is_too_close or is_too_soon:
            return None
        text = chosen.tokens[self._said % len(chosen.tokens)]
        self._said += 1
        self._in_turn += 1
        self._talk_ms = 0
        self._last_ms = at_ms
        return Backchannel(at_ms, text)

    def _fits(self) -> bool:
        chosen = self._settings
        goes_on = self._completeness is not None and self._completeness < chosen.unfinished_probability
        return (
            self._bot_is_quiet
            and goes_on
            and self._talk_ms >= chosen.talk_ms
            and self._in_turn < chosen.most_in_turn
            and not self._cues.ends_hanging(self._text)
        )
