"""Turns of the caller while a human may be fetched, waits for, or has the session (``core.tiers``).

Decides, for a turn on any transport, whether the deployment answers it in place of the model, whether it is
held for the human, or whether the model is asked. The desk itself is in ``serving.gateway.desk``.
"""

from collections.abc import Sequence

from parley.configs.deployment import Deployment
from parley.core.tiers import Tier, TierEvent
from parley.language import Language
from parley.language.words import plain
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events, text_in
from parley.session_store.prompt import is_tense
from parley.turn_taking.clarification import is_made_of
from parley.turn_taking.human_answers import accepts, withdraws
from parley.turn_taking.human_offer import HumanOffer

# Cause of an offer that the words of the caller led to.
BY_WORDS = "words"


class HumanTier:
    """Rules of the human tier for one session.

    Args:
        conversation: the session.
        settings: of the desk; None where the deployment has none.
        language: that of the caller.
        repair_phrases: beginnings of replies with which the agent asks again.
    """

    def __init__(
        self,
        conversation: Conversation,
        settings: DeskSettings | None,
        language: Language,
        repair_phrases: Sequence[str] = (),
    ) -> None:
        self._conversation, self._language = conversation, language
        self._repair_phrases = repair_phrases
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
            case Tier.AGENT | Tier.BACK:
                return self._agents_answer(said)

    def new_offer(self) -> HumanOffer:
        """Return counts for the offer of a human, with the turns since the last change of the tier."""
        chosen = self.settings
        offer = HumanOffer(
            self._language,
            after_unknown=chosen.offer_after_unknown,
            after_repairs=chosen.offer_after_repairs,
            after_tense=chosen.offer_after_tense,
            repair_phrases=self._repair_phrases,
        )
        for event in _since_change(self._conversation.events):
            text = text_in(event.payload, "text")
            if event.kind is Kind.USER_TURN:
                offer.on_caller(text, is_tense=is_tense(event.payload))
            elif event.payload.get("by") is None:
                offer.on_reply(text)
        return offer

    def offers(self, cause: str) -> bool:
        """Offer a human if the tier permits it; return whether it does."""
        is_possible = self.is_open and self._conversation.may_wait
        return is_possible and self._conversation.change_tier(TierEvent.OFFERED, cause=cause)

    def _agents_answer(self, said: str) -> str | None:
        if self._requests_human(said):
            return self._requested(TierEvent.REQUESTED)
        words = plain(said)
        if _holds_one_of(words, self.settings.fetch_on):
            return self._requested(TierEvent.POLICY)
        if _holds_one_of(words, self.settings.offer_on) and self.offers(BY_WORDS):
            return self.settings.offer
        return None

    def _waiting_answer(self, said: str) -> str | None:
        if self._language.intents.is_farewell(said):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return None
        if withdraws(plain(said), self._language.vocabulary):
            self._conversation.change_tier(TierEvent.WITHDRAWN)
            return self.settings.withdrawn
        return self.waiting

    def _offered_answer(self, said: str) -> str | None:
        vocabulary = self._language.vocabulary
        words = plain(said)
        if self._requests_human(said):
            return self._requested(TierEvent.REQUESTED)
        if _holds_one_of(words, self.settings.fetch_on):
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


def human_tier(deployment: Deployment, conversation: Conversation) -> HumanTier:
    """Return the rules of the human tier for a session of a deployment."""
    phrases = [deployment.bot.reprompt]
    if (asking := deployment.hearing.ask_back) is not None:
        phrases += [asking.repeat, asking.again]
    return HumanTier(conversation, deployment.desk, deployment.language(), phrases)


def _holds_one_of(words: Sequence[str], phrases: Sequence[str]) -> bool:
    """Return whether the words of one of the phrases are among the words, in a row."""
    text = f" {' '.join(words)} "
    return any(f" {' '.join(wanted)} " in text for phrase in phrases if (wanted := plain(phrase)))


def _since_change(events: Sequence[Event]) -> list[Event]:
    """Return the turns since the last change of the tier, in order of event time."""
    changed = max((event.seq for event in events if event.kind is Kind.TIER), default=0)
    return [
        event
        for event in current_events(events)
        if event.seq > changed and event.kind in (Kind.USER_TURN, Kind.BOT_TURN)
    ]
