"""Decide when the agent offers to fetch a human: it does not get further with this caller.

Two counts, each of exchanges in a row: replies of the embedded model that it does not know the answer, and
repairs, in which one side had to ask again. Replies come in as written or heard. Pure.
"""

from collections.abc import Sequence

from parley.language import Language
from parley.language.intents import CallerIntent


class HumanOffer:
    """Counts of one conversation.

    Args:
        language: that of the caller.
        after_unknown: unknown answers in a row that make an offer due; 0: never.
        after_repairs: repairs in a row that make one due; 0: never.
        repair_phrases: beginnings of replies with which the agent asks again.
    """

    def __init__(
        self,
        language: Language,
        *,
        after_unknown: int,
        after_repairs: int,
        repair_phrases: Sequence[str] = (),
    ) -> None:
        self._intents = language.intents
        self._unknown_phrases = _beginnings(language.answers.unknown)
        self._repair_phrases = _beginnings(repair_phrases)
        self._after_unknown, self._after_repairs = after_unknown, after_repairs
        self._unknown = self._repairs = 0
        self._is_repair = False

    def on_caller(self, text: str) -> None:
        """Take the words of a turn of the caller."""
        self._is_repair = self._intents.caller_intent(text) is CallerIntent.REPEAT

    def on_reply(self, text: str) -> bool:
        """Take a reply of the agent; return whether an offer is due. The counts begin anew then."""
        said = text.strip()
        if not said:
            return False
        is_repair, self._is_repair = self._is_repair or said.startswith(self._repair_phrases), False
        self._repairs = self._repairs + 1 if is_repair else 0
        self._unknown = self._unknown + 1 if said.startswith(self._unknown_phrases) else 0
        is_due = 0 < self._after_unknown <= self._unknown or 0 < self._after_repairs <= self._repairs
        if is_due:
            self.forget()
        return is_due

    def forget(self) -> None:
        """Begin the counts anew."""
        self._unknown = self._repairs = 0
        self._is_repair = False


def _beginnings(templates: Sequence[str]) -> tuple[str, ...]:
    """Return the text of templates up to their first field."""
    found = (template.partition("{")[0].strip() for template in templates)
    # Punctuation alone would begin other replies, too.
    return tuple(text for text in found if any(letter.isalnum() for letter in text))
