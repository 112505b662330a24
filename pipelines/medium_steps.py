"""Steps of a session to another medium (``core.tiers``), by the rules of a deployment (``tiers``).

Decides, for a turn on any transport, whether the caller asks for another medium, answers an offer of one, or
says words on which one is offered or required. What a client does on a step, and the deadline of it, is in
``pipelines.stages.medium_steps`` for a call, and on the page of the session in writing.
"""

from collections.abc import Callable, Collection

from parley.core.tiers import SEEN, Medium, Tier, TierEvent, is_reached
from parley.language import Language
from parley.session_store.conversation import Conversation
from parley.turn_taking.clarification import is_made_of
from parley.turn_taking.human_answers import accepts, withdraws
from parley.turn_taking.tier_offers import OfferRule, rule_by_words
from parley.turn_taking.tier_settings import TierSettings

Reachable = Callable[[], Collection[Medium]]


def nowhere() -> Collection[Medium]:
    """Return the media to which a client can change that reports none."""
    return ()


class MediumSteps:
    """Rules of the steps for one session.

    Args:
        conversation: the session.
        settings: of the steps; None where the deployment has none.
        language: that of the caller.
        reachable: returns the media to which the client of the caller can change.
    """

    def __init__(
        self,
        conversation: Conversation,
        settings: TierSettings | None,
        language: Language,
        reachable: Reachable = nowhere,
    ) -> None:
        self._conversation, self._language, self._reachable = conversation, language, reachable
        self.settings = settings or TierSettings()
        self.is_open = settings is not None
        if conversation.tier.is_step and not self.is_open:
            # A deployment before this one had steps.
            conversation.change_tier(TierEvent.EXPIRED)

    @property
    def rules(self) -> list[OfferRule]:
        """Rules of the offers."""
        return self.settings.rules() if self.is_open else []

    def answer(self, said: str, *, is_again: bool) -> str | None:
        """Return the answer to a turn of a caller whom no human has; None: the model is asked."""
        if not self.is_open or is_again or self._conversation.tier.is_held:
            return None
        wish = self._language.intents.requested_medium(said, is_shown=bool(SEEN & self._media))
        if wish is not None and not is_reached(wish, self._media) and wish in self._reachable():
            return self._steps(TierEvent.STEP_REQUESTED, wish)
        match self._conversation.tier.tier:
            case Tier.STEP_OFFERED if (answer := self._offered_answer(said)) is not None:
                return answer
            case Tier.STEPPING if withdraws(self._language.vocabulary.words(said), self._language.vocabulary):
                return self.decline()
        rule = rule_by_words(self.rules, said, may_offer=self.may_offer)
        return self.offer(rule) if rule is not None else None

    def may_offer(self, rule: OfferRule) -> bool:
        """Return whether a medium may be offered by a rule now."""
        tier = self._conversation.tier
        return (
            self.is_open
            and rule.to is not None
            and tier.tier in (Tier.AGENT, Tier.BACK)
            and not (rule.asks and rule.to in tier.declined)
            and rule.leads_from(self._media)
            and rule.to in self._reachable()
        )

    def offer(self, rule: OfferRule) -> str:
        """Offer the medium of a rule that may be followed now, or begin the step; return the phrase."""
        if not rule.asks and rule.to is not None:
            return self._steps(TierEvent.STEP_POLICY, rule.to, cause=rule.cause)
        self._conversation.change_tier(TierEvent.STEP_OFFERED, cause=rule.cause, to=rule.to)
        return self.settings.offer_of(rule)

    def accept(self) -> str | None:
        """Take the offer for the caller; return the phrase, None where there is none."""
        to = self._conversation.tier.to
        if to is None or self._conversation.tier.tier is not Tier.STEP_OFFERED:
            return None
        return self._steps(TierEvent.ACCEPTED, to)

    def decline(self) -> str | None:
        """Decline the offer or the step for the caller; return the phrase, None where there is none."""
        is_changed = self._conversation.tier.is_step and self._conversation.change_tier(TierEvent.DECLINED)
        return self.settings.phrases["declined"] if is_changed else None

    def fail(self, event: TierEvent) -> None:
        """End a step that cannot be taken."""
        if self._conversation.tier.is_step:
            self._conversation.change_tier(event)

    @property
    def _media(self) -> frozenset[Medium]:
        return self._conversation.media.now

    def _offered_answer(self, said: str) -> str | None:
        vocabulary = self._language.vocabulary
        words = vocabulary.words(said)
        if accepts(words, vocabulary):
            return self.accept()
        declined = self.decline()
        # Words about something else decline as well, and are a question like any other.
        says_no = is_made_of(words, vocabulary.negative | vocabulary.polite) or withdraws(words, vocabulary)
        return declined if says_no else None

    def _steps(self, event: TierEvent, to: Medium, *, cause: str = "") -> str:
        self._conversation.change_tier(event, cause=cause, to=to)
        return self.settings.go(to, is_in_call=bool(self._media))
