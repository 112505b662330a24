"""Interface of a barge-in policy, and baselines that decide by the length of a voice.

``VoiceTimer`` is the most that voice activity detection alone can do.
"""

from typing import Protocol

from parley.turn_taking.barge_in.table import Cut, Decision

# Answer of a policy: a decision of ``BargeIn``, or True for a cut.
Decided = Decision | bool | None


class BargeInPolicy(Protocol):
    """Interface of a policy; see ``turn_taking.barge_in.barge_in.BargeIn``."""

    def on_bot_started(self, at_ms: int, reply_id: str) -> Decided: ...
    def on_maybe_voice(self, at_ms: int) -> Decided: ...
    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> Decided: ...
    def on_maybe_quiet(self, at_ms: int) -> None: ...
    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> Decided: ...
    def on_level(self, at_ms: int, level_db: float) -> Decided: ...
    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decided: ...
    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decided: ...
    def on_self_voice(self, at_ms: int, *, own: bool) -> Decided: ...
    def on_look(self, at_ms: int, look: int, log_odds: float, *, voice: int) -> Decided: ...
    def on_spotting(self) -> None: ...
    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> Decided: ...
    def on_saying(self, reply_id: str, text: str) -> None: ...
    def on_question(self, at_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None: ...
    def on_deadline(self, at_ms: int) -> Decided: ...


class VoiceTimer:
    """Policy that yields after the given length of any voice; None never yields."""

    def __init__(self, confirm_ms: int | None) -> None:
        self._confirm_ms = confirm_ms
        self._due_ms: int | None = None

    def on_bot_started(self, at_ms: int, reply_id: str) -> None:
        """Do nothing: the timer starts with a voice."""

    def on_maybe_voice(self, at_ms: int) -> None:
        """Do nothing: the voice is not confirmed."""

    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> None:
        """Start the timer, counted from the beginning of the voice; it may be due at once."""
        if self._confirm_ms is not None:
            self._due_ms = max(at_ms, at_ms - voiced_ms + self._confirm_ms)

    def on_maybe_quiet(self, at_ms: int) -> None:
        """Do nothing: the voice has not ended."""

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """Stop the timer: the voice was too short."""
        self._due_ms = None

    def on_level(self, at_ms: int, level_db: float) -> Decided:
        """Do nothing: the level does not count."""

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> None:
        """Do nothing: words do not count."""

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> None:
        """Do nothing: words do not count."""

    def on_self_voice(self, at_ms: int, *, own: bool) -> None:
        """Do nothing: the source of the voice does not count."""

    def on_look(self, at_ms: int, look: int, log_odds: float, *, voice: int) -> None:
        """Do nothing: early looks do not count."""

    def on_spotting(self) -> None:
        """Do nothing: commands do not count."""

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> None:
        """Do nothing: commands do not count."""

    def on_saying(self, reply_id: str, text: str) -> None:
        """Do nothing: the bot's words do not count."""

    def on_question(self, at_ms: int) -> None:
        """Do nothing: the bot's questions do not count."""

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the voice has lasted long enough."""
        return self._due_ms

    def on_deadline(self, at_ms: int) -> bool:
        """Cut the reply."""
        self._due_ms = None
        return True


def cut_before(policy: BargeInPolicy, until_ms: int) -> int | None:
    """Return the time before ``until_ms`` at which a deadline of the policy cuts; None when none does."""
    while (due_ms := policy.next_deadline_ms()) is not None and due_ms < until_ms:
        if is_cut(policy.on_deadline(due_ms)):
            return due_ms
    return None


def is_cut(decision: Decided) -> bool:
    """Return whether the bot stops."""
    return decision is True or isinstance(decision, Cut)
