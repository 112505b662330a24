"""Decide when a silence before an answer is covered, and with which phrase.

A caller takes about 700 ms of quiet for a line that went dead. The delay of this turn can be predicted: the
silence that its end took has passed already, and the time that answers take has been seen in the turns
before. So a short phrase is said only when the answer is expected clearly after that moment, or was expected
before it and did not come. A guess alone is never enough: a filler before an answer that would have come at
once delays it.

The phrase fits the caller's words (a question is looked into, a statement is acknowledged) and differs from
the one before. It is no part of the conversation. The module is pure; all times are milliseconds on the
session clock.
"""

from collections import deque

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import Language, find_language

_REMEMBERED = 20
# Percentage of the answers seen so far that had begun by the expected time.
_EXPECTED_PERCENT = 75


class FillerSettings(StrictModel):
    """Sounds that cover a silence before an answer."""

    questions: tuple[str, ...] = Field(
        ("Let me see.", "Let me check.", "One moment."),
        max_length=20,
        description="phrases after a question; empty: none",
    )
    statements: tuple[str, ...] = Field(
        ("Okay.", "All right."), max_length=20, description="phrases after anything else; empty: none"
    )


class MaskTuning(FillerSettings):
    """Masking settings including the values that no deployment sets.

    Attributes:
        after_ms: longest quiet since the caller's last word that is left uncovered.
        lead_ms: from the decision to the first sound of a phrase that the voice keeps.
        worth_ms: no phrase is said when the answer is expected within so long after it.
        first_patience_ms: wait for the first answer of a call, before any delay is known.
    """

    after_ms: int = Field(default=700, ge=300, le=5_000)
    lead_ms: int = Field(default=80, ge=0, le=250)
    worth_ms: int = Field(default=250, ge=0, le=5_000)
    first_patience_ms: int = Field(default=600, ge=0, le=10_000)


class FillerPolicy:
    """Masking of the silences of one call.

    Args:
        settings: phrases and waits; None for the defaults.
        language: that of the caller; None for the default language.
    """

    def __init__(self, settings: FillerSettings | None = None, *, language: Language | None = None) -> None:
        self._settings = tuned(MaskTuning, settings)
        self._cues = (language or find_language()).cues
        self._answers_ms: deque[int] = deque(maxlen=_REMEMBERED)
        self._said = 0

    @property
    def expected_ms(self) -> int | None:
        """Expected time from a question to its answer, by the answers so far; None before any."""
        if not self._answers_ms:
            return None
        ordered = sorted(self._answers_ms)
        return ordered[-(-len(ordered) * _EXPECTED_PERCENT // 100) - 1]

    def on_answer(self, took_ms: int) -> None:
        """Register that an answer began so long after its question."""
        self._answers_ms.append(took_ms)

    def due_ms(self, *, quiet_since_ms: int, asked_ms: int) -> int:
        """Return when a phrase is to be said if there is no answer by then.

        Args:
            quiet_since_ms: when the caller fell silent.
            asked_ms: when the turn was over.
        """
        chosen = self._settings
        due_ms = max(asked_ms, quiet_since_ms + chosen.after_ms - chosen.lead_ms)
        expected_ms = self.expected_ms
        if expected_ms is None:
            return max(due_ms, asked_ms + chosen.first_patience_ms)
        answer_ms = asked_ms + expected_ms
        if answer_ms <= due_ms + chosen.worth_ms:
            # The answer is expected in time, or so soon after that a phrase would only delay it: wait until
            # it is overdue.
            return max(due_ms, answer_ms + chosen.worth_ms)
        return due_ms

    def covers(self, said: str) -> bool:
        """Return whether there is a phrase that fits ``said``."""
        return bool(self._fitting(said))

    def phrase(self, said: str) -> str:
        """Return a phrase that fits ``said``, in rotation; empty when there is none."""
        fitting = self._fitting(said)
        if not fitting:
            return ""
        self._said += 1
        return fitting[(self._said - 1) % len(fitting)]

    def _fitting(self, said: str) -> tuple[str, ...]:
        return self._settings.questions if self._cues.is_question(said) else self._settings.statements
