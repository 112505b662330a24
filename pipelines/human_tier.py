"""Turns of the caller while a human may be fetched, waits for, or has the session (``core.tiers``).

Decides, for a turn on any transport, whether the deployment answers it in place of the model, whether it is
held for the human, or whether the model is asked. The desk itself is in ``serving.gateway.desk``.
"""

from parley.core.tiers import Tier, TierEvent
from parley.language import Language
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.conversation import Conversation
from parley.turn_taking.clarification import is_made_of
from parley.turn_taking.human_answers import accepts, withdraws
from parley.turn_taking.tier_offers import OfferRule, rule_by_words


class HumanTier:
    """Rules of the human tier for one session.

    Args:
        conversation: the session.
        settings: of the desk; None where the deployment has none.
        language: that of the caller.
    """

    def __init__(self, conversation: Conversation, settings: DeskSettings | None, language: Language) -> None:
        self._conversation, self._language = conversation, language
        self.settings = settings or DeskSettings()
        self._is_configured = settings is not None
        if conversation.tier.is_held and not self.is_open:
            # The desk that held it was in another process, or a deployment before this one had it.
            conversation.change_tier(TierEvent.EXPIRED)
            conversation.change_tier(TierEvent.DESK_LOST)

    @property
    def is_open(self) -> bool:
        """True when a human can be fetched."""
        return self._is_configured and self._conversation.has_desk

    @property
    def waiting(self) -> str:
        """Phrase for a caller who waits."""
        return self.settings.phrases["waiting"].format(place=self._conversation.place)

    def answer(self, said: str, *, is_again: bool) -> str | None:
        """Return the answer to a turn (``processors.dialogue.commit_gate.Answers``).

        None: the model is asked. Empty: the turn is recorded and held for the human.
        """
        if not self.is_open:
            return None
        conversation, tier = self._conversation, self._conversation.tier.tier
        if is_again:
            return "" if conversation.tier.is_held else None
        match tier:
            case Tier.HUMAN:
                return ""
            case Tier.WAITING:
                return self._waiting_answer(said)
            case Tier.OFFERED:
                return self._offered_answer(said)
            case Tier.AGENT | Tier.BACK | Tier.STEP_OFFERED | Tier.STEPPING:
                return self._agents_answer(said)

    @property
    def rules(self) -> list[OfferRule]:
        """Rules by which a human is offered or fetched."""
        return self.settings.rules() if self._is_configured else []

    def may_offer(self, rule: OfferRule) -> bool:
        """Return whether a human may be offered, or fetched, by a rule now."""
        conversation = self._conversation
        if not (self.is_open and conversation.may_wait):
            return False
        return conversation.tier.tier is Tier.AGENT if rule.asks else not conversation.tier.is_held

    def offer(self, rule: OfferRule) -> str:
        """Offer a human by a rule that may be followed now, or fetch one; return the phrase."""
        if not rule.asks:
            return self._requested(TierEvent.POLICY, cause=rule.cause)
        return self.settings.phrases["offer"] if self.offers(rule.cause) else ""

    def offers(self, cause: str) -> bool:
        """Offer a human if the tier permits it; return whether it does."""
        may_offer = self.is_open and self._conversation.may_wait
        return may_offer and self._conversation.change_tier(TierEvent.OFFERED, cause=cause)

    def _agents_answer(self, said: str) -> str | None:
        if (fetched := self._fetched_by_words(said)) is not None:
            return fetched
        rule = rule_by_words(self.rules, said, may_offer=self.may_offer)
        return self.offer(rule) or None if rule is not None else None

    def _fetched_by_words(self, said: str) -> str | None:
        """Fetch a human for a turn that needs no offer; return the phrase, None for another turn."""
        if self._language.intents.requests_human(said):
            return self._requested(TierEvent.REQUESTED)
        fetching = [rule for rule in self.rules if not rule.asks]
        rule = rule_by_words(fetching, said, may_offer=lambda _rule: True)
        return None if rule is None else self._requested(TierEvent.POLICY, cause=rule.cause)

    def _waiting_answer(self, said: str) -> str | None:
        if self._language.intents.is_farewell(said):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return None
        if withdraws(self._language.vocabulary.words(said), self._language.vocabulary):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return self.settings.phrases["withdrawn"]
        return self.waiting

    def _offered_answer(self, said: str) -> str | None:
        vocabulary = self._language.vocabulary
        words = vocabulary.words(said)
        if (fetched := self._fetched_by_words(said)) is not None:
            return fetched
        if accepts(words, vocabulary):
            return self._requested(TierEvent.ACCEPTED)
        self._conversation.change_tier(TierEvent.DECLINED)
        return (
            self.settings.phrases["declined"]
            if is_made_of(words, vocabulary.negative | vocabulary.polite)
            else None
        )

    def _requested(self, event: TierEvent, *, cause: str = "") -> str:
        if not self._conversation.may_wait:
            self._conversation.change_tier(TierEvent.DECLINED)
            return self.settings.phrases["expired"]
        self._conversation.change_tier(event, cause=cause)
        return self.waiting
