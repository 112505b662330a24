"""Decide when the agent offers a human or another medium, by the rules of a deployment.

Some causes are counted, in exchanges in a row: replies of the embedded model that it does not know the
answer, repairs, in which one side had to ask again, turns that were said tensely, turns that were recognised
with little confidence, and turns with a camera or a screen for which nothing had to be seen. The others are
words of the caller, by which a deployment states what needs eyes, a verification, or a richer medium by
policy. Replies come in as written or heard. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from parley.core.tiers import SEEN, Medium, is_reached
from parley.language import Language
from parley.language.intents import CallerIntent
from parley.language.words import plain


class OfferCause(StrEnum):
    """Cause of an offer, in the order in which the first that holds is stated."""

    UNKNOWN = "unknown"
    REPAIRS = "repairs"
    TENSION = "tension"
    UNCLEAR = "unclear"
    UNNEEDED = "unneeded"
    EYES = "eyes"
    VERIFICATION = "verification"
    POLICY = "policy"


# Causes that words of the caller are; the others are counted.
WORDED = frozenset({OfferCause.EYES, OfferCause.VERIFICATION, OfferCause.POLICY})


@dataclass(frozen=True, slots=True)
class OfferRule:
    """Rule by which an offer is made.

    Attributes:
        cause: of the offer.
        to: medium that is offered; None: a human.
        after: exchanges in a row that make a counted offer due; 0: never.
        on: words of the caller that make one due.
    """

    cause: OfferCause
    to: Medium | None = None
    after: int = 0
    on: tuple[str, ...] = ()

    def leads_from(self, media: Collection[Medium]) -> bool:
        """Return whether the rule applies to a caller with these media.

        Voice is offered in writing, or in place of pictures that nothing needs any more. Writing is offered
        in a call, and pictures wherever there are none.
        """
        if self.to is None:
            return True
        if self.to is Medium.VOICE:
            return not SEEN.isdisjoint(media) if self.cause is OfferCause.UNNEEDED else not media
        return not is_reached(self.to, media)


class TierOffers:
    """Counts of one conversation.

    Args:
        language: that of the caller.
        rules: the first one that is due counts, in the order of the causes.
        repair_phrases: beginnings of replies with which the agent asks again.
    """

    def __init__(
        self, language: Language, rules: Sequence[OfferRule], *, repair_phrases: Sequence[str] = ()
    ) -> None:
        order = list(OfferCause)
        self._rules = sorted(rules, key=lambda rule: order.index(rule.cause))
        self._eyes = [
            phrase for rule in rules if rule.cause in WORDED and rule.to in SEEN for phrase in rule.on
        ]
        self._intents = language.intents
        self._unknown_phrases = _beginnings(language.answers.unknown)
        self._repair_phrases = _beginnings(repair_phrases)
        self._counts = dict.fromkeys(OfferCause, 0)
        self._is_repair = False

    def on_caller(
        self,
        text: str,
        *,
        is_tense: bool = False,
        is_unclear: bool = False,
        media: Collection[Medium] = (),
    ) -> None:
        """Take the words of a turn of the caller.

        Args:
            text: the words.
            is_tense: they were said tensely.
            is_unclear: they were recognised with little confidence.
            media: by which the caller takes part.
        """
        self._count(OfferCause.TENSION, is_tense)
        self._count(OfferCause.UNCLEAR, is_unclear)
        is_shown = not SEEN.isdisjoint(media)
        self._count(OfferCause.UNNEEDED, is_shown and not holds_one_of(plain(text), self._eyes))
        self._is_repair = self._intents.caller_intent(text) is CallerIntent.REPEAT

    def on_reply(
        self, text: str, *, may_offer: Callable[[OfferRule], bool] | None = None
    ) -> OfferRule | None:
        """Take a reply of the agent; return the rule of an offer that is due. The counts begin anew then.

        ``may_offer`` says which rules apply now; None: all do.
        """
        said = text.strip()
        if not said:
            return None
        is_repair, self._is_repair = self._is_repair or said.startswith(self._repair_phrases), False
        self._count(OfferCause.REPAIRS, is_repair)
        self._count(OfferCause.UNKNOWN, said.startswith(self._unknown_phrases))
        due = (rule for rule in self._rules if 0 < rule.after <= self._counts[rule.cause])
        found = next((rule for rule in due if may_offer is None or may_offer(rule)), None)
        if found is not None:
            self.forget()
        return found

    def forget(self) -> None:
        """Begin the counts anew."""
        self._counts = dict.fromkeys(OfferCause, 0)
        self._is_repair = False

    def _count(self, cause: OfferCause, holds: bool) -> None:
        self._counts[cause] = self._counts[cause] + 1 if holds else 0


def rule_by_words(
    rules: Sequence[OfferRule], text: str, *, may_offer: Callable[[OfferRule], bool]
) -> OfferRule | None:
    """Return the first rule that applies now and whose words a turn of the caller holds; None without one."""
    words = plain(text)
    found = (rule for rule in rules if rule.on and holds_one_of(words, rule.on))
    return next((rule for rule in found if may_offer(rule)), None)


def holds_one_of(words: Sequence[str], phrases: Sequence[str]) -> bool:
    """Return whether the words of one of the phrases are among the words, in a row."""
    text = f" {' '.join(words)} "
    return any(f" {' '.join(wanted)} " in text for phrase in phrases if (wanted := plain(phrase)))


def _beginnings(templates: Sequence[str]) -> tuple[str, ...]:
    """Return the text of templates up to their first field."""
    found = (template.partition("{")[0].strip() for template in templates)
    # Punctuation alone would begin other replies, too.
    return tuple(text for text in found if any(letter.isalnum() for letter in text))
