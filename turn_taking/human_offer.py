"""Decide when the agent offers to fetch a human: it does not get further with this caller.

Three counts, each of exchanges in a row: replies of the embedded model that it does not know the answer,
repairs, in which one side had to ask again, and turns that were said tensely. Replies come in as written or
heard. Pure.
"""

from collections.abc import Sequence
from enum import StrEnum

from parley.language import Language
from parley.language.intents import CallerIntent


class OfferCause(StrEnum):
    """Cause of an offer, in the order in which the first that holds is stated."""

    UNKNOWN = "unknown"
    REPAIRS = "repairs"
    TENSION = "tension"


class HumanOffer:
    """Counts of one conversation.

    Args:
        language: that of the caller.
        after_unknown: unknown answers in a row that make an offer due; 0: never.
        after_repairs: repairs in a row that make one due; 0: never.
        after_tense: turns in a row, said tensely, that make one due; 0: never.
        repair_phrases: beginnings of replies with which the agent asks again.
    """

    def __init__(
        self,
        language: Language,
        *,
        after_unknown: int,
        after_repairs: int,
        after_tense: int = 0,
        repair_phrases: Sequence[str] = (),
    ) -> None:
        self._intents = language.intents
        self._unknown_phrases = _beginnings(language.answers.unknown)
        self._repair_phrases = _beginnings(repair_phrases)
        self._limits = {
            OfferCause.UNKNOWN: after_unknown,
            OfferCause.REPAIRS: after_repairs,
            OfferCause.TENSION: after_tense,
        }
        self._counts = dict.fromkeys(OfferCause, 0)
        self._is_repair = False

    def on_caller(self, text: str, *, is_tense: bool = False) -> None:
        """Take the words of a turn of the caller, and whether they were said tensely."""
        self._count(OfferCause.TENSION, is_tense)
        self._is_repair = self._intents.caller_intent(text) is CallerIntent.REPEAT

    def on_reply(self, text: str) -> OfferCause | None:
        """Take a reply of the agent; return the cause of an offer that is due. The counts begin anew then."""
        said = text.strip()
        if not said:
            return None
        is_repair, self._is_repair = self._is_repair or said.startswith(self._repair_phrases), False
        self._count(OfferCause.REPAIRS, is_repair)
        self._count(OfferCause.UNKNOWN, said.startswith(self._unknown_phrases))
        due = (cause for cause in OfferCause if 0 < self._limits[cause] <= self._counts[cause])
        cause = next(due, None)
        if cause is not None:
            self.forget()
        return cause

    def forget(self) -> None:
        """Begin the counts anew."""
        self._counts = dict.fromkeys(OfferCause, 0)
        self._is_repair = False

    def _count(self, cause: OfferCause, holds: bool) -> None:
        self._counts[cause] = self._counts[cause] + 1 if holds else 0


def _beginnings(templates: Sequence[str]) -> tuple[str, ...]:
    """Return the text of templates up to their first field."""
    found = (template.partition("{")[0].strip() for template in templates)
    # Punctuation alone would begin other replies, too.
    return tuple(text for text in found if any(letter.isalnum() for letter in text))
