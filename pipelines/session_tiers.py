"""Tiers of one session: the rules of a human and those of another medium, as one answerer and one offer.

There is one offer at a time. A human comes first: a caller who asks for one, or who answers the offer of one,
gets no other answer. The same counts of a conversation make either due (``turn_taking.tier_offers``).
"""

from collections.abc import Sequence

from parley.configs.deployment import Deployment
from parley.language import Language
from parley.pipelines.human_tier import HumanTier
from parley.pipelines.medium_steps import MediumSteps, Reachable, nowhere
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events, text_in
from parley.session_store.tension import judged_stretches
from parley.turn_taking.tier_offers import OfferRule, TierOffers

# Events that offers count.
_COUNTED = frozenset({Kind.USER_TURN, Kind.BOT_TURN, Kind.TOOL_RESULT})


class SessionTiers:
    """Rules of all tiers of one session.

    Args:
        conversation: the session.
        human: rules of the human tier.
        steps: rules of the steps to another medium.
        language: that of the caller.
        repair_phrases: beginnings of replies with which the agent asks again.

    Attributes:
        human: rules of the human tier.
        steps: rules of the steps to another medium.
    """

    def __init__(
        self,
        conversation: Conversation,
        human: HumanTier,
        steps: MediumSteps,
        language: Language,
        repair_phrases: Sequence[str] = (),
    ) -> None:
        self.human, self.steps = human, steps
        self._conversation, self._language = conversation, language
        self._repair_phrases = repair_phrases

    def answer(self, said: str, *, is_again: bool) -> str | None:
        """Return the answer to a turn (``processors.dialogue.commit_gate.Answers``).

        None: the model is asked. Empty: the turn is recorded and held for the human.
        """
        first = self.human.answer(said, is_again=is_again)
        return self.steps.answer(said, is_again=is_again) if first is None else first

    def new_offers(self) -> TierOffers:
        """Return counts for offers, with the turns since the last change of the tier."""
        rules = [*self.human.rules, *self.steps.rules]
        offers = TierOffers(self._language, rules, repair_phrases=self._repair_phrases)
        media = self._conversation.media.now
        for event in _since_change(self._conversation.events):
            text = text_in(event.payload, "text")
            if event.kind is Kind.USER_TURN:
                offers.on_caller(text, judged=judged_stretches(event.payload), media=media)
            elif event.kind is Kind.TOOL_RESULT:
                take_tool_result(offers, event)
            elif event.payload.get("by") is None:
                # What was due before was offered before, or could not be.
                offers.on_reply(text, may_offer=lambda _rule: False)
        return offers

    def may_offer(self, rule: OfferRule) -> bool:
        """Return whether an offer may be made by a rule now."""
        return self.human.may_offer(rule) if rule.to is None else self.steps.may_offer(rule)

    def offer(self, rule: OfferRule) -> str:
        """Follow a rule that may be followed now: make its offer, or begin without one. Return the phrase."""
        return self.human.offer(rule) if rule.to is None else self.steps.offer(rule)


def session_tiers(
    deployment: Deployment, conversation: Conversation, reachable: Reachable = nowhere
) -> SessionTiers:
    """Return the rules of the tiers for a session of a deployment.

    ``reachable`` returns the media to which the client of the caller can change.
    """
    phrases = [deployment.bot.reprompt]
    if (asking := deployment.hearing.ask_back) is not None:
        phrases += [asking.repeat, asking.again]
    language = deployment.language()
    human = HumanTier(conversation, deployment.desk, language)
    steps = MediumSteps(conversation, deployment.tiers, language, reachable)
    return SessionTiers(conversation, human, steps, language, phrases)


def take_tool_result(offers: TierOffers, event: Event) -> None:
    """Count the result of a tool that a session records."""
    payload = event.payload
    offers.on_tool_result(payload.get("name"), payload.get("outcome"), payload.get("result"))


def _since_change(events: Sequence[Event]) -> list[Event]:
    """Return turns and results of tools since the last change of the tier, in order of event time."""
    changed = max((event.seq for event in events if event.kind is Kind.TIER), default=0)
    return [event for event in current_events(events) if event.seq > changed and event.kind in _COUNTED]
