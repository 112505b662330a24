"""Decide which phrases a caller hears while an answer is missing, and when they end.

The module is pure: times arrive as arguments, nothing here waits. A caller who hears nothing for a few
seconds takes the line for dead; one who hears "one moment" repeatedly takes the bot for broken. So a short
phrase covers the first silence (``turn_taking.filler_policy`` decides when). Then a few fillers come, each
after a longer pause than the one before, then one sentence about the problem, and at the end the apology of a
failed answer. After that nothing is said: the question is still answered when possible, and a caller who
speaks again starts a new wait.
"""

from enum import Enum, auto

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.turn_taking.filler_policy import FillerSettings


class WaitSettings(StrictModel):
    """Phrases that a caller hears until an answer comes."""

    masking: FillerSettings | None = Field(
        FillerSettings(), description="phrases for the first silence; null: none"
    )
    filler: str = Field("One moment, please.", description="phrase while an answer is late; empty: none")
    trouble: str = Field(
        "I am having trouble with this, please bear with me.",
        description="phrase once, after the last filler; empty: none",
    )


class WaitTuning(WaitSettings):
    """Wait settings including the values that no deployment sets.

    Attributes:
        filler_after_ms: from the end of the turn to the first filler where nothing covered it.
        max_fillers: largest number of fillers in one wait.
        first_gap_ms: from the first filler to the second.
        growth_percent: each pause in relation to the one before it.
        longest_gap_ms: limit of all pauses but the one before the apology.
        give_up_ms: from the end of the turn to the apology. An answer that takes longer is none in a call:
            guard, fallback and tools have ended their waits by then.
        answer_after_ms: no phrase for so long after a model has the question: longer than the guard takes to
            detect its failure and the fallback to begin.
    """

    filler_after_ms: int = Field(default=500, ge=50, le=10_000)
    max_fillers: int = Field(default=4, ge=0, le=100)
    first_gap_ms: int = Field(default=4_000, ge=500, le=60_000)
    growth_percent: int = Field(default=150, ge=100, le=400)
    give_up_ms: int = Field(default=60_000, ge=1_000, le=600_000)
    longest_gap_ms: int = Field(default=8_000, ge=1_000, le=60_000)
    answer_after_ms: int = Field(default=3_000, ge=100, le=60_000)


class Phrase(Enum):
    """Kind of a phrase to a caller who waits."""

    MASK = auto()
    FILLER = auto()
    TROUBLE = auto()
    APOLOGY = auto()


class FillerSchedule:
    """Wait from the end of the turn to the first word of the answer.

    Args:
        settings: phrases and waits.
        asked_ms: the end of the turn.
        mask_ms: when the first silence is covered; None for never.
    """

    def __init__(self, settings: WaitSettings, *, asked_ms: int, mask_ms: int | None = None) -> None:
        self._settings = settings = tuned(WaitTuning, settings)
        self._mask_ms = mask_ms
        self._gap_ms = min(settings.first_gap_ms, settings.longest_gap_ms)
        self._give_up_ms = asked_ms + settings.give_up_ms
        self._due_ms = asked_ms + settings.filler_after_ms
        self._fillers = 0
        self._next: Phrase | None = Phrase.FILLER if settings.max_fillers else Phrase.TROUBLE

    def on_model_asked(self, at_ms: int) -> None:
        """Note that a model has the question."""
        self._due_ms = max(self._due_ms, at_ms + self._settings.answer_after_ms)

    def deadline_ms(self) -> int | None:
        """Return when a phrase is said if no answer comes; None when all are said."""
        if self._next is None:
            return None
        # A filler covers the silence too: a mask that would come after it is not said any more.
        due_ms = self._due_ms if self._mask_ms is None else min(self._mask_ms, self._due_ms)
        return min(due_ms, self._give_up_ms)

    def say(self, at_ms: int) -> Phrase:
        """Return the phrase that is said now; call it at a deadline."""
        mask_ms, self._mask_ms = self._mask_ms, None
        if mask_ms is not None and mask_ms <= at_ms < self._give_up_ms:
            self._due_ms = max(self._due_ms, at_ms + self._settings.first_gap_ms)
            return Phrase.MASK
        phrase = Phrase.APOLOGY if at_ms >= self._give_up_ms else self._next
        assert phrase is not None
        if phrase is Phrase.FILLER:
            self._fillers += 1
            self._next = Phrase.FILLER if self._fillers < self._settings.max_fillers else Phrase.TROUBLE
        else:
            self._next = Phrase.APOLOGY if phrase is Phrase.TROUBLE else None
        self._due_ms = self._give_up_ms if self._next is Phrase.APOLOGY else at_ms + self._gap_ms
        chosen = self._settings
        self._gap_ms = min(self._gap_ms * chosen.growth_percent // 100, chosen.longest_gap_ms)
        return phrase
