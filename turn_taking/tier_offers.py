"""Decide when the agent offers a human or another medium, by the rules of a deployment.

Some causes are counted, in exchanges in a row: replies of the embedded model that it does not know the
answer, repairs, in which one side had to ask again, turns that were said tensely, turns that were recognised
with little confidence, and turns with a camera or a screen for which nothing had to be seen. Tension counts
in seconds, too: of the speech that was judged tense, over tense turns in a row. The others are words of the
caller, or results of tools, by which a deployment states what needs eyes, a verification, or a human or
another medium by policy. Replies come in as written or heard. Pure.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

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


# Causes that words of the caller or results of tools are; the others are counted.
WORDED = frozenset({OfferCause.EYES, OfferCause.VERIFICATION, OfferCause.POLICY})
# Score of tension or anger from which a stretch of speech is tense, and confidence of its words below which a
# turn is unclear (the default of ``hearing.ask_back.below``). A deployment that wants fewer offers gives a
# larger number of turns in a row. Both scales are the product's own, so the values fit every engine.
TENSE_FROM, UNCLEAR_BELOW = 0.6, 0.4
# Value of a field in the result of a tool.
ToolValue = str | int | float | bool | None


class JudgedStretch(NamedTuple):
    """Stretch of the caller's speech with its tension.

    Attributes:
        start_us, end_us: its place on the session clock.
        score: 0..1, of tension or anger, whichever is higher.
    """

    start_us: int
    end_us: int
    score: float


@dataclass(frozen=True, slots=True)
class ToolTrigger:
    """Result of a tool that makes an offer due.

    Attributes:
        name: of the tool.
        outcome: "done", "failed" or "unknown".
        has: fields that the result has, with these values.
    """

    name: str
    outcome: str = "done"
    has: tuple[tuple[str, ToolValue], ...] = ()

    def fits(self, name: object, outcome: object, result: object) -> bool:
        """Return whether a result is the one."""
        if name != self.name or outcome != self.outcome:
            return False
        fields = result if isinstance(result, Mapping) else {}
        # In Python true equals 1.
        return all(
            key in fields
            and fields[key] == value
            and isinstance(fields[key], bool) is isinstance(value, bool)
            for key, value in self.has
        )


@dataclass(frozen=True, slots=True)
class OfferRule:
    """Rule by which an offer is made.

    Attributes:
        cause: of the offer.
        to: medium that is offered; None: a human.
        after: exchanges in a row that make a counted offer due; 0: never.
        after_s: tense speech in tense turns in a row that makes one due; 0: never.
        on: words of the caller that make one due.
        on_tool: result of a tool that makes one due; None: none does.
        asks: the caller is asked. Otherwise the step begins, or the human is fetched, without an offer.
        tense_from: score from which speech is tense.
        unclear_below: confidence below which a turn is unclear.
    """

    cause: OfferCause
    to: Medium | None = None
    after: int = 0
    after_s: float = 0.0
    on: tuple[str, ...] = ()
    on_tool: ToolTrigger | None = None
    asks: bool = True
    tense_from: float = TENSE_FROM
    unclear_below: float = UNCLEAR_BELOW

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


@dataclass(slots=True)
class _Count:
    """Progress of a conversation towards an offer.

    Attributes:
        rule: by which it is made.
        exchanges: those in a row for which its cause holds.
        tense_s: tense speech in them.
        is_due: a result of a tool has made it due.
    """

    rule: OfferRule
    exchanges: int = 0
    tense_s: float = 0.0
    is_due: bool = False

    def add(self, holds: bool, tense_s: float = 0.0) -> None:
        """Count an exchange for which the cause holds, or begin anew."""
        self.exchanges = self.exchanges + 1 if holds else 0
        self.tense_s = self.tense_s + tense_s if holds else 0.0

    def has_come(self) -> bool:
        """Return whether the offer is due."""
        rule = self.rule
        return self.is_due or 0 < rule.after <= self.exchanges or 0 < rule.after_s <= self.tense_s

    def forget(self) -> None:
        """Begin anew."""
        self.exchanges, self.tense_s, self.is_due = 0, 0.0, False


class TierOffers:
    """Counts of one conversation.

    Args:
        language: that of the caller.
        rules: the first one that is due counts: one by which a human is fetched, then in the order of the
            causes.
        repair_phrases: beginnings of replies with which the agent asks again.
    """

    def __init__(
        self, language: Language, rules: Sequence[OfferRule], *, repair_phrases: Sequence[str] = ()
    ) -> None:
        order = list(OfferCause)

        def place(rule: OfferRule) -> tuple[bool, int]:
            # What is left to humans goes before every offer.
            return rule.asks or rule.to is not None, order.index(rule.cause)

        self._counts = [_Count(rule) for rule in sorted(rules, key=place)]
        self._eyes = [
            phrase for rule in rules if rule.cause in WORDED and rule.to in SEEN for phrase in rule.on
        ]
        self._intents = language.intents
        self._unknown_phrases = _beginnings(language.answers.unknown)
        self._repair_phrases = _beginnings(repair_phrases)
        self._is_repair = False

    def on_caller(
        self,
        text: str,
        *,
        judged: Sequence[JudgedStretch] = (),
        confidence: float | None = None,
        media: Collection[Medium] = (),
    ) -> None:
        """Take the words of a turn of the caller.

        Args:
            text: the words.
            judged: stretches of the turn whose tension is known.
            confidence: with which the words were recognised; None where it is not known.
            media: by which the caller takes part.
        """
        is_shown = not SEEN.isdisjoint(media)
        is_unneeded = is_shown and not holds_one_of(plain(text), self._eyes)
        for count in self._counts:
            rule = count.rule
            match rule.cause:
                case OfferCause.TENSION:
                    tense = [each for each in judged if each.score >= rule.tense_from]
                    count.add(bool(tense), _covered_s(tense))
                case OfferCause.UNCLEAR:
                    count.add(confidence is not None and confidence < rule.unclear_below)
                case OfferCause.UNNEEDED:
                    count.add(is_unneeded)
        self._is_repair = self._intents.caller_intent(text) is CallerIntent.REPEAT

    def on_tool_result(self, name: object, outcome: object, result: object) -> None:
        """Take the result of a tool, as its session records it."""
        for count in self._counts:
            trigger = count.rule.on_tool
            count.is_due = count.is_due or (trigger is not None and trigger.fits(name, outcome, result))

    def on_reply(
        self, text: str, *, may_offer: Callable[[OfferRule], bool] | None = None
    ) -> OfferRule | None:
        """Take a reply of the agent; return the rule of an offer that is due. The counts begin anew then.

        What the result of a tool made due is due after this reply or not at all. ``may_offer`` says which
        rules apply now; None: all do.
        """
        said = text.strip()
        if not said:
            return None
        is_repair, self._is_repair = self._is_repair or said.startswith(self._repair_phrases), False
        is_unknown = said.startswith(self._unknown_phrases)
        for count in self._counts:
            match count.rule.cause:
                case OfferCause.REPAIRS:
                    count.add(is_repair)
                case OfferCause.UNKNOWN:
                    count.add(is_unknown)
        due = [count.rule for count in self._counts if count.has_come()]
        found = next((rule for rule in due if may_offer is None or may_offer(rule)), None)
        if found is not None:
            self.forget()
        for count in self._counts:
            count.is_due = False
        return found

    def forget(self) -> None:
        """Begin the counts anew."""
        for count in self._counts:
            count.forget()
        self._is_repair = False


def _covered_s(stretches: Sequence[JudgedStretch]) -> float:
    """Return the time that stretches cover; what several of them judge counts once."""
    total_us, reached_us = 0, 0
    for each in sorted(stretches):
        total_us += max(0, each.end_us - max(each.start_us, reached_us))
        reached_us = max(reached_us, each.end_us)
    return total_us / 1e6


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
