"""Turns of the caller while a human may be fetched, waits for, or has the session (``core.tiers``).

Decides, for a turn on any transport, whether the deployment answers it in place of the model, whether it is
held for the human, or whether the model is asked. The desk itself is in ``serving.gateway.desk``.
"""

from parley.core.tiers import Tier, TierEvent
from parley.language import Language
from parley.language.words import plain
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.conversation import Conversation
from parley.turn_taking.clarification import is_made_of
from parley.turn_taking.human_answers import accepts, withdraws
from parley.turn_taking.tier_offers import OfferCause, OfferRule, holds_one_of

# Cause of an offer that the words of the caller led to.
BY_WORDS = "words"


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
        return self.settings.waiting.format(place=self._conversation.place)

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
        """Rules by which a human is offered."""
        chosen = self.settings
        return [
            OfferRule(OfferCause.UNKNOWN, after=chosen.offer_after_unknown),
            OfferRule(OfferCause.REPAIRS, after=chosen.offer_after_repairs),
            OfferRule(OfferCause.TENSION, after=chosen.offer_after_tense),
        ]

    @property
    def may_offer(self) -> bool:
        """True when a human may be offered now."""
        return self.is_open and self._conversation.may_wait and self._conversation.tier.tier is Tier.AGENT

    def offers(self, cause: str) -> bool:
        """Offer a human if the tier permits it; return whether it does."""
        return self.may_offer and self._conversation.change_tier(TierEvent.OFFERED, cause=cause)

    def _agents_answer(self, said: str) -> str | None:
        if self._requests_human(said):
            return self._requested(TierEvent.REQUESTED)
        words = plain(said)
        if holds_one_of(words, self.settings.fetch_on):
            return self._requested(TierEvent.POLICY)
        if holds_one_of(words, self.settings.offer_on) and self.offers(BY_WORDS):
            return self.settings.offer
        return None

    def _waiting_answer(self, said: str) -> str | None:
        if self._language.intents.is_farewell(said):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return None
        if withdraws(self._language.vocabulary.words(said), self._language.vocabulary):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return self.settings.withdrawn
        return self.waiting

    def _offered_answer(self, said: str) -> str | None:
        vocabulary = self._language.vocabulary
        words = vocabulary.words(said)
        if self._requests_human(said):
            return self._requested(TierEvent.REQUESTED)
        if holds_one_of(plain(said), self.settings.fetch_on):
            return self._requested(TierEvent.POLICY)
        if accepts(words, vocabulary):
            return self._requested(TierEvent.ACCEPTED)
        self._conversation.change_tier(TierEvent.DECLINED)
        return self.settings.declined if is_made_of(words, vocabulary.negative | vocabulary.polite) else None

    def _requests_human(self, said: str) -> bool:
        return self._language.intents.requests_human(said)

    def _requested(self, event: TierEvent) -> str:
        if not self._conversation.may_wait:
            self._conversation.change_tier(TierEvent.DECLINED)
            return self.settings.expired
        self._conversation.change_tier(event)
        return self.waiting
